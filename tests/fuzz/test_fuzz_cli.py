"""The command line: exit code 0 with results, or 2 with one readable sentence; 1 for a gate that failed alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example
from hypothesis import strategies as st

from cli.invoking import invoke
from cli.toy_networks import Broken
from conftest import CLASSES, random_images, small_net
from fuzz.harness import Verdict, fuzz, hold
from fuzz.values import fraction
from runs.declaring import SMALL, save_toy_images
from whorl.data import save_image

FAMILY = "command line"
SMALL_TOO = "python:cli.toy_networks:oddly_named"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled images, and adversarial ones beside them."""
    root = tmp_path_factory.mktemp("cli")
    save_toy_images(root / "data", 3)
    shutil.copytree(root / "data", root / "adv")
    return root


# What each option may be, and whether it is then all right. None leaves it out.
Table = dict[str, list[tuple[str | None, bool]]]
ATTACK: Table = {
    "name": [
        ("fgsm", True),
        ("FGSM", True),
        ("pgd", True),
        ("fgms", False),
        ("", False),
        ("a\x1b[31m", False),
        (":", False),
    ],
    "--model": [
        (SMALL, True),
        (None, False),
        ("", False),
        ("nosuch", False),
        ("python:nosuch:x", False),
        (f"{SMALL},{SMALL_TOO}", True),
        ("python:", False),
        ("python:cli.toy_networks:none", False),
        ("file:none.pth", False),
        ("onnx:none.onnx", False),
        ("what:ever", False),
    ],
    "--eps": [
        (None, True),
        ("8/255", True),
        ("0.03", True),
        ("16", False),
        ("x", False),
        ("-1/255", False),
        ("nan", False),
        ("1/0", False),
        ("1e999999999", False),
    ],
    "--steps": [("1", True), ("2", True), ("0", False), ("-1", False), ("1.5", False), ("x", False), ("9" * 30, False)],
    "--alpha": [(None, True), ("2/255", True), ("0.01", True), ("x", False), ("1/0", False), ("-1", False)],
    "--momentum": [(None, True), ("0.9", True), ("0", True), ("-1", False), ("nan", False), ("x", False)],
    "--loss": [(None, True), ("margin", True), ("ce", True), ("", False), ("hinge", False), ("1/2", False)],
    "--set": [
        (None, True),
        ("pace=false", False),
        ("random_start=true", True),
        ("random_start=yes", False),
        ("chunk=2", True),
        ("chunk=[2", False),
        ("early_stop", False),
        ("=1", False),
        ("stepz=1", False),
        ("steps=1", False),  # given twice, for --steps is there
        ("estimator.kernel_size=15", False),
        ("input=[{type = 'Mirror'}]", True),
        ("a.b.c=1", False),
        ("chunk=" + "9" * 5000, False),
        ("input=" + "[" * 3000, False),
        ("\x1b[31m=1", False),
    ],
    "--norm": [(None, True), ("linf", True), ("l2", True), ("l1", False), ("2", False), ("", False)],
    "--estimator": [
        (None, True),
        ("none", True),
        ("ti", True),
        ("ai:0.7", True),
        ("ai:x", False),
        ("xx", False),
        ("ai:-1", False),
        ("ai:nan", False),
    ],
    "--limit": [("2", True), (None, True), ("0", False), ("-1", False), ("x", False)],
    "--size": [(None, True), ("18", True), ("0", False), ("-3", False), ("1000000", False)],
    "--seed": [(None, True), ("-5", True), (str(2**80), True), ("1.5", False), ("x", False)],
    "--batch-size": [(None, True), ("1", True), ("0", False), ("-1", False)],
    "--device": [("cpu", True), ("cuda:99", False), ("gpu", False), ("", False), ("meta", False)],
    "--target-class": [(None, True), ("3", True), ("-1", False), ("99999", False)],
    "--data": [("data", True), ("none", False), ("file.txt", False), ("empty", False)],
}
EVALUATE: Table = {
    "--model": [(SMALL, True), ("nosuch", False), ("", False)],
    "--angles": [
        (None, True),
        ("0,30", True),
        ("nan", False),
        ("x", False),
        ("1e300", False),
        (",", False),
        ("0:30", False),
    ],
    "--scales": [(None, True), ("1", True), ("0", False), ("-1", False), ("inf", False)],
    "--shifts": [(None, True), ("0", True), ("a", False)],
    "--defense": [(None, True), ("none,bitdepth", True), ("jpg", False)],
    "--limit": [(None, True), ("0", False)],
    "--fail-above": [(None, True), ("50", True), ("101", False), ("nan", False), ("-1", False), ("x", False)],
    "--device": [("cpu", True), ("tpu", False)],
    "--seed": [(None, True), ("x", False)],
    "--batch-size": [("2", True), ("0", False)],
}


