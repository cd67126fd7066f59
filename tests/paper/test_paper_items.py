"""Tables and figures as declarations, in both profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import reference
import whorl
from whorl import WhorlError, paper
from whorl.evaluation import PAPER_POSES, Pose
from whorl.paper.cast import cast
from whorl.paper.item import Item, with_kernel
from whorl.runs.declaration import AttackSpec

READY = [name for name in paper.names() if paper.load(name).kind not in ("queries", "photographs")]
DEFENDED = ("mobilenet_v2.ens-at", "efficientnet_lite0.ens-at", "efficientnet_lite0.alp")


def test_every_table_and_figure_is_there() -> None:
    assert paper.names() == (
        *(f"table{n}" for n in range(1, 9)),
        *(f"figure{n}" for n in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11)),
        *(f"ablation-{name}" for name in ("parts", "polar", "sigma", "size")),
    )


@pytest.mark.parametrize("name", ["table1", "Table 1", "TABLE_1", "table-1"])
def test_names_are_read_kindly(name: str) -> None:
    assert paper.load(name).name == "table1"
    assert paper.load("Ablation sigma").name == paper.load("ablation-sigma").name == "ablation-sigma"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(WhorlError, match=r"unknown table or figure 'tabel4'\. Did you mean 'table4'.*whorl paper list"):
        paper.load("tabel4")


@pytest.mark.parametrize("profile", paper.PROFILES)
@pytest.mark.parametrize("name", READY)
def test_declares_a_run(name: str, profile: str) -> None:
    item = paper.load(name)
    declared = item.declaration(profile, limit=3, seed=5, present=DEFENDED)
    assert [spec.title for spec in declared.attacks] == list(item.rows)
    assert declared.all_poses() == item.all_poses()
    assert (declared.data.folder, declared.data.limit, declared.seed) == ("samples", 3, 5)
    assert declared.data.size == {"offline": 224, "inception": 299, "paper": 299}[profile]
    known = {*whorl.model_names(), *DEFENDED}
    named = {part for name in declared.sources for part in name.split("+")}
    named |= {target.partition("+")[0] for target in declared.targets}
    assert named <= known


def test_the_poses_of_tables_1_to_4_are_the_papers() -> None:
    separate = [pose for name in ("table1", "table2", "table3") for pose in paper.load(name).all_poses()]
    assert tuple(separate) == paper.load("table4").all_poses() == PAPER_POSES


def test_tables_1_to_4_craft_the_same_images() -> None:
    declared = [paper.load(name).declaration(present=DEFENDED) for name in ("table1", "table2", "table3", "table4")]
    assert len({(one.sources, one.targets, one.data, one.seed) for one in declared}) == 1
    nine = {spec.title: spec for spec in declared[0].attacks}
    assert all(nine[spec.title] == spec for one in declared for spec in one.attacks)


@pytest.mark.parametrize("kernel", ["reference", "printed"])
@pytest.mark.parametrize("name", [name for name in READY if name not in ("ablation-sigma", "ablation-size")])
def test_affine_invariant_rows_have_the_kernel_that_was_asked_for(name: str, kernel: str) -> None:
    item = paper.load(name)
    declared = item.declaration("inception", kernel=kernel, present=DEFENDED)
    rows = [spec for spec in declared.attacks if isinstance(spec.build().estimator, whorl.AffineInvariant)]  # type: ignore[attr-defined]
    assert rows
    for spec in rows:  # said in the declaration, so that a record depends on no default
        assert spec.settings["estimator"]["sigma"] == kernel
        assert spec.build().estimator.sigma == kernel  # type: ignore[attr-defined]
    assert {"reference": "authors' code, σ = l/6", "printed": "as printed, σ = l/√3"}[kernel] in declared.title


@pytest.mark.parametrize("name", ["ablation-sigma", "ablation-size"])
def test_a_kernel_that_nothing_would_take_is_refused(name: str) -> None:
    item = paper.load(name)
    assert all("sigma" in spec.settings["estimator"] for spec in item.declaration().attacks if spec.name == "ai-dim")
    assert "kernel of" not in item.declaration().title
    with pytest.raises(WhorlError, match=f"every row of {name} says its kernel itself"):
        item.declaration(kernel="printed")
    with pytest.raises(WhorlError, match=r"unknown kernel 'print'\. Did you mean 'printed'"):
        paper.load("table1").declaration(kernel="print")


def test_the_kernel_of_the_authors_code_is_a_sixth_of_its_reach() -> None:
    for item in (paper.load("table1"), paper.load("figure7")):
        for estimator in (spec.build().estimator for spec in item.attacks if spec.name == "ai-dim"):  # type: ignore[attr-defined]
            expected = reference.gaussian(estimator.kernel_size, max(estimator.kernel_size // 2, 1) / 6)
            for kernel in (estimator.kernel, estimator.polar_kernel):
                np.testing.assert_allclose(np.outer(kernel.rows, kernel.columns), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "spec",
    [
        AttackSpec(name="dim"),
        AttackSpec(name="ti-dim"),
        AttackSpec(name="eot", settings={"samples": 3}),
        AttackSpec(name="nes"),
        AttackSpec(name="ai-best"),
        AttackSpec(name="ri-dim"),
        AttackSpec(name="ai-dim", settings={"estimator": {"type": "AffineInvariant", "sigma": 1.7}}),
        AttackSpec(name="dim", settings={"estimator": {"type": "PolarGridInvariant", "sigma": 0.7}}),
    ],
    ids=lambda spec: spec.name,
)
def test_attacks_that_have_a_kernel_of_their_own_or_none_stay(spec: AttackSpec) -> None:
    assert with_kernel(spec, "printed") is spec


def test_other_settings_stay_beside_the_kernel() -> None:
    table = {"type": "AffineInvariant", "scaling": False}
    spec = AttackSpec(name="ai-dim", label="mine", settings={"steps": 3, "estimator": table})
    made = with_kernel(spec)
    assert (made.title, made.settings["steps"]) == ("mine", 3)
    assert made.build() == whorl.attack(
        "ai-dim", steps=3, estimator=whorl.AffineInvariant(sigma="reference", scaling=False)
    )
    assert "sigma" not in table


def test_offline_columns_come_from_the_defended_networks_that_are_there() -> None:
    declared = paper.load("table6").declaration(present=("resnet18", *DEFENDED))
    assert declared.targets[:3] == DEFENDED
    assert declared.targets[3:] == tuple(
        f"efficientnet_lite0+{defense}" for defense in ("jpeg", "bitdepth", "resize-pad", "randmix")
    )
    assert declared.sources == ("resnet18", "resnet18+mobilenet_v2+efficientnet_lite1")


def test_a_missing_defended_network_drops_its_column_and_says_so() -> None:
    declared = paper.load("table6").declaration(present=("resnet18", "efficientnet_lite0.alp"))
    assert declared.targets[0] == "efficientnet_lite0.alp"
    assert not any("ens-at" in target for target in declared.targets)
    assert "Ens-AT is left out: no network called *.ens-at is there." in declared.about
    assert "ALP is left out" not in declared.about


def test_the_paper_profile_says_what_it_cannot_have() -> None:
    about = paper.load("table6").declaration("paper").about
    assert "ALP is left out" in about
    assert "timm has no Res-v2-152" in about
    assert "the paper's, by its platform, is ens4_adv_inception_v3" in about


def test_the_inception_profile_has_the_papers_network_and_never_one_that_was_attacked_behind_a_defence() -> None:
    declared = paper.load("table8").declaration("inception", present=DEFENDED)
    assert declared.sources == ("inception_v3",)
    assert declared.targets[0] == "inception_v3"
    for name in ("table6", "table7"):
        who = cast(paper.load(name), paper.load_profile("inception"), present=DEFENDED)
        attacked = {part for _, source in who.sources for part in source.split("+")}
        assert attacked.isdisjoint({target.partition("+")[0].partition(".")[0] for _, target in who.targets})


def test_rows_beside_the_papers_are_run_where_they_are_asked_for() -> None:
    item = paper.load("table1")
    assert [spec.title for spec in item.declaration().attacks] == list(item.rows)
    everything = [spec.title for spec in item.declaration(beside=True).attacks]
    assert everything == [*item.rows, "ri-fgsm", "ri-pgd", "ri-mim", "ri-dim", "ai-best", "eot-adam"]
    some = item.declaration(attacks=["eot", "ai-dim", "eot-adam", "ri-dim"]).attacks
    assert [spec.title for spec in some] == ["ai-dim", "eot", "ri-dim", "eot-adam"]
    made = {spec.title: spec.build() for spec in some}
    assert made["ri-dim"] == whorl.attack("ri-dim")
    assert made["eot-adam"] == whorl.attack("eot", optimizer="adam")
    assert made["eot"] == whorl.attack("eot")
    with pytest.raises(ValidationError, match="must have other names"):
        Item.model_validate(_altered(beside=("ai-dim",)))


def test_who_stands_for_whom_is_told() -> None:
    assert "Inc-v3 → resnet18. Inc-v4 → mobilenet_v2, efficientnet_lite0." in paper.load("table1").declaration().about


def test_surfaces_pass_through_their_cuts() -> None:
    surfaces = [paper.load(name) for name in READY if paper.load(name).kind == "surface"]
    assert len(surfaces) == 4
    for item in surfaces:
        assert len(item.cuts) == 4
        angles, scales = ({pose.angle for pose in item.all_poses()}, {pose.scale for pose in item.all_poses()})
        assert all(cut.scale in scales if cut.angle is None else cut.angle in angles for cut in item.cuts)


def test_galleries_show_the_four_transforms() -> None:
    galleries = [paper.load(name) for name in READY if paper.load(name).kind == "gallery"]
    assert {item.rows for item in galleries} == {(base, f"ai-{base}") for base in ("fgsm", "pgd", "mim", "dim")}
    mix = Pose(angle=30, scale=1.5, shift=(20, 20))
    assert all(item.all_poses() == (Pose(), Pose(angle=30), Pose(scale=1.5), mix) for item in galleries)


def test_rows_can_be_chosen() -> None:
    item = paper.load("table1")
    assert [spec.title for spec in item.declaration(attacks=["AI-DIM", "dim"]).attacks] == ["dim", "ai-dim"]
    assert "eot" not in [spec.title for spec in item.declaration(without=["eot"]).attacks]
    with pytest.raises(WhorlError, match=r"unknown row 'ti-dim'\. Did you mean 'ai-dim'"):
        item.declaration(attacks=["ti-dim"])
    with pytest.raises(WhorlError, match="no row of table1 is left"):
        item.declaration(attacks=["eot"], without=["eot"])


def test_quick_is_another_attack_with_another_name() -> None:
    full, quick = (paper.load("table4").declaration(quick=quick).attacks[0] for quick in (False, True))
    assert (full.title, quick.title) == ("eot", "eot-quick")
    assert full.build() == whorl.attack("eot")
    assert quick.build() == whorl.attack("eot", samples=10, steps=10)


def test_a_table_of_queries_is_no_declaration() -> None:
    with pytest.raises(WhorlError, match=r"table7 counts queries.*whorl\.paper\.reproduce"):
        paper.load("table7").declaration()


def test_a_profile_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[networks]\nwhite = ["a"]\nblack = ["b"]\n')
    declared = paper.load("table1").declaration(file)
    assert (declared.sources, declared.targets, declared.data.size) == (("a",), ("a", "b"), None)
    assert "Ens-AT is left out: profile mine has nothing for it." in declared.about


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = ", "is not TOML"),
        ('name = "mine"', "networks: missing"),
        ('name = "mine"\ncolour = 1\n[networks]', "colour: unknown setting"),
        ('name = "mine"\n[networks]\nblack = ["b"]', "table1 has no source in profile mine"),
        ('name = "mine"\n[networks]\nwhite = ["a", "b"]', "white is a source and needs one network"),
        ('name = "mine"\nown = ["white"]\n[networks]\nwhite = ["*.a"]', "white must name one network, the paper's"),
        ('name = "mine"\nown = ["black"]\n[networks]\nwhite = ["a"]', "black must name one network, the paper's"),
    ],
)
def test_a_bad_profile_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(WhorlError, match=problem):
        paper.load("table1").declaration(file)


def test_an_unknown_profile_gets_the_nearest() -> None:
    with pytest.raises(WhorlError, match=r"unknown profile 'ofline'\. Did you mean 'offline'"):
        paper.load_profile("ofline")
    with pytest.raises(WhorlError, match="cannot be read"):
        paper.load_profile("nowhere.toml")


def _altered(**changes: object) -> dict[str, object]:
    return paper.load("table3").model_dump() | changes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"poses": ()}, "either poses or a grid"),
        ({"orderings": (("ai-dim", "ti-dim"),)}, "names a row that is not there"),
        ({"printed": {"black": {}}}, "printed figures are of"),
        ({"printed": {"white": {"fgsm": ((1.0, 2.0, 3.0),) * 2}}}, "printed rows are"),
        ({"poses": ({"label": "one"},)}, "must have 1 groups of 3"),
        ({"colour": 1}, "Extra inputs"),
    ],
)
def test_an_item_must_fit_together(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Item.model_validate(_altered(**changes))
