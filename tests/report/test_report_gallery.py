"""Galleries show what the network really says, and choose the same images every time."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from report.made_up import small_classifier, small_gallery
from whorl import WhorlError
from whorl.evaluation import PAPER_POSES, Outcomes, Pose
from whorl.report import gallery, save_gallery
from whorl.report.charts import FOOLED, RECOGNISED
from whorl.report.export import FRAME, GAP, GUTTER, MARGIN
from whorl.report.export import SIDE as TILE
from whorl.report.gallery import SIDE, Example, Gallery, Tile, TileRow, data_uri, recognised_first, to_image


def opened(uri: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as image:
        return np.array(image.convert("RGB")).astype(int)


def plain(red: float, green: float, blue: float, side: int = 24) -> torch.Tensor:
    return torch.tensor([red, green, blue]).view(1, 3, 1, 1).expand(1, 3, side, side).clone()


def test_every_version_in_every_pose() -> None:
    shown = small_gallery()
    poses = ("as it is", "rotation 30°", "scaling 1.5", "mix 30°, 1.5, shift 20")
    assert shown.columns[:4] == poses
    assert [column.split()[0] for column in shown.columns[4:]] == ["perturbation", "centre"]
    assert shown.title == "Crafted on net-a, evaluated on net-b"
    for example in shown.examples:
        assert [row.name for row in example.rows] == ["clean", "dim", "ai-dim"]
        assert example.truth == "cat"
        for row in example.rows:
            assert len(row.tiles) == len(shown.columns)
            assert all(tile is not None and tile.fooled is not None for tile in row.tiles[:4])
            change, centre = row.tiles[4:]
            assert (change is None) == (centre is None) == (row.name == "clean")


def test_answers_are_the_networks_own() -> None:
    clf = small_classifier()
    x = plain(0.5, 0.4, 0.3)
    adversarial = {"weak": x + 0.01, "strong": plain(0.42, 0.48, 0.3)}
    shown = gallery(clf, x, adversarial, torch.tensor([0]), ["a"], poses={"half": Pose(scale=0.5)})
    for row, image in zip(shown.examples[0].rows, (x, adversarial["weak"], adversarial["strong"]), strict=True):
        rounded = (image * 255).round() / 255 if row.name != "clean" else image
        p = clf(Pose(scale=0.5).apply(rounded)).softmax(1)[0]
        tile = row.tiles[0]
        assert tile is not None
        assert tile.probability == pytest.approx(float(p.max()))
        assert tile.caption == ("cat", "dog", "owl")[int(p.argmax())]
        assert tile.fooled == (int(p.argmax()) != 0)
    tiles = [row.tiles[0] for row in shown.examples[0].rows]
    assert [tile.fooled for tile in tiles if tile] == [False, False, True]


def test_shown_are_the_first_recognised_images() -> None:
    red, green = plain(0.5, 0.4, 0.3), plain(0.4, 0.5, 0.3)
    x = torch.cat([green, red, red, red])  # the first is not recognised at all
    adversarial = {"weak": torch.cat([green, red, green, red]), "strong": torch.cat([green, red, green, green])}
    y, ids = torch.zeros(4, dtype=torch.long), ["unrecognised", "neither", "both", "strong alone"]
    shown = gallery(small_classifier(), x, adversarial, y, ids, count=2, poses={"as it is": Pose()})
    assert [example.id for example in shown.examples] == ["neither", "both"]
    assert "the first whose clean version net-b recognises in every pose shown" in shown.about


def test_batches_make_no_difference() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(5, 3, 24, 24, generator=generator)
    adversarial = {"a": (x + 0.05).clamp(0, 1), "b": (x - 0.05).clamp(0, 1)}
    args = (small_classifier(), x, adversarial, torch.zeros(5, dtype=torch.long), list("abcde"))
    assert gallery(*args, batch_size=2) == gallery(*args, batch_size=5)


def test_a_change_of_the_bound_is_black_or_white_and_none_is_grey() -> None:
    x = plain(0.5, 0.5, 0.5, side=48)
    changed = x.clone()
    changed[..., :24, :] += 16 / 255
    changed[..., 24:, :24] -= 16 / 255
    shown = gallery(small_classifier(), x, {"a": changed}, torch.tensor([0]), ["a"], eps=16 / 255)
    assert shown.columns[-2:] == ("perturbation ×8", "centre ×3")
    for tile in shown.examples[0].rows[1].tiles[-2:]:
        assert tile is not None
        levels = opened(tile.uri)  # lossy, and the edges are blurred
        assert levels[4:20].mean() > 245
        assert levels[30:, 4:20].mean() < 10
        assert abs(levels[30:, 30:].mean() - 128) < 10


def test_without_a_bound_the_largest_change_takes_its_place() -> None:
    grey = 100 / 255
    x = plain(grey, grey, grey)
    shown = gallery(small_classifier(), x, {"a": x + 8 / 255}, torch.tensor([0]), ["a"])
    assert shown.columns[-2] == "perturbation ×16"
    same = gallery(small_classifier(), x, {"a": x}, torch.tensor([0]), ["a"])
    assert float(same.columns[-2].partition("×")[2]) > 16


def test_files_are_small() -> None:
    assert opened(data_uri(to_image(torch.rand(3, 640, 900)))).shape == (round(SIDE * 640 / 900), SIDE, 3)
    assert opened(data_uri(to_image(torch.rand(3, 50, 60)))).shape == (50, 60, 3)
    levels = opened(data_uri(to_image(plain(0.2, 0.4, 0.6)[0])))
    assert np.abs(levels.mean((0, 1)) - np.array([51, 102, 153])).max() < 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.rand(3, 24, 24)}, r"images must be \(N, 3, H, W\)"),
        ({"adversarial": {}}, "at least one attack"),
        ({"poses": {}}, "at least one attack and one pose"),
        ({"adversarial": {"clean": torch.rand(2, 3, 24, 24)}}, "may be called 'clean'"),
        ({"adversarial": {"a": torch.rand(1, 3, 24, 24)}}, "images of 'a' must match x"),
        ({"ids": ["a"]}, "a label and an id for each of 2"),
        ({"y": torch.tensor([0])}, "a label and an id for each of 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    x = torch.rand(2, 3, 24, 24)
    given: dict[str, object] = {"x": x, "adversarial": {"a": x}, "y": torch.tensor([0, 0]), "ids": ["a", "b"]} | change
    with pytest.raises(WhorlError, match=message):
        gallery(small_classifier(), **given)  # type: ignore[arg-type]


def test_the_first_recognised_images_are_shown_whatever_the_attacks_make_of_them() -> None:
    clean = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 1]]) == 1
    attacked = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0]]) == 1
    found = Outcomes(
        ids=tuple("abcd"),
        attacks=("it",),
        targets=("net",),
        poses=PAPER_POSES[:2],
        clean=clean[None],
        adversarial=attacked[None, None],
    )
    assert recognised_first(found, "net") == [1, 3, 0, 2]
    assert recognised_first(found, "net", [PAPER_POSES[1]]) == [0, 1, 3, 2]
    worse = replace(found, adversarial=~found.adversarial)
    assert recognised_first(worse, "net") == [1, 3, 0, 2]


def test_frames_of_a_sheet_tell_right_from_wrong(tmp_path: Path) -> None:
    gray = to_image(torch.full((3, 20, 20), 0.5))
    tiles = (None, Tile(image=gray, caption="a" * 99, fooled=False), Tile(image=gray, caption="b", fooled=True))
    rows = (TileRow(name="one", tiles=tiles), TileRow(name="two", tiles=(Tile(image=gray), *tiles[1:])))
    shown = Gallery(title="title", columns=("x", "y", "z"), examples=(Example(id="id", truth="cat", rows=rows),) * 2)
    [path] = save_gallery(tmp_path / "figure", shown, ["png", "svg"])
    with Image.open(path) as figure:
        first, second = (MARGIN + GUTTER + column * (TILE + GAP) for column in (1, 2))
        top = next(y for y in range(figure.height) if figure.getpixel((first + TILE // 2, y)) == hexed(RECOGNISED))
        middle = top + TILE // 2
        assert figure.getpixel((first + FRAME // 2, middle)) == hexed(RECOGNISED)
        assert figure.getpixel((second + FRAME // 2, middle)) == hexed(FOOLED)
        assert figure.getpixel((second + TILE // 2, middle)) == (128, 128, 128)
    (tmp_path / "file").touch()
    with pytest.raises(WhorlError, match="cannot write"):
        save_gallery(tmp_path / "file" / "figure", shown)


def hexed(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))
