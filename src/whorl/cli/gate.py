"""``whorl gate``: a test of robustness to put in front of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whorl.cli.app import app, typed
from whorl.cli.console import messages, output, progress_bar, show_files, show_json, show_line
from whorl.cli.options import LABELLED, AsJson, Device, Seed, split_models
from whorl.evaluation import Verdict
from whorl.evaluation.verdict import RATES
from whorl.files import check_writable
from whorl.gate import GateSettings
from whorl.gate import gate as run_gate

FAILED = 1
_SHOWN = 10
_EXAMPLES = """
Example: whorl gate resnet18 --data samples --fail-above 90 --out runs/gate

Example: whorl gate "file:shop.pth?arch=resnet18&num_classes=10" --data photos/ --labels classes.txt --fail-above 60

Example: whorl gate onnx:shop.onnx --data photos/ --surrogates python:shop:small --worst-case 80 --strict

Example: whorl gate python:shop:v4 --data photos/ --baseline runs/gate-v3 --fail-drop 2 --junit gate.xml
"""


@app.command(epilog=_EXAMPLES)
def gate(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Network to test, by name or address.", show_default=False)],
    data: Annotated[str, typer.Option(help=LABELLED)],
    labels: Annotated[
        Path | None, typer.Option(help="Names of the network's classes, a line each, in the order of its logits.")
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(help="Fail if a success rate, pooled over the 25 poses, is above this percentage.")
    ] = None,
    worst_case: Annotated[
        float | None, typer.Option(help="Fail if more than this percentage of the images is fooled in some pose.")
    ] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Fail if less than this percentage of the clean images is recognised.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Decide on the pessimistic end of the 95% interval, not on the rate.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="An earlier gate's folder or gate.json: fail on a significant regression.")
    ] = None,
    fail_drop: Annotated[
        float | None,
        typer.Option(help="Largest loss of the share recognised under attack, in points; 2 by default."),
    ] = None,
    surrogates: Annotated[
        str | None, typer.Option(help="More networks to craft on, joined by commas: transfer attacks.")
    ] = None,
    attack: Annotated[str, typer.Option(help="Attack to craft with.")] = "ai-best",
    eps: Annotated[str | None, typer.Option(help="Bound of the attack, such as 8/255; its own by default.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder; the same command resumes a run that was stopped.")] = Path(
        "runs/gate"
    ),
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file too.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 to this file too.")] = None,
    limit: Annotated[int | None, typer.Option(help="Number of images to take, evenly over the classes.")] = None,
    size: Annotated[
        int | None, typer.Option(help="Resize all images to this side in pixels; the network's input by default.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Attack a network, evaluate it on rotated and scaled images, and pass or fail it by limits; for CI.

    Exits with 0 if every rule holds, with 1 if one does not, and with 2 if the verdict could not be trusted: a network
    at chance, the wrong preprocessing or order of classes, too few images. The folder gets report.html, gate.json,
    gate.junit.xml and gate.sarif.
    """
    settings = GateSettings(
        model=model,
        data=data,
        labels=labels,
        limit=limit,
        size=size,
        seed=seed,
        attack=attack,
        eps=eps,
        surrogates=tuple(split_models(surrogates or "")),
        fail_above=fail_above,
        worst_case=worst_case,
        min_accuracy=min_accuracy,
        strict=strict,
        baseline=baseline,
        fail_drop=fail_drop,
    )
    copies = {what: path for what, path in {"junit": junit, "sarif": sarif}.items() if path is not None}
    for path in copies.values():
        check_writable(path)
    with progress_bar() as progress:
        done = run_gate(settings, out, device=device, command=typed(ctx), copies=copies, progress=progress)
    if as_json:
        show_json(done.summary)
    else:
        _show(done.verdict)
        show_files({**done.files, "run folder": done.done.folder})
    if not done.verdict.passed:
        raise typer.Exit(FAILED)


def _show(verdict: Verdict) -> None:
    console = output()
    clean, posed = verdict.accuracy, verdict.posed_accuracy
    about = f"{verdict.model}: clean accuracy {clean}, {posed.value:.1%} over {verdict.poses} poses"
    show_line(about, style="bold")
    for one in verdict.attacks:
        said = f"{one.subject}: {RATES[one.kind]} {one.success}; fooled in some pose: {one.worst_case}"
        show_line(said, style="dim")
    for rule in verdict.rules:
        word, style = ("passed", "green") if rule.passed else ("failed", "red")
        console.print(Text.assemble((f"{word}  ", style), f"{rule.name}  {rule.sentence}"), soft_wrap=True)
    for subject in verdict.changed:
        if lost := verdict.lost(subject):
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            shown = ", ".join(f"{name} ({count})" for name, count in list(lost.items())[:_SHOWN])
            show_line(f"{subject}: poses lost since the baseline: {shown}{more}")
    for note in verdict.notes:
        messages().print(Text(f"note: {note}", style="yellow"))
    style = "yellow" if not verdict.rules else "green" if verdict.passed else "red"
    show_line(verdict.sentence, style=f"bold {style}")