def options(table: Table, chosen: dict[str, int], root: Path) -> tuple[list[str], bool]:
    """The words of a command, and whether all of them are right."""
    words, good = [], True
    for option, values in table.items():
        value, fine = values[chosen.get(option, 0)]
        good = good and fine
        if option == "--data" and value is not None:
            value = str(root / value)
        if value is not None:
            words += [value] if option == "name" else [f"{option}={value}"]
    return words, good


def faults(table: Table, most: int) -> st.SearchStrategy[dict[str, int]]:
    """Some options changed; the others as they are first in the table."""
    each = [(option, place) for option, values in table.items() for place in range(len(values))]
    return st.lists(st.sampled_from(each), max_size=most, unique_by=lambda one: one[0]).map(dict)


def attack_words(root: Path, chosen: dict[str, int]) -> tuple[list[str], bool]:
    (root / "empty").mkdir(exist_ok=True)
    (root / "file.txt").write_text("x")
    words, good = options(ATTACK, chosen, root)
    shutil.rmtree(root / "run", ignore_errors=True)
    return ["attack", *words, f"--out={root / 'run'}"], good


EACH_ATTACK = [(option, place) for option, values in ATTACK.items() for place in range(len(values))]
EACH_EVALUATE = [(option, place) for option, values in EVALUATE.items() for place in range(len(values))]


@pytest.mark.parametrize(("option", "which"), EACH_ATTACK, ids=[f"{o} {ATTACK[o][i][0]!r:.20}" for o, i in EACH_ATTACK])
def test_an_option_of_attack(place: Path, option: str, which: int) -> None:
    words, good = attack_words(place, {option: which})
    hold(words, "works" if good else "error")


@pytest.mark.parametrize(
    ("option", "which"), EACH_EVALUATE, ids=[f"{o} {EVALUATE[o][i][0]!r:.20}" for o, i in EACH_EVALUATE]
)
def test_an_option_of_evaluate(place: Path, option: str, which: int) -> None:
    words, good = options(EVALUATE, {option: which}, place)
    hold(["evaluate", str(place / "data"), str(place / "adv"), *words], "works" if good else "error", gate=True)


@fuzz(0.05, chosen=faults(ATTACK, 4))
def test_attack(place: Path, chosen: dict[str, int]) -> None:
    words, good = attack_words(place, chosen)
    # Several networks and a target class, an ensemble and an estimator: all of that goes together.
    hold(words, "works" if good else "error")


@fuzz(0.04, chosen=faults(EVALUATE, 3))
def test_evaluate(place: Path, chosen: dict[str, int]) -> None:
    words, good = options(EVALUATE, chosen, place)
    hold(["evaluate", str(place / "data"), str(place / "adv"), *words], "works" if good else "error", gate=True)


@fuzz(
    0.05,
    text=st.one_of(st.text(max_size=12), st.from_regex(r"[0-9]{0,3}[./e-]?[0-9]{0,3}(/[0-9]{0,3})?", fullmatch=True)),
)
def test_eps(place: Path, text: str) -> None:
    meant = fraction(text)
    good = meant is not None and 0 <= meant <= 1 and not (0 < meant < 1e-300)
    words, _ = attack_words(place, {})
    # An unknown model stops it before anything is crafted; what is said of eps is said before that.
    words = [word for word in words if not word.startswith("--eps")] + [f"--eps={text}"]
    hold([word if not word.startswith("--model") else "--model=nosuch" for word in words], "error")
    if good:
        result = invoke(*[word if not word.startswith("--model") else "--model=nosuch" for word in words])
        assert "unknown model" in result.stderr, result.stderr


