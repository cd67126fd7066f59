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
    ({"attack": ["dim"]}, "attack is not known"),
    ({"data": {"folder": "samples", "limt": 3}}, "data.limt is not known"),
    ({"attacks": ["dmi"]}, "unknown attack 'dmi'. Did you mean 'dim'"),
    ({"attacks": []}, "attacks:"),
    ({"attacks": [{"name": "dim", "settings": {"epsilon": 1}}]}, "unknown setting 'epsilon'"),
    ({"attacks": [{"name": "dim", "settings": {"eps": "16"}}]}, "Did you mean 16/255?"),
    (
        {"attacks": [{"name": "dim", "settings": {"estimator": {"type": "Afine"}}}]},
        "unknown estimator 'Afine'. Known: AffineInvariant",
    ),
    (
        {"attacks": [{"name": "dim", "settings": {"estimator": {"type": "AffineInvariant", "size": 3}}}]},
        "does not take",
    ),
    ({"attacks": [{"name": "dim", "label": "../up"}]}, "label must be letters"),
    ({"attacks": ["dim", "DIM"]}, "dim on resnet18 twice"),
    ({"targets": ["resnet18+jpg"]}, "unknown defense 'jpg'. Did you mean 'jpeg'?"),
    ({"targets": ["resnet18", "resnet18"]}, "got resnet18 twice"),
    ({"targets": ["jpeg"]}, "expected the name of a model"),
    ({"poses": ["papr"]}, "poses.0"),
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


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(WhorlError, match=r"(?s)sources is missing.*colour is not known"):
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
    with pytest.raises(WhorlError, match="loss takes no table"):
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
