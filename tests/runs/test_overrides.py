"""Overrides and sweeps: paths, values, labels, and every fault in one list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.invoking import invoke
from runs.declaring import OTHER, SMALL, made, save_toy_images, table
from whorl import WhorlError, runs
from whorl.errors import SettingsError
from whorl.runs.overrides import MOST_SWEPT, overridden, parse_override, parse_value, settings_of

FILE = """
name = "mine"
sources = ["resnet18"]
attacks = ["dim", {name = "ai-dim", settings = {eps = "8/255"}}, {name = "dim", label = "narrow"}]
targets = ["resnet18", "resnet18+jpeg"]
poses = ["paper", {angles = [0, 30]}]
[data]
folder = "photos"
limit = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "there" / "mine.toml"
    place.parent.mkdir()
    place.write_text(FILE)
    return place


def test_values_are_those_of_toml_and_fractions_and_words() -> None:
    cases: dict[str, Any] = {
        "8/255": 8 / 255,
        " 1 / 2 ": 0.5,
        "50": 50,
        "-1": -1,
        "1e-3": 1e-3,
        "true": True,
        "ce": "ce",
        "": "",
        '"8/255"': "8/255",
        "'a, b'": "a, b",
        "[0, [1, 2]]": [0, [1, 2]],
        '{type = "Gain", most = 2}': {"type": "Gain", "most": 2},
        "1/0": "1/0",
        "a\nb = 2": "a\nb = 2",
        "2024-01-01T00:00": parse_value("2024-01-01T00:00"),
        "photos/mine": "photos/mine",
    }
    assert {text: parse_value(text) for text in cases} == cases
    assert type(parse_value("50")) is int
    for text in ("[1, 2", "{a = }", '"open', "[" * 2000):
        with pytest.raises(SettingsError, match="must be a value as TOML writes it"):
            parse_value(text)


@given(st.recursive(st.integers(-99, 99) | st.booleans() | st.text("ab,]}", max_size=4), st.lists, max_leaves=8))
def test_lists_of_any_depth_are_read_and_split_as_they_were_written(value: Any) -> None:
    text = json.dumps(value)
    assert parse_value(text) == value
    swept = parse_override(f"a={text},1/3,{text[:0]}x", "sweep")
    assert swept.values[-3:] == (value, 1 / 3, "x")
    assert swept.texts[0] == text


def test_overrides_change_what_the_file_says(file: Path) -> None:
    declared = runs.read_declaration(
        file,
        overrides=[
            "attacks.0.eps=4/255",
            "attacks.narrow.settings.steps=3",
            "attacks.1.estimator={type = 'TranslationInvariant'}",
            "attacks.1.estimator.sigma=2",
            "data.limit=50",
            "poses.1.angles=[5]",
            "targets.1=resnet18+bitdepth",
            "title=eps at 4/255",
            "seed=7",
        ],
    )
    first, second, third = declared.attacks
    assert first.settings == {"eps": 4 / 255}
    assert second.settings == {"eps": "8/255", "estimator": {"type": "TranslationInvariant", "sigma": 2}}
    assert (third.settings, third.title) == ({"steps": 3}, "narrow")
    assert (declared.data.limit, declared.seed, declared.title) == (50, 7, "eps at 4/255")
    assert declared.targets == ("resnet18", "resnet18+bitdepth")
    assert [pose.angle for pose in declared.all_poses()][-1] == 5
    assert [spec.title for spec in declared.attacks] == ["dim", "ai-dim", "narrow"]


def test_a_folder_is_seen_from_where_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parents[1])
    assert Path(str(runs.read_declaration(file).data.folder)) == file.parent / "photos"
    named = runs.read_declaration(file, overrides=["data.folder=other"])
    assert Path(str(named.data.folder)) == file.parents[1] / "other"


def test_sweeps_make_every_combination_of_what_concerns_an_attack(file: Path) -> None:
    declared = runs.read_declaration(
        file, sweeps=["attacks.*.eps=4/255,8/255", "attacks.ai-dim.steps=5,10", "attacks.2.loss=ce,margin"]
    )
    assert [spec.title for spec in declared.attacks] == [
        *("dim@eps-4-255", "dim@eps-8-255"),
        *("ai-dim@eps-4-255@steps-5", "ai-dim@eps-4-255@steps-10"),
        *("ai-dim@eps-8-255@steps-5", "ai-dim@eps-8-255@steps-10"),
        *("narrow@eps-4-255@loss-ce", "narrow@eps-4-255@loss-margin"),
        *("narrow@eps-8-255@loss-ce", "narrow@eps-8-255@loss-margin"),
    ]
    assert declared.attacks[3].swept == {"eps": 4 / 255, "steps": 10}
    assert declared.attacks[3].settings == {"eps": 4 / 255, "steps": 10}
    again = runs.declare(**declared.model_dump(mode="json"))  # what a manifest holds
    assert again == declared


