"""From a table or figure of the paper to a declaration that can be run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whorl.errors import WhorlError, unknown_name
from whorl.paper.cast import Profile, cast, load_profile
from whorl.paper.item import KERNELS, Item, Kernel, spaced, with_kernel
from whorl.runs.declaration import AttackSpec, Declaration
from whorl.runs.images import SAMPLES, Data

QUICK_SUFFIX = "-quick"
QUICK_EOT = {"samples": 10, "steps": 10}
"""100 gradients an image instead of 2,500."""


@dataclass(frozen=True, kw_only=True)
class PaperOptions:
    """What to run of a table or figure, on what, and where.

    Attributes:
        profile: who stands for the paper's networks: "offline", "inception", "paper", a TOML file, or a profile itself.
        kernel: of affine-invariant rows that say no other: "reference" (the authors' code) or "printed" (the text).
        data: folder of labelled images, or a CSV list; the bundled samples if None.
        limit: take only the first so many.
        size: side in pixels to resize to; the profile's if None.
        seed: of all randomness.
        batch_size: images at a time.
        attacks: rows to run; all of the paper's if empty.
        without: rows to leave out.
        beside: whether to run the rows that the paper does not have, too.
        quick: whether EOT takes 100 gradients an image instead of 2,500; its row is then called ``eot-quick``.
        device: "auto", "cpu", "cuda" or "cuda:1".
        engine: "local" or "ray".
        workers: of the engine ray.
        command: what the user typed, for the manifest.
        page: whether to write an HTML report too, and of an item with an axis its curves; it needs plotly.
        figures: whether to write the report's figures as PNG and PDF too; they need a browser.
        intervals: whether the LaTeX tables show them.
    """

    profile: str | Path | Profile = "offline"
    kernel: Kernel = "reference"
    data: str | Path | None = None
    limit: int | None = None
    size: int | None = None
    seed: int = 0
    batch_size: int | None = None
    attacks: Sequence[str] = ()
    without: Sequence[str] = ()
    beside: bool = False
    quick: bool = False
    device: str = "auto"
    engine: str = "local"
    workers: int | None = None
    command: Sequence[str] = ()
    page: bool = False
    figures: bool = False
    intervals: bool = False

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise unknown_name("kernel", self.kernel, KERNELS, hint=f"Kernels: {', '.join(KERNELS)}.")

    def rows(self, item: Item) -> list[AttackSpec]:
        """The chosen rows of a table or figure, with the kernel to take; see :func:`chosen_rows`.

        Raises:
            WhorlError: a row is unknown, none is left, or another kernel is wanted where every row has its own.
        """
        if self.kernel != "reference" and not item.takes_kernel:
            raise WhorlError(f"every row of {item.name} says its kernel itself; leave kernel={self.kernel!r} out.")
        chosen = [with_kernel(spec, self.kernel) for spec in chosen_rows(item, self.attacks, self.without, self.beside)]
        return [quicker(spec) for spec in chosen] if self.quick else chosen


def declaration(
    item: Item, options: PaperOptions | None = None, *, present: Collection[str] | None = None
) -> Declaration:
    """Declare a table or figure as a run.

    Args:
        item: the table or figure.
        options: what to run of it; everything, on the bundled samples, if None.
        present: names of networks that are there; ``whorl.model_names()`` if None.

    Raises:
        WhorlError: it cannot be run yet, a row is unknown, or none is left.

    >>> from whorl.paper import load
    >>> declared = declaration(load("table3"), PaperOptions(limit=2, without=["eot"]), present=())
    >>> declared.targets, len(declared.attacks), len(declared.all_poses())
    (('resnet18', 'mobilenet_v2', 'efficientnet_lite0'), 8, 2)
    """
    if item.kind == "queries":
        raise WhorlError(f"{item.name} counts queries, which a declaration cannot say. Use whorl.paper.reproduce.")
    if item.kind == "photographs":
        raise WhorlError(f"{item.name} is photographed, which a declaration cannot say. Use whorl.paper.reproduce.")
    options = options or PaperOptions()
    chosen = load_profile(options.profile)
    who = cast(item, chosen, present)
    return Declaration(
        name=item.name,
        title=full_title(item, options.kernel),
        about=" ".join((item.about, *(f"{line}." for line in who.lines()), *who.notes)),
        seed=options.seed,
        data=Data(
            folder=SAMPLES if options.data is None else str(options.data),
            limit=options.limit,
            size=chosen.size if options.size is None else options.size,
        ).seen_from(Path.cwd()),
        sources=tuple(dict.fromkeys(name for _, name in who.sources)),
        attacks=tuple(options.rows(item)),
        targets=who.target_names,
        poses=(item.grid,) if item.grid is not None else tuple(shown.grid for shown in item.poses),
        batch_size=options.batch_size,
    )


def full_title(item: Item, kernel: Kernel = "reference") -> str:
    """Name a table or figure, with the kernel of its affine-invariant rows where they have none of their own.

    >>> from whorl.paper import load
    >>> full_title(load("table1"))
    "Table 1: Success rates under rotation (kernel of the authors' code, σ = l/6)"
    """
    said = f" ({KERNELS[kernel]})" if item.takes_kernel else ""
    return f"{spaced(item.name)}: {item.title}{said}"


def file_stem(name: str, kernel: Kernel) -> str:
    """What files are called: those of two kernels do not overwrite each other.

    >>> file_stem("table1", "reference"), file_stem("table1", "printed")
    ('table1', 'table1-printed')
    """
    return name if kernel == "reference" else f"{name}-{kernel}"


def rows_of_each(
    items: Sequence[Item], attacks: Sequence[str] = (), without: Sequence[str] = (), *, beside: bool = False
) -> list[tuple[str, ...]]:
    """Choose rows of several tables by one pair of lists: a row must be in one of them at least, not in all.

    Args:
        items: tables and figures.
        attacks: rows to run; all of the paper's if empty.
        without: rows to leave out.
        beside: whether to run the rows that the paper does not have, too.

    Returns:
        For each item, the rows to run.

    Raises:
        WhorlError: a row is in none of them, or an item has no row left.

    >>> from whorl.paper import load
    >>> rows_of_each([load("table4"), load("figure4")], without=["eot"])
    [('ai-dim',), ('dim', 'ai-dim')]
    """
    known = list(dict.fromkeys(row for item in items for row in (*item.rows, *item.rows_beside)))
    for name in (*attacks, *without):
        if name.lower() not in known:
            raise unknown_name("row", name, known, hint=f"There are: {', '.join(known)}.")
    chosen = []
    for item in items:
        there = {*item.rows, *item.rows_beside}
        own = [name for name in attacks if name.lower() in there]
        if attacks and not own:
            raise WhorlError(f"no row of {item.name} is left; it has: {', '.join(item.rows)}.")
        left = chosen_rows(item, own, [name for name in without if name.lower() in there], beside)
        chosen.append(tuple(spec.title for spec in left))
    return chosen


def row_of(label: str) -> str:
    """The paper's row that an attack of ours stands for.

    >>> row_of("eot-quick"), row_of("ai-dim")
    ('eot', 'ai-dim')
    """
    return label.removesuffix(QUICK_SUFFIX)


def not_run(item: Item, labels: Iterable[str]) -> Iterator[str]:
    """Say which rows of a table were left out, and which were run with fewer gradients.

    >>> from whorl.paper import load
    >>> next(not_run(load("table4"), ["ai-dim"]))
    'Not run: eot.'
    """
    run = list(labels)
    rows = {row_of(label) for label in run}
    missing = [row for row in item.rows if row not in rows]
    if missing:
        yield f"Not run: {', '.join(missing)}."
    if any(label.endswith(QUICK_SUFFIX) for label in run):
        yield "eot-quick is EOT with 100 gradients an image instead of 2,500: weaker, and not the paper's."
    ours = [label for label in run if row_of(label) in item.rows_beside]
    if ours:
        adam = ". eot-adam is EOT with Adam's steps instead of the gradient's sign" if "eot-adam" in ours else ""
        yield f"Ours, and not in the paper: {', '.join(ours)}{adam}."


def chosen_rows(item: Item, attacks: Sequence[str], without: Sequence[str], beside: bool = False) -> list[AttackSpec]:
    """Pick rows by name: those of ``attacks``, or all of the paper's, less those of ``without``.

    Args:
        item: a table or figure.
        attacks: rows; those that the paper does not have can be named too.
        without: rows.
        beside: whether to take all that the paper does not have besides.

    Raises:
        WhorlError: a row is unknown, or none is left.
    """
    known = (*item.rows, *item.rows_beside)
    for name in (*attacks, *without):
        if name.lower() not in known:
            raise unknown_name("row", name, known, hint=f"{item.name} has: {', '.join(known)}.")
    wanted = {name.lower() for name in attacks or item.rows}.union(item.rows_beside if beside else ())
    wanted -= {name.lower() for name in without}
    left = [spec for spec in (*item.attacks, *item.beside) if spec.title in wanted]
    if not left:
        raise WhorlError(f"no row of {item.name} is left; it has: {', '.join(item.rows)}.")
    return left


def quicker(spec: AttackSpec) -> AttackSpec:
    """Give EOT fewer gradients and another label; other attacks stay."""
    if spec.name != "eot":
        return spec
    return AttackSpec(name=spec.name, label=f"{spec.title}{QUICK_SUFFIX}", settings=spec.settings | QUICK_EOT)
