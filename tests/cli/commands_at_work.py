"""One small piece of work for each command that takes long: what is typed, and what must come out to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.invoking import invoke
from conftest import CLASSES, random_images
from paper.toys import toy_profile
from runs.declaring import OTHER, SMALL, made, save_toy_images, table
from whorl.data import save_image

COUNT, GATED = 5, 12


@dataclass(frozen=True)
class Work:
    """A command and what comes of it.

    Attributes:
        typed: the arguments, by the folder of what goes in and the folder of what comes out.
        result: all that must be the same however often it was killed, and whoever else was at work.
    """

    typed: Callable[[Path, Path], list[str]]
    result: Callable[[Path], Any]


def prepare(folder: Path) -> Path:
    """Write what the commands work on: images, adversarial ones, a declaration, and images to train on."""
    save_toy_images(folder / "data", COUNT)
    for path in sorted((folder / "data").rglob("*.png")):
        noisy = folder / "noisy" / path.relative_to(folder / "data")
        save_image(noisy, random_images(1, seed=9)[0])
    (folder / "run.toml").write_text(
        f'name = "small"\nsources = ["{SMALL}"]\ntargets = ["{SMALL}", "{OTHER}"]\nattacks = ["fgsm", "mim"]\n'
        'batch_size = 2\nposes = [{ angles = [0, 30] }]\n[data]\nfolder = "data"\n',
        encoding="utf-8",
    )
    x = random_images(3 * CLASSES, height=20, width=20)
    for i, image in enumerate(x):
        save_image(folder / "photos" / str(i % CLASSES) / f"{i}.png", image)
    save_toy_images(folder / "gated", GATED)
    toy_profile(folder)
    return folder


def photograph(given: Path) -> None:
    """Print the images, and photograph the page."""
    done = invoke("physical", "print", str(given / "data"), "--out", str(given / "sheet.pdf"))
    assert done.exit_code == 0, done.stderr
    done = invoke(*_simulate(given, given / "photographs"))
    assert done.exit_code == 0, done.stderr


def _crafted(out: Path) -> Any:
    """Images, and what the manifest says of each but for the time it took."""
    entries = json.loads((out / "manifest.json").read_text())["crafted"]
    facts = {
        name: {
            i: {key: value for key, value in fact.items() if key != "seconds"} for i, fact in entry["images"].items()
        }
        for name, entry in entries.items()
    }
    return made(out), facts


def _trained(out: Path) -> Any:
    history = json.loads((out / "manifest.json").read_text())["history"]
    kept = [{key: value for key, value in entry.items() if key != "seconds"} for entry in history]
    return (out / "weights.safetensors").read_bytes(), kept


def _attack(given: Path, out: Path) -> list[str]:
    return ["attack", "pgd", "--model", SMALL, "--data", str(given / "data"), "--out", str(out), "--batch-size", "1"]


def _query(given: Path, out: Path) -> list[str]:
    words = ["attack", "nes", "--target", SMALL, "--budget", "60", "--samples", "20", "--eps", "4/255"]
    return [*words, "--data", str(given / "data"), "--out", str(out), "--batch-size", "2"]


def _run(given: Path, out: Path) -> list[str]:
    return ["run", str(given / "run.toml"), "--out", str(out), "--no-report"]


def _gate(given: Path, out: Path) -> list[str]:
    words = ["gate", SMALL, "--data", str(given / "gated"), "--attack", "mim"]
    return [*words, "--min-accuracy", "50", "--out", str(out), "--device", "cpu"]


def _judged(out: Path) -> Any:
    files = [(out / name).read_bytes() for name in ("gate.json", "gate.junit.xml", "gate.sarif")]
    assert (out / "report.html").stat().st_size
    return made(out), table(out), files


def _evaluate(given: Path, out: Path) -> list[str]:
    words = ["evaluate", str(given / "data"), str(given / "noisy"), "--model", f"{SMALL},{OTHER}", "--angles", "0,30"]
    return [*words, "--batch-size", "1", "--out", str(out / "results.csv")]


def _harden(given: Path, out: Path) -> list[str]:
    words = ["harden", SMALL, "--data", str(given / "photos"), "--pool", OTHER, "--out", str(out), "--steps", "6"]
    return [*words, "--batch", "8", "--held-out", "4"]


def _paper(given: Path, out: Path) -> list[str]:
    words = ["paper", "table3", "--attacks", "fgsm,ai-fgsm", "--profile", str(given / "toys.toml")]
    return [*words, "--data", str(given / "data"), "--out", str(out)]


def _score(given: Path, out: Path) -> list[str]:
    words = ["physical", "score", str(given / "photographs"), "--run", str(given / "sheet.json"), "--model", SMALL]
    return [*words, "--out", str(out), "--view", "as-seen"]


def _simulate(given: Path, out: Path) -> list[str]:
    camera = ["--camera=setting2", "--set", "width=1000", "--set", "height=1400"]
    return ["physical", "simulate", str(given / "sheet.json"), *camera, "--out", str(out)]


def _error(given: Path, out: Path) -> list[str]:
    words = ["analyze", "error", SMALL, "--data", str(given / "data"), "--ranges", "0.1", "--kernels", "reference"]
    return [*words, "--draws", "8", "--out", str(out)]


def shards(given: Path) -> None:
    """Run the declaration in two shards."""
    for number in (1, 2):
        words = ("run", str(given / "run.toml"), "--shard", f"{number}/2", "--out", str(given / f"shard-{number}"))
        done = invoke(*words)
        assert done.exit_code == 0, done.stderr


def _merge(given: Path, out: Path) -> list[str]:
    return ["merge", str(given / "shard-1"), str(given / "shard-2"), "--out", str(out), "--no-report"]


def _captured(out: Path) -> Any:
    return [(out / name).read_bytes() for name in ("results.csv", "captures.csv")]


def _analysed(out: Path) -> Any:
    """The page, but for the command, which names the folder."""
    [page] = out.glob("*.md")
    return page.read_text(encoding="utf-8").replace(str(out), "OUT")


WORK = {
    "attack": Work(_attack, _crafted),
    "query": Work(_query, _crafted),
    "run": Work(_run, lambda out: (made(out), table(out))),
    "gate": Work(_gate, _judged),
    "evaluate": Work(_evaluate, lambda out: (out / "results.csv").read_bytes()),
    "harden": Work(_harden, _trained),
}


OTHER_WORK = {
    "paper": Work(_paper, lambda out: (made(out), table(out / "paper", "table3-results.csv"))),
    "score": Work(_score, _captured),
    "merge": Work(_merge, lambda out: (made(out), table(out))),
}


# They keep nothing to go on with, so they wait for nobody: whoever writes last, the files are the same.
WITHOUT_A_STORE = {
    "simulate": Work(_simulate, lambda out: {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}),
    "error": Work(_error, _analysed),
}


def leftovers(out: Path) -> list[Path]:
    """What nobody should find when a command is done: temporary files, counts of work in hand, notes of a holder."""
    unwanted = (".part", ".queries", ".holder", ".unfinished")
    return [path for path in out.rglob("*") if path.suffix in unwanted or path.name.endswith(unwanted)]