def test_the_seed_and_tables_can_be_swept(file: Path) -> None:
    swept = runs.read_declaration(
        file,
        sweeps=["seed=0,1", "attacks.0.estimator={type='AffineInvariant', sigma=0.7},{type='TranslationInvariant'}"],
    )
    first = swept.attacks[0]
    assert (first.title, first.seed) == ("dim@seed-0@estimator-1", 0)
    assert first.swept["estimator"] == "{type='AffineInvariant', sigma=0.7}"
    assert [spec.title for spec in swept.attacks[4:]] == [
        "ai-dim@seed-0",
        "ai-dim@seed-1",
        "narrow@seed-0",
        "narrow@seed-1",
    ]


def test_every_fault_is_in_one_list(file: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        runs.read_declaration(
            file,
            overrides=[
                "dta.limit=4",
                "data.limt=5",
                "attacks.7.eps=1",
                "attacks.1.epz=3",
                "limit",
                "seed=x",
                "name.a=1",
            ],
            sweeps=["data.limit=1,2", "attacks.0.eps=1/255,1/255", "attacks.0.eps=[1"],
        )
    said = str(raised.value)
    assert said.startswith(f"{file} as changed by --set and --sweep has 10 faults:")
    for line in (
        "--set attacks.7.eps: there is no attack '7'; there are 0 (dim), 1 (ai-dim), 2 (narrow), and *",
        "--set takes PATH=VALUE, such as data.limit=50; got 'limit'",
        "--set name.a: 'mine' is no table, so it has no 'a'",
        "--sweep data.limit: only settings of attacks and the seed can be swept",
        "--sweep attacks.0.eps takes values joined by commas, each once, such as 4/255,8/255; got '1/255,1/255'",
        "--sweep attacks.0.eps: expected a value as TOML writes it",
        "dta: unknown setting 'dta'. Did you mean 'data'?",
        "data.limt: unknown setting 'limt'. Did you mean 'limit'?",
        "attacks[1].settings.epz: unknown setting 'epz'. Did you mean 'eps'",
        "seed: expected a whole number, got 'x'",
    ):
        assert f"\n  {line}" in said, (line, said)


def test_too_many_combinations_are_refused() -> None:
    many = ",".join(map(str, range(1, 41)))
    _, faults = overridden({"attacks": ["dim"]}, sweeps=[f"attacks.0.steps={many}", f"attacks.0.chunk={many}"])
    assert str(faults[0]) == f"--sweep: sweeps may make {MOST_SWEPT:,} attacks at most; take fewer"


def test_settings_of_one_attack() -> None:
    assert settings_of([]) == {}
    with pytest.raises(WhorlError, match="--set takes PATH=VALUE"):
        settings_of(["eps"])


def declaration(tmp_path: Path) -> Path:
    save_toy_images(tmp_path / "data")
    (tmp_path / "mine.toml").write_text(
        f'name = "mine"\nsources = ["{SMALL}"]\ntargets = ["{SMALL}", "{OTHER}"]\nbatch_size = 2\n'
        'poses = [{angles = [0, 30]}]\nattacks = [{name = "pgd", settings = {steps = 2}}, "fgsm"]\n'
        '[data]\nfolder = "data"\n'
    )
    return tmp_path / "mine.toml"


def test_a_swept_run_has_one_table_and_crafts_what_is_not_swept_once(tmp_path: Path) -> None:
    file, out = declaration(tmp_path), tmp_path / "run"
    sweeps = ("--sweep", "attacks.pgd.eps=4/255,12/255", "--sweep", "attacks.pgd.steps=1,2")
    words = ("run", str(file), "--device", "cpu", "--no-report", "--set", "data.limit=5", "--out", str(out))
    assert invoke(*words, *sweeps).exit_code == 0
    rows = table(out)
    assert len(rows) == (4 + 1) * 2 * 2
    assert {(row["attack"], row["eps"], row["steps"]) for row in rows} == {
        ("pgd@eps-4-255@steps-1", str(4 / 255), "1"),
        ("pgd@eps-4-255@steps-2", str(4 / 255), "2"),
        ("pgd@eps-12-255@steps-1", str(12 / 255), "1"),
        ("pgd@eps-12-255@steps-2", str(12 / 255), "2"),
        ("fgsm", str(16 / 255), ""),
    }
    assert all(row["n"] == "5" for row in rows)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["experiment"]["data"]["limit"] == 5
    assert manifest["experiment"]["attacks"][0]["swept"] == {"eps": 4 / 255, "steps": 1}
    assert "--sweep" in manifest["command"]

    alone = tmp_path / "alone"
    done = invoke(*words[:-1], str(alone), "--set", "attacks.0.eps=12/255", "--set", "attacks.0.label=x")
    assert done.exit_code == 0, done.stderr
    ours = {Path(name).name: content for name, content in made(out).items() if "/pgd@eps-12-255@steps-2/" in name}
    theirs = {Path(name).name: content for name, content in made(alone).items() if "/x/" in name}
    assert ours == theirs
    assert len(ours) == 5
    again = invoke(*words, *sweeps)  # all of it is there
    assert "0 of" in again.stdout
    with_more = invoke(*words, "--sweep", "attacks.pgd.eps=4/255,12/255,16/255", *sweeps[2:])
    assert with_more.exit_code == 0
    assert f"{2 * 3} of {(6 + 1 + 1) * 3} tasks computed" in with_more.stdout


def test_seeds_are_what_each_seed_alone_makes(tmp_path: Path) -> None:
    file = declaration(tmp_path)
    words = ("run", str(file), "--device", "cpu", "--no-report", "--set", "attacks.0.random_start=true")
    assert invoke(*words, "--sweep", "seed=0,3", "--out", str(tmp_path / "swept")).exit_code == 0
    assert invoke(*words, "--seed", "3", "--out", str(tmp_path / "three")).exit_code == 0
    swept, three = made(tmp_path / "swept"), made(tmp_path / "three")
    of = {Path(name).name: content for name, content in swept.items() if "/pgd@seed-3/" in name}
    assert of == {Path(name).name: content for name, content in three.items() if "/pgd/" in name}
    assert of != {Path(name).name: content for name, content in swept.items() if "/pgd@seed-0/" in name}
    assert {row["seed"] for row in table(tmp_path / "swept")} == {"0", "3"}


def test_shards_of_a_sweep_make_what_one_run_makes(tmp_path: Path) -> None:
    file = declaration(tmp_path)
    words = ("run", str(file), "--device", "cpu", "--no-report", "--sweep", "attacks.pgd.alpha=2/255,4/255")
    assert invoke(*words, "--out", str(tmp_path / "whole")).exit_code == 0
    for number in (1, 2):
        assert invoke(*words, "--shard", f"{number}/2", "--out", str(tmp_path / f"s{number}")).exit_code == 0
    shards = [str(tmp_path / "s1"), str(tmp_path / "s2")]
    merged = invoke("merge", *shards, "--no-report", "--device", "cpu", "--out", str(tmp_path / "merged"))
    assert merged.exit_code == 0, merged.stderr
    assert table(tmp_path / "merged") == table(tmp_path / "whole")
    assert made(tmp_path / "merged") == made(tmp_path / "whole")


def test_every_setting_of_an_attack_can_be_given(tmp_path: Path) -> None:
    data = save_toy_images(tmp_path / "data", 2)
    words = ("attack", "mim", "--model", SMALL, "--data", str(data), "--device", "cpu", "--out", str(tmp_path / "run"))
    given = ("--alpha", "2/255", "--momentum", "0.5", "--loss", "margin", "--set", "random_start=true")
    parts = ("--set", "estimator.type=TranslationInvariant", "--set", "estimator.sigma=2", "--set", "steps=2")
    done = invoke(*words, *given, *parts)
    assert done.exit_code == 0, done.stderr
    [entry] = json.loads((tmp_path / "run" / "manifest.json").read_text())["crafted"].values()
    settings = entry["settings"]
    assert (settings["alpha"], settings["momentum"], settings["loss"]) == (2 / 255, 0.5, "margin")
    assert (settings["random_start"], settings["steps"]) == (True, 2)
    assert settings["estimator"]["sigma"] == 2
    twice = invoke(*words, "--alpha", "2/255", "--set", "alpha=1/255", "--set", "stepz=2")
    assert twice.exit_code == 2
    assert "alpha is given twice, by --alpha and by --set alpha" in twice.stderr
    assert "Did you mean 'steps'" in invoke(*words, "--set", "stepz=2").stderr
