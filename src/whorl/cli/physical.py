"""``whorl physical``: print images, photograph them, score the photographs; or rehearse it all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl.cli.app import app, typed
from whorl.cli.console import messages, output, progress_bar, show_json, show_line, table
from whorl.cli.options import AsJson, Defenses, Device, Limit, Seed, Targets, split_models, split_names
from whorl.errors import WhorlError
from whorl.evaluation import rate
from whorl.evaluation.rate_table import percent, percent_interval
from whorl.models.zoo import find_device
from whorl.physical.camera import PRESETS, preset, sweep
from whorl.physical.captures import VIEWS, Scored, View, ViewSettings
from whorl.physical.layout import PageLayout, page_size
from whorl.physical.pdf import print_sheet
from whorl.physical.report import as_json as scored_json
from whorl.physical.report import write_all
from whorl.physical.scorer import score
from whorl.physical.sheet import read_sheets
from whorl.physical.simulation import simulate
from whorl.physical.summary import summarise
from whorl.records import Count, checked
from whorl.report.gallery import CLEAN
from whorl.runs.networks import UNDEFENDED, load_targets

SOME_UNREAD = 2  # 1 is a gate that failed

commands = typer.Typer(no_args_is_help=True, help="Print images, photograph them, score the photographs.")
app.add_typer(commands, name="physical", epilog="Example: whorl physical print runs/mine --page A4 --out sheet.pdf")

_SCORE_EXAMPLES = """
Example: whorl physical score photos/ --run runs/mine --model resnet18

Example: whorl physical score one.jpg two.jpg --run runs/mine --model resnet18,mobilenet_v2 --defense none,jpeg --json
"""
_SIMULATE_EXAMPLES = """
Example: whorl physical simulate runs/mine --out photos/

Example: whorl physical simulate runs/mine --camera setting1 --set tilt=0,20,40 --set jpeg=50,90 --out photos/
"""


@commands.command("print", epilog="Example: whorl physical print runs/mine --page A4 --out sheet.pdf")
def print_(
    folder: Annotated[Path, typer.Argument(help="A run folder, or any folder of labelled images.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The PDF file.")] = Path("sheet.pdf"),
    page: Annotated[
        str, typer.Option(help="A3, A4, A5 or Letter, with -landscape or not, or WIDTHxHEIGHT in millimetres.")
    ] = "A4",
    image_mm: Annotated[float, typer.Option(help="Side of a printed image, in millimetres.")] = PageLayout.image,
    marker_mm: Annotated[float, typer.Option(help="Side of a marker, in millimetres.")] = PageLayout.marker,
    margin_mm: Annotated[float, typer.Option(help="Margin that stays white, in millimetres.")] = PageLayout.margin,
    attack: Annotated[
        str | None, typer.Option(help="Attacks of the run to print, joined by commas; all by default.")
    ] = None,
    clean: Annotated[
        Path | None, typer.Option(help="Where the clean images are, if they moved, or if the folder has no manifest.")
    ] = None,
    limit: Limit = None,
    size: Annotated[int | None, typer.Option(help="Side in pixels of images that nobody attacked.")] = None,
) -> None:
    """Make a PDF with the images of a run, clean and adversarial side by side, and markers to find them by.

    Writes sheet.json into the folder and beside the PDF: scoring needs one of them.
    """
    width, height = page_size(page)
    layout = PageLayout(width=width, height=height, image=image_mm, marker=marker_mm, margin=margin_mm)
    names = [name.lower() for name in split_names(attack)]
    with progress_bar() as progress:
        done = print_sheet(
            folder, out, layout=layout, clean=clean, attacks=names, limit=limit, size=size, progress=progress
        )
    sheet, console = done.sheet, output()
    ids = len({item.id for item in sheet.prints})
    console.print(
        f"{len(sheet.prints)} prints of {ids} image{'s' * (ids != 1)} on {sheet.pages} page{'s' * (sheet.pages != 1)}, "
        f"sheet {sheet.name}",
        style="bold",
    )
    show_line(f"print this: {done.pdf}")
    for path in done.records:
        show_line(f"keep this:  {path}")
    console.print("Print at 100%, not 'fit to page', and check the 50 mm line with a ruler.", style="dim")


@commands.command("score", epilog=_SCORE_EXAMPLES)
def score_(
    ctx: typer.Context,
    photos: Annotated[list[Path], typer.Argument(help="Photographs, or folders of them.", show_default=False)],
    run: Annotated[Path, typer.Option(help="The folder that was printed, or its sheet.json.")],
    model: Targets,
    defense: Defenses = UNDEFENDED,
    view: Annotated[str, typer.Option(help="How to cut images out: as-seen, rectified or both.")] = "both",
    scale_one: Annotated[
        str,
        typer.Option(
            help="What counts as scale 1: page (it fills the photograph), image (likewise), or pixels a millimetre."
        ),
    ] = "page",
    offset: Annotated[
        float, typer.Option(help="Shift the view as seen at random by up to this many pixels of a 299-pixel image.")
    ] = 0.0,
    surroundings: Annotated[
        str, typer.Option(help="Beyond an image's edge the view as seen is black, or shows the photo.")
    ] = "black",
    white_balance: Annotated[bool, typer.Option("--white-balance", help="Correct colours by the patch strip.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and images; physical/ of the run folder by default.")
    ] = None,
    save_images: Annotated[
        bool, typer.Option("--save-images", help="Keep every image that is cut out, as PNG.")
    ] = False,
    overlays: Annotated[
        bool, typer.Option("--overlays", help="Keep small copies of the photographs with what was found drawn in.")
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find printed images in photographs, and evaluate networks on them.

    Exits with 0, and with 2 if something is wrong with the input, or if a photograph could not be read (the others
    still count).
    """
    settings = ViewSettings(
        views=_views(view),
        scale_one=_scale_one(scale_one),
        offset=offset,
        surroundings=surroundings.lower(),
        white_balance=white_balance,
        seed=seed,
    )
    sheets = read_sheets(run)
    where = find_device(device)
    targets = load_targets(split_models(model), split_names(defense), device=where, seed=seed)
    folder = out or _default_folder(run)
    with progress_bar() as progress:
        done = score(
            photos,
            sheets,
            targets,
            settings,
            save=folder / "images" if save_images else None,
            overlays=folder / "overlays" if overlays else None,
            folder=folder,
            progress=progress,
        )
    if not as_json:
        _show(done)
    files = write_all(done, folder, targets, command=typed(ctx))
    if as_json:
        show_json(scored_json(done) | {"report": str(files.report), "results": str(next(iter(files.results.values())))})
    else:
        for path in (*files.results.values(), files.captures, files.contact, files.report):
            if path is not None:
                show_line(str(path))
    for unread in done.unread:
        messages().print(Text(f"not read: {unread.photo}: {unread.reason}", style="yellow"))
    if done.unread:
        raise typer.Exit(SOME_UNREAD)


