from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whorl
from whorl import WhorlError, runs
from whorl.evaluation import PAPER_POSES, Pose
from whorl.transforms import DiverseInput, InputChain, RandomAffine

GOOD: dict[str, Any] = {"name": "mine", "sources": ["resnet18"], "attacks": ["dim"], "targets": ["mobilenet_v2"]}

BAD = [
    ({"attack": ["dim"]}, "attack: unknown setting"),
    ({"data": {"folder": "samples", "limt": 3}}, "data.limt: unknown setting"),
    ({"attacks": ["dmi"]}, "unknown attack 'dmi'. Did you mean 'dim'"),
    ({"attacks": []}, "attacks:"),
    ({"attacks": [{"name": "dim", "settings": {"epsilon": 1}}]}, "unknown setting 'epsilon'"),
    (
        {"attacks": [{"name": "dim", "settings": {"eps": "16"}}]},
        "eps: expected a number in [0, 1], the range of a pixel (did you mean 16/255?), got 16",
    ),
    (
        {"attacks": [{"name": "dim", "settings": {"estimator": {"type": "Afine"}}}]},
        "unknown estimator 'Afine'. Expected one of TranslationInvariant, AffineInvariant",
    ),
    (
        {"attacks": [{"name": "dim", "settings": {"estimator": {"type": "AffineInvariant", "size": 3}}}]},
        "attacks[0].settings.estimator.size: unknown setting 'size'. Did you mean",
    ),
    ({"attacks": [{"name": "dim", "label": "../up"}]}, "attacks[0].label: expected letters"),
    ({"attacks": ["dim", "DIM"]}, "dim on resnet18 twice"),
    ({"targets": ["resnet18+jpg"]}, "unknown defense 'jpg'. Did you mean 'jpeg'?"),
    ({"targets": ["resnet18", "resnet18"]}, "got resnet18 twice"),
    ({"targets": ["jpeg"]}, "expected the name of a model"),
    ({"poses": ["papr"]}, "poses[0]: expected 'paper', or a table, got 'papr'"),
    ({"poses": [{"angles": []}]}, "angles must hold at least one value"),
    ({"poses": [{"scales": [0]}]}, "scales must be above 0"),
    ({"poses": [{"tilts": [[0, 90]]}]}, "tilts must be inside (-90, 90) degrees"),
    ({"poses": [{"blurs": [-1]}]}, "blurs must be at least 0"),
    ({"poses": [{"shear": [3]}]}, "shear"),
    ({"batch_size": 0}, "batch_size"),
    ({"seed": "zero"}, "seed"),
    ({"name": "a/b"}, "name"),
    ({"data": {"limit": 0}}, "data.limit"),
]


@pytest.mark.parametrize(("change", "said"), BAD, ids=[said for _, said in BAD])
def test_bad_declarations_name_what_is_wrong(change: dict[str, Any], said: str) -> None:
    with pytest.raises(WhorlError) as caught:
        runs.declare(**(GOOD | change))
    assert said in str(caught.value)