words = st.one_of(
    st.sampled_from(
        [
            "--out",
            "--model",
            SMALL,
            "--help",
            "-h",
            "--json",
            "--",
            "-",
            "",
            "fgsm",
            "--eps",
            "8/255",
            "--nosuch",
            "data",
        ]
    ),
    st.text(max_size=6),
)
COMMANDS = (
    "attack",
    "evaluate",
    "gate",
    "run",
    "paper",
    "harden",
    "analyze",
    "physical",
    "models",
    "attacks",
    "defenses",
    "nosuch",
    "",
)


@example(command="attack", rest=["--out", "\x00"])  # pydantic's words came through
@fuzz(0.05, command=st.sampled_from(COMMANDS), rest=st.lists(words, max_size=4))
def test_any_words(tmp_path_factory: pytest.TempPathFactory, command: str, rest: list[str]) -> None:
    if command == "paper" and not rest:
        return  # lists what there is
    here = tmp_path_factory.mktemp("words", numbered=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        hold([command, *rest], "either", gate=command in ("evaluate", "gate"))


# ---------------------------------------------------------------------------------------------------------------------
# Where things are written


def test_out_through_a_link(place: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.csv"
    real.write_text("before")
    (tmp_path / "link.csv").symlink_to(real)
    evaluate = ["evaluate", str(place / "data"), str(place / "adv"), f"--model={SMALL}", "--device=cpu", "--angles=0"]
    hold([*evaluate, f"--out={tmp_path / 'link.csv'}"], "works")
    assert (tmp_path / "link.csv").is_symlink()
    assert real.read_text().startswith("attack,")


@pytest.mark.parametrize("kind", ["device", "fifo", "folder", "below a file", "not writable"])
def test_out_where_nothing_can_be_written(place: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    places: dict[str, Path] = {
        "device": Path("/dev/null"),
        "fifo": tmp_path / "fifo",
        "folder": tmp_path,
        "below a file": tmp_path / "file" / "out.csv",
        "not writable": Path("/proc/out.csv"),
    }
    evaluate = ["evaluate", str(place / "data"), str(place / "adv"), f"--model={SMALL}", "--device=cpu", "--angles=0"]
    hold([*evaluate, f"--out={places[kind]}"], "error")
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "fifo").is_fifo()


BROKEN: list[tuple[str, Verdict]] = [
    ("NaN", "error"),
    ("infinity", "error"),
    ("shape", "error"),
    ("changing classes", "error"),
]


@pytest.mark.parametrize("kind", Broken.KINDS)
def test_a_broken_network_passes_no_gate(place: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("WHORL_TEST_BROKEN", kind)
    evaluate = ["evaluate", str(place / "data"), str(place / "adv"), "--device=cpu", "--fail-above=100"]
    hold([*evaluate, "--model=python:cli.toy_networks:broken"], "error")


def test_classes_that_are_not_the_networks(tmp_path: Path) -> None:
    """A label beyond the network's classes, and a network that recognises none of the images."""
    for label in ("999", "n01440764"):
        save_image(tmp_path / label / "data" / label / "a.png", random_images(1)[0])
        where = [f"--data={tmp_path / label / 'data'}", f"--out={tmp_path / label / 'run'}"]
        hold(["attack", "fgsm", f"--model={SMALL}", *where], "error" if label == "999" else "either")


def test_a_source_that_recognises_none_of_the_images(tmp_path: Path) -> None:
    """As when labels of one set of classes are held against a network of another."""
    x = random_images(3)
    for place, label in enumerate(small_net()(x).argmax(1).tolist()):
        save_image(tmp_path / "data" / str((label + 1) % CLASSES) / f"{place}.png", x[place])
    where = [f"--data={tmp_path / 'data'}", f"--out={tmp_path / 'run'}"]
    hold(["attack", "fgsm", f"--model={SMALL}", *where], "error")


def test_an_onnx_network_has_no_gradient(place: Path, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no graph")
    where = [f"--data={place / 'data'}", f"--out={tmp_path / 'run'}"]
    hold(["attack", "fgsm", f"--model=onnx:{tmp_path / 'net.onnx'}", *where], "error")


def test_run_with_a_bad_file(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    cases: list[Any] = [b"", b"name = 3", b"\xff", b"[" * 100_000, b'name = "a"\nattacks = []']
    for content in cases:
        file.write_bytes(content)
        hold(["run", str(file), f"--out={tmp_path / 'run'}"], "error")
    hold(["run", str(tmp_path)], "error")
    hold(["run", str(tmp_path / "none.toml")], "error")