@commands.command("simulate", epilog=_SIMULATE_EXAMPLES)
def simulate_(
    run: Annotated[Path, typer.Argument(help="The folder that was printed, or its sheet.json.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the photographs.")],
    camera: Annotated[
        str, typer.Option(help=f"Cameras, joined by commas: {', '.join(PRESETS)}. The settings are those of table 5.")
    ] = "setting1,setting2,setting3",
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting with its values, such as tilt=0,20,40. May be given several times."),
    ] = None,
    pages: Annotated[int | None, typer.Option(help="Number of pages to take, from the first; all by default.")] = None,
    seed: Seed = 0,
) -> None:
    """Photograph the printed sheet with a simulated printer and camera, to rehearse the test or to vary one setting."""
    cameras = sweep({name: preset(name) for name in split_names(camera)}, change or [])
    checked("pages", pages, Count | None)
    with progress_bar() as progress:
        files = simulate(read_sheets(run), cameras, out, seed=seed, pages=pages, progress=progress)
    show_line(f"{len(files)} simulated photograph{'s' * (len(files) != 1)}: {out}")
    sources = [item.source for sheet in read_sheets(run) for item in sheet.prints if item.source]
    model = ",".join(sources[0].split("+")) if sources else "resnet18"
    show_line(f"Next: whorl physical score {out} --run {run} --model {model}", style="dim")


def _default_folder(run: Path) -> Path:
    folder = run if run.is_dir() else run.parent
    # A folder of labelled images would take a folder in it for a class.
    return folder / "physical" if (folder / "manifest.json").is_file() else Path("physical")


def _views(text: str) -> tuple[View, ...]:
    chosen = text.strip().lower().replace("-", " ")
    for view in VIEWS:
        if chosen == view:
            return (view,)
    if chosen != "both":
        raise WhorlError(f"--view must be as-seen, rectified or both; got {text!r}.")
    return VIEWS


def _scale_one(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        plain = text.lower()
        if plain not in ("page", "image"):
            raise WhorlError(f"--scale-one must be page, image, or pixels for each millimetre; got {text!r}.") from None
        return plain


def _show(done: Scored) -> None:
    console = output()
    read = done.photos - len(done.unread)
    console.print(f"{read} of {done.photos} photographs read, {len(done.captures)} images identified", style="bold")
    if done.partly:
        console.print(f"{done.partly} more are only partly visible, and left out.")
    for name in done.unbalanced:
        console.print(Text(f"no patch strip found, so colours are not corrected: {name}"))
    if not done.captures:
        return
    columns = ("n", "recognised", "success rate", "95% interval over prints", "of")
    shown = table("images", "view", "network", *columns, names=3)
    for line in summarise(done):
        counts = line.counts
        found = rate(line.images)
        defined = line.version != CLEAN and not math.isnan(counts.rate)
        of = f"{found.n} captures of {found.images} prints{', few' * found.few}"
        rates = (percent(counts.rate), percent_interval(found.interval), of) if defined else ("–", "–", "–")
        shown.add_row(line.version, line.view, line.target, str(counts.n), percent(counts.accuracy), *rates)
    console.print(shown)