def toml(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(f'name = "mine"\nsources = ["resnet18"]\ntargets = ["resnet18"]\n{text}', encoding="utf-8-sig")
    return path


# A line of an attack's settings, and what its fault is called.
STRICT = [
    ('random_start = "no"', "random_start: expected true or false, got 'no'"),
    ("random_start = 1", "random_start: expected true or false, got 1"),
    ("eps = true", "eps: expected a number >= 0, or one for each image, got true"),
    ("eps = nan", "eps: expected a number >= 0, or one for each image, got nan"),
    ("steps = true", "steps: expected a whole number >= 1, got true"),
    ("steps = 2.0", "steps: expected a whole number >= 1, got 2.0"),
    ('steps = "3"', "steps: expected a whole number >= 1, got '3'"),
    ("norm = 2", "norm: expected 'linf' or 'l2', got 2"),
    ("norm = ['l2']", "norm: expected 'linf' or 'l2', got ['l2']"),
    ("alpha = inf", "alpha: expected a number above 0, got inf"),
    ("alpha = 1e300", "alpha: expected a number above 0, of a size from 1e-12 to 1e+09, got 1e+300"),
    ("chunk = 1979-05-27", "chunk: expected a whole number >= 1, got 1979-05-27"),
    ("momentum = 07:32:00", "momentum: expected a number in [0, 100], got 07:32:00"),
    ("samples = [1, [2, [3, [4]]]]", "samples: expected a whole number >= 1, got [1, [2, [3, [...]]]]"),
    ("estimator = 3", 'estimator: expected a table with a type, such as {type = "TranslationInvariant"}'),
    ("loss = {a = 1}", "loss: expected no table: only input, estimator and backward take one, got {'a': 1}"),
    ("loss = [{a = 1}]", "loss: expected no list of tables, got [{'a': 1}]"),
    ("backward = [{}]", "backward: expected one table, got [{}]"),
    ("self = 1", "self: unknown setting 'self'"),
    ("name = 'pgd'", "name: unknown setting 'name'"),
    ('"a\\u001b[31m" = 1', "'a\\x1b[31m': unknown setting"),
]


@pytest.mark.parametrize(("line", "said"), STRICT, ids=[line for line, _ in STRICT])
def test_a_setting_is_of_its_type_and_nothing_like_it(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(WhorlError) as caught:
        runs.read_declaration(toml(tmp_path, f'[[attacks]]\nname = "pgd"\n[attacks.settings]\n{line}'))
    [message] = str(caught.value).splitlines()
    assert message.startswith(f"{tmp_path / 'mine.toml'}: attacks[0].settings.{said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('sources = ["resnet18"]\nmodels = {shop = "python:"}', "models.shop: 'python:' does not say which model"),
        (
            'sources = ["resnet18"]\nmodels = {shop = "resnet18?sise=3"}',
            "models.shop: unknown setting of model: 'sise'",
        ),
        ('sources = ["+jpeg"]', "sources: expected the name of a model"),
        (
            'sources = ["resnet18"]\nattacks = [{name = "pgd", sources = ["jpeg"]}]',
            "attacks[0].sources: expected the name",
        ),
    ],
)
def test_a_network_that_cannot_be_named_has_its_place(tmp_path: Path, line: str, said: str) -> None:
    attacks = "" if "attacks" in line else 'attacks = ["pgd"]'
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ntargets = ["resnet18"]\n{line}\n{attacks}')
    with pytest.raises(WhorlError) as caught:
        runs.read_declaration(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_every_fault_of_a_file_has_a_line_of_its_own(tmp_path: Path) -> None:
    text = """
    seed = 1.5
    colour = "red"
    poses = [{angles = true, scales = [0, "x"], shifts = [[1, 2, 3]]}, "papr", {angels = [1]}]
    data = {limit = true, skip_bad = "no", folder = 3}
    attacks = [
        {name = "dmi"},
        {name = "dim", label = "a/b", sources = [], settings = {eps = "x", steps = 0, estimator = {type = "Afine"}}},
        {name = "dim", settings = {input = [{type = "Gain", lowest = 2}, {lowest = 1}]}},
    ]
    """
    with pytest.raises(WhorlError) as caught:
        runs.read_declaration(toml(tmp_path, text))
    first, *faults = str(caught.value).splitlines()
    assert first == f"{tmp_path / 'mine.toml'} has {len(faults)} faults:"
    assert [fault.split(": ")[0].strip() for fault in faults] == [
        *("seed", "data.folder", "data.limit", "data.skip_bad", "attacks[0].name", "attacks[1].label"),
        *(
            "attacks[1].settings.eps",
            "attacks[1].settings.estimator",
            "attacks[1].settings.steps",
            "attacks[1].sources",
        ),
        *("attacks[2].settings.input[0].lowest", "attacks[2].settings.input[1]"),
        *("poses[0].angles", "poses[0].scales[1]", "poses[0].shifts[0]", "poses[1]", "poses[2].angels", "colour"),
    ]


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = toml(tmp_path, 'attacks = ["dim"]')
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert runs.read_declaration(path).name == "mine"


@pytest.mark.parametrize("levels", [100, 100_000])
@pytest.mark.parametrize("brackets", ["[]", ("{a=", "}")], ids=str)
def test_deep_nesting_is_one_sentence(tmp_path: Path, levels: int, brackets: tuple[str, str]) -> None:
    opened, closed = brackets
    with pytest.raises(WhorlError) as caught:
        runs.read_declaration(toml(tmp_path, f"attacks = {opened * levels}1{closed * levels}"))
    assert len(str(caught.value)) < 400


def test_a_number_of_thousands_of_digits(tmp_path: Path) -> None:
    with pytest.raises(WhorlError, match="a number has thousands of digits"):
        runs.read_declaration(toml(tmp_path, f'attacks = ["dim"]\nseed = {"1" * 5000}'))


def test_a_grid_has_a_limit(tmp_path: Path) -> None:
    angles = list(range(101))
    with pytest.raises(
        WhorlError, match=r"poses\[0\]: a grid may have 10,000 poses at most; got 10,201, as 101 angles"
    ):
        runs.declare(**(GOOD | {"poses": [{"angles": angles, "shifts": angles}]}))
    with pytest.raises(WhorlError, match="grids may have 10,000 poses together at most; got 19,600"):
        runs.declare(**(GOOD | {"poses": [{"angles": angles[:98], "shifts": angles[:100]}] * 2}))
    assert (
        len(runs.declare(**(GOOD | {"poses": [{"angles": angles[:100], "shifts": angles[:100]}]})).all_poses())
        == 10_000
    )


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(WhorlError, match=r"(?s)sources: missing.*colour: unknown setting"):
        runs.declare(name="mine", attacks=["dim"], targets=["resnet18"], colour="red")


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        sources = ["resnet18", "resnet18+mobilenet_v2"]
        targets = ["efficientnet_lite0", "efficientnet_lite0+jpeg"]
        poses = ["paper", {angles = [0, 45]}]
        [data]
        folder = "photos"
        [[attacks]]
        name = "dim"
        [[attacks]]
        name = "ai-dim"
        label = "narrow"
        settings = {eps = "8/255", estimator = {type = "AffineInvariant", sigma = 0.7}}
        """
    )
    declared = runs.read_declaration(path)
    assert declared.data.folder == str(tmp_path / "photos")
    assert declared.all_poses() == (*PAPER_POSES, Pose(angle=45))
    assert [(spec.title, source) for spec, source in declared.versions()] == [
        ("dim", "resnet18"),
        ("dim", "resnet18+mobilenet_v2"),
        ("narrow", "resnet18"),
        ("narrow", "resnet18+mobilenet_v2"),
    ]
    built: Any = declared.attacks[1].build()
    assert (built.eps, built.estimator.sigma) == (8 / 255, 0.7)


@pytest.mark.parametrize("sigma", ["reference", "printed"])
def test_a_named_kernel_can_be_declared(sigma: Any) -> None:
    for name, own in (("ai-mim", "reference"), ("ri-dim", None)):
        spec = runs.AttackSpec(name=name, settings={"estimator": {"type": "AffineInvariant", "sigma": sigma}})
        assert spec.build() == whorl.attack(name, estimator=whorl.AffineInvariant(sigma=sigma))
        assert (spec.build() == runs.AttackSpec(name=name).build()) == (sigma == own)


def test_several_estimators_go_one_after_the_other() -> None:
    chain = [{"type": "TranslationInvariant"}, {"type": "AffineInvariant", "translation": False}]
    spec = runs.AttackSpec(name="mim", settings={"estimator": chain})
    built: Any = spec.build()
    assert [type(part).__name__ for part in built.estimator.parts] == ["TranslationInvariant", "AffineInvariant"]


def test_several_input_transforms_go_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        sources = ["resnet18"]
        targets = ["resnet18"]
        [[attacks]]
        name = "mim"
        [[attacks.settings.input]]
        type = "DiverseInput"
        [[attacks.settings.input]]
        type = "RandomAffine"
        angle = 10.0
        """
    )
    built: Any = runs.read_declaration(path).attacks[0].build()
    assert built.input == InputChain(DiverseInput(), RandomAffine(angle=10.0))
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    assert built.with_(steps=2)(net, torch.rand(2, 3, 8, 8), torch.tensor([0, 1])).shape == (2, 3, 8, 8)


def test_a_table_elsewhere_is_refused() -> None:
    with pytest.raises(WhorlError, match="expected no table: only input, estimator and backward take one"):
        runs.declare(**(GOOD | {"attacks": [{"name": "dim", "settings": {"loss": {"type": "AffineInvariant"}}}]}))


@pytest.mark.parametrize(("content", "said"), [(b"name = ", "is not TOML"), (b"\xff\xfe", "cannot be read")])
def test_files_that_are_no_declaration(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(WhorlError, match=said):
        runs.read_declaration(path)
    with pytest.raises(WhorlError, match="cannot be read"):
        runs.read_declaration(tmp_path / "none.toml")


def test_a_grid_in_a_file_may_have_every_family(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsources = ["resnet18"]\nattacks = ["dim"]\ntargets = ["resnet18"]\n'
        "[[poses]]\nshears = [-20, 20]\nstretches = [[1.2, 1.0]]\ntilts = [[30, 0], 10]\n"
        "[[poses]]\nbrightnesses = [-0.25, 0.25]\ncontrasts = [0.5]\nblurs = [2]\n"
    )
    made = runs.read_declaration(path).all_poses()
    assert len(made) == 6
    assert made[0] == Pose(shear=-20, stretch=(1.2, 1), tilt=(30, 0))
    assert made[-1] == Pose(brightness=0.25, contrast=0.5, blur=2)
