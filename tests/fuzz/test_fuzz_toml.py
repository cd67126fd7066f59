"""Declarations in TOML: every fault is said, with its place, in one list; what is sound is read."""

from __future__ import annotations

import datetime
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from fuzz.harness import Verdict, fuzz, judge, tried
from fuzz.values import PARTS, SETTINGS, file_values, fraction, known
from whorl import runs

FAMILY = "toml"
BASE: dict[str, Any] = {
    "name": "mine",
    "sources": ["resnet18"],
    "targets": ["resnet18", "resnet18+jpeg"],
    "attacks": [{"name": "pgd", "settings": {"steps": 2}}],
    "poses": ["paper"],
    "data": {"limit": 3},
}
GOOD_NAMES = ("seed", "title", "about", "batch_size", "precision")


def written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(written(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {written(one)}" for key, one in value.items()) + "}"
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def read(folder: Path, content: dict[str, Any] | bytes) -> runs.Declaration:
    place = folder / "mine.toml"
    lines = (
        b""
        if isinstance(content, bytes)
        else "".join(f"{json.dumps(k)} = {written(v)}\n" for k, v in content.items()).encode()
    )
    place.write_bytes(content if isinstance(content, bytes) else lines)
    return runs.read_declaration(place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toml")


# Where, what is put there, and where the fault is then said to be; None where there is none.
CHANGES: list[tuple[tuple[str | int, ...], Any, str | None]] = [
    (("attacks", 0, "settings", "random_start"), "no", "attacks[0].settings.random_start"),
    (("attacks", 0, "settings", "eps"), True, "attacks[0].settings.eps"),
    (("attacks", 0, "settings", "eps"), 16, "attacks[0].settings.eps"),
    (("attacks", 0, "settings", "eps"), "16", "attacks[0].settings.eps"),
    (("attacks", 0, "settings", "eps"), "8/255", None),
    (("attacks", 0, "settings", "norm"), 2, "attacks[0].settings.norm"),
    (("attacks", 0, "settings", "alpha"), math.inf, "attacks[0].settings.alpha"),
    (("attacks", 0, "settings", "alpha"), 1e300, "attacks[0].settings.alpha"),
    (("attacks", 0, "settings", "pace"), datetime.date(2024, 1, 1), "attacks[0].settings.pace"),
    (("attacks", 0, "settings", "name"), "dim", "attacks[0].settings.name"),
    (("attacks", 0, "settings", "estimator"), "ai", "attacks[0].settings.estimator"),
    (("attacks", 0, "settings", "estimator"), {"type": "Afine"}, "attacks[0].settings.estimator"),
    (("attacks", 0, "settings", "estimator"), {"type": "AffineInvariant", "sigma": 0.7}, None),
    (
        ("attacks", 0, "settings", "input"),
        [{"type": "Gain"}, {"type": "Mirror", "probability": 2}],
        "input[1].probability",
    ),
    (("attacks", 0, "settings", "loss"), {"a": 1}, "attacks[0].settings.loss"),
    (("attacks", 0, "label"), "../up", "attacks[0].label"),
    (("attacks", 0, "sources"), [], "attacks[0].sources"),
    (("attacks", 0, "name"), "dmi", "attacks[0].name"),
    (("attacks", 0, "name"), 3, "attacks[0].name"),
    (("attacks", 0), 3, "attacks[0]"),
    (("attacks",), [], "attacks"),
    (("attacks",), "pgd", "attacks"),
    (("seed",), True, "seed"),
    (("seed",), 2**70, None),
    (("seed",), 1.0, "seed"),
    (("title",), 3, "title"),
    (("batch_size",), 0, "batch_size"),
    (("batch_size",), 10**30, "batch_size"),
    (("precision",), "half", "precision"),
    (("precision",), "bf16", None),
    (("name",), "a/b", "name"),
    (("name",), "x" * 300, "name"),
    (("colour",), "red", "colour"),
    (("a\x1b[31m",), 1, "'a\\x1b[31m'"),
    (("sources",), "resnet18", "sources"),
    (("sources",), [], "sources"),
    (("targets",), ["resnet18+jpg"], "targets"),
    (("targets",), ["resnet18", "resnet18"], "targets"),
    (("data", "limit"), True, "data.limit"),
    (("data", "limit"), -1, "data.limit"),
    (("data", "size"), 10**9, "data.size"),
    (("data", "skip_bad"), "no", "data.skip_bad"),
    (("data", "folder"), 3, "data.folder"),
    (("data", "folders"), "x", "data.folders"),
    (("poses",), [], "poses"),
    (("poses",), "paper", "poses"),
    (("poses", 0), "papr", "poses[0]"),
    (("poses", 0), 3, "poses[0]"),
    (("poses", 0), {"angles": [0, True]}, "poses[0].angles[1]"),
    (("poses", 0), {"angles": [math.nan]}, "poses[0].angles[0]"),
    (("poses", 0), {"scales": [0.0]}, "poses[0]"),
    (("poses", 0), {"angels": [1]}, "poses[0].angels"),
    (("poses", 0), {"shifts": [[1, 2, 3]]}, "poses[0].shifts[0]"),
    (("poses", 0), {"shifts": [[1, 2], 3]}, None),
    (("poses", 0), {"angles": list(range(101)), "shifts": list(range(100))}, "poses[0]"),
    (("poses", 0), {"angles": [1e300]}, "poses[0]"),
]


def changed(*which: int) -> tuple[dict[str, Any], list[str]]:
    """The sound declaration with some changes, and the places of the faults that it then has."""
    content: dict[str, Any] = json.loads(json.dumps(BASE))
    places = []
    for path, value, place in (CHANGES[i] for i in which):
        inside: Any = content
        for part in path[:-1]:
            inside = inside[part]
        inside[path[-1]] = value
        places += [] if place is None else [place]
    return content, places


def check(folder: Path, content: dict[str, Any], places: list[str]) -> None:
    _, refusal = tried(lambda: read(folder, content))
    assert (refusal is not None) == bool(places), refusal
    if "attacks[0].name" in places:  # then nobody knows what its settings should be
        places = [place for place in places if "settings" not in place and "input" not in place]
    assert all(f"{place}: " in str(refusal) for place in places), (places, refusal)


@pytest.mark.parametrize("which", range(len(CHANGES)), ids=lambda i: f"{CHANGES[i][0][-1]!r}={CHANGES[i][1]!r:.30}")
def test_listed(folder: Path, which: int) -> None:
    check(folder, *changed(which))


def _apart(which: list[int]) -> bool:
    """Whether no change is inside what another replaces, and none of them is of the whole experiment."""
    paths = [CHANGES[i][0] for i in which]
    if ("attacks", 0, "settings", "norm") in paths and ("attacks", 0, "settings", "eps") in paths:
        return False  # how large eps may be depends on the norm
    return not any(a != b and b[: len(a)] == a for a in paths for b in paths) and len(set(paths)) == len(paths)


several = st.lists(st.integers(0, len(CHANGES) - 1), min_size=2, max_size=6, unique=True).filter(_apart)


@fuzz(0.12, which=several)
def test_several_faults_are_all_said(folder: Path, which: list[int]) -> None:
    check(folder, *changed(*which))


@fuzz(0.1, which=st.sampled_from([(a, n) for a, s in SETTINGS.items() for n in s]), value=file_values)
def test_a_setting_of_an_attack(folder: Path, which: tuple[str, str], value: Any) -> None:
    attack, name = which
    allowed = SETTINGS[attack][name](value)
    if name in ("eps", "alpha") and isinstance(value, str):
        meant = fraction(value)
        read_as = None if meant is None else float(meant)
        allowed = read_as is not None and SETTINGS[attack][name](read_as)
    content = BASE | {"attacks": [{"name": attack, "settings": {name: value}}]}
    if isinstance(value, str) and not value.isprintable() and any(0xD800 <= ord(one) <= 0xDFFF for one in value):
        return
    verdict: Verdict = ("works" if allowed else "error") if known(value) else "either"
    judge(lambda: read(folder, content), verdict)


@fuzz(0.05, which=st.sampled_from([(p, n) for p, (_, s) in PARTS.items() for n in s]), value=file_values)
def test_a_setting_of_a_part(folder: Path, which: tuple[str, str], value: Any) -> None:
    part, name = which
    kind, settings = PARTS[part]
    if isinstance(value, list) or (name == "kernel_size" and isinstance(value, int) and value > 15):
        return
    content = BASE | {"attacks": [{"name": "mim", "settings": {kind: {"type": part, name: value}}}]}
    judge(lambda: read(folder, content), ("works" if settings[name](value) else "error"))


SOUND = "".join(f"{key} = {written(value)}\n" for key, value in BASE.items()).encode()
BYTES: list[tuple[str, bytes, Verdict]] = [
    ("byte-order mark", b"\xef\xbb\xbf" + SOUND, "works"),
    ("CRLF", SOUND.replace(b"\n", b"\r\n"), "works"),
    ("UTF-16", SOUND.decode().encode("utf-16"), "error"),
    ("not UTF-8", SOUND + b"title = '\xff'", "error"),
    ("NUL", SOUND + b"\x00", "error"),
    ("empty", b"", "error"),
    ("open list", SOUND + b"seed = [", "error"),
    ("twice", SOUND + b"name = 'b'", "error"),
    ("deep list", b"attacks = " + b"[" * 50_000, "error"),
    ("deep table", SOUND + b"a = " + b"{a=" * 500 + b"1" + b"}" * 500, "error"),
    ("deep key", SOUND + b"a." * 500 + b"a = 1", "error"),
    ("deep setting", SOUND.replace(b'"steps" = 2', b'"steps" = ' + b"[" * 90 + b"]" * 90), "error"),
    ("long number", SOUND + b"seed = " + b"1" * 5000, "error"),
    ("long name", SOUND.replace(b'"mine"', b'"' + b"m" * 10_000 + b'"'), "error"),
]


@pytest.mark.parametrize(("content", "verdict"), [case[1:] for case in BYTES], ids=[case[0] for case in BYTES])
def test_bytes(folder: Path, content: bytes, verdict: Verdict) -> None:
    judge(lambda: read(folder, content), verdict)


@fuzz(
    0.08,
    place=st.integers(0, len(SOUND)),
    cut=st.integers(0, 12),
    put=st.one_of(st.binary(max_size=6), st.text(max_size=6).map(lambda t: t.encode("utf-8", "replace"))),
)
def test_shuffled_bytes(folder: Path, place: int, cut: int, put: bytes) -> None:
    made = judge(lambda: read(folder, SOUND[:place] + put + SOUND[place + cut :]), "either")
    assert made is None or isinstance(made, runs.Declaration)


# Options, and the place of the fault that they make; None where there is none.
OPTIONS: list[tuple[str, str, str | None]] = [
    ("set", "data.limit=2", None),
    ("set", "data.limit = 2", None),
    ("set", "attacks.0.eps=8/255", None),
    ("set", "attacks.*.eps=8/255", None),
    ("set", "attacks.pgd.settings.eps=8/255", None),
    ("set", "attacks.0=dim", None),
    ("set", "title=", None),
    ("set", "seed=" + "1" * 5000, "seed: expected a whole number"),
    ("set", "attacks.0.eps=16", "attacks[0].settings.eps: "),
    ("set", "attacks.0.eps=inf", "attacks[0].settings.eps: "),
    ("set", "attacks.0.eps=" + "[" * 3000, "--set attacks.0.eps: "),
    ("set", "attacks.0.label=a@b", None),
    ("set", "attacks.0.label=../up", "attacks[0].label: "),
    ("set", "attacks.-1.eps=8/255", "--set attacks.-1.eps: "),
    ("set", "attacks.00000009.eps=8/255", "--set attacks.00000009.eps: "),
    ("set", "attacks.²=dim", "--set attacks.²: "),
    ("set", "poses.x=paper", "--set poses.x: "),
    ("set", "poses.1=paper", "--set poses.1: "),
    ("set", "sources.0.x=1", "--set sources.0.x: "),
    ("set", "..=1", "--set takes PATH=VALUE"),
    ("set", "", "--set takes PATH=VALUE"),
    ("set", "colour=red", "colour: unknown setting"),
    ("set", "a\x1b[31m=1", "'a\\x1b[31m': unknown setting"),
    ("sweep", "attacks.0.eps=4/255,8/255", None),
    ("sweep", "seed=0,1", None),
    ("sweep", "attacks.0.eps=", "--sweep attacks.0.eps takes values"),
    ("sweep", "attacks.0.eps=4/255,", "--sweep attacks.0.eps takes values"),
    ("sweep", "attacks.0.eps=8/255,x", "attacks[1].settings.eps: "),
    ("sweep", "attacks.0.settings={steps=1},{steps=2}", None),
    ("sweep", "attacks.0.loss=ce,'margin'", None),
    ("sweep", "attacks.0.loss=-ce,/ce", "attacks[0].settings.loss: "),
    ("sweep", "attacks.0.label=a,b", "--sweep attacks.0.label: only settings"),
    ("sweep", "attacks=pgd,dim", "--sweep attacks: only settings"),
    ("sweep", "data=1,2", "--sweep data: only settings"),
    ("sweep", "attacks.0.steps=" + ",".join(map(str, range(2000))), "--sweep: sweeps may make"),
]


def with_option(folder: Path, option: str, text: str) -> runs.Declaration:
    place = folder / "base.toml"
    place.write_bytes(SOUND)
    return runs.read_declaration(place, **{"overrides" if option == "set" else "sweeps": [text]})


@pytest.mark.parametrize(("option", "text", "place"), OPTIONS, ids=lambda one: f"{one!r:.30}")
def test_listed_options(folder: Path, option: str, text: str, place: str | None) -> None:
    _, refusal = tried(lambda: with_option(folder, option, text))
    assert (refusal is None) == (place is None), refusal
    assert place is None or place in str(refusal)


paths = st.one_of(
    st.lists(
        st.sampled_from(["attacks", "0", "*", "pgd", "settings", "eps", "data", "limit", "poses", ""]), max_size=4
    ).map(".".join),
    st.text(max_size=8),
)


@fuzz(
    0.1,
    option=st.sampled_from(["set", "sweep"]),
    path=paths,
    value=st.one_of(file_values.map(written), st.text(max_size=9)),
)
def test_any_option(folder: Path, option: str, path: str, value: str) -> None:
    made = judge(lambda: with_option(folder, option, f"{path}={value}"), "either")
    assert made is None or isinstance(made, runs.Declaration)


def test_what_is_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.toml", tmp_path / ("x" * 300), Path("a\x00b")):
        judge(partial(runs.read_declaration, place), "error")
