"""One line names a model: what an address says, and how it is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whorl import WhorlError
from whorl.models.address import is_name, split_address, with_settings
from whorl.models.architectures import Input
from whorl.models.classifier import Resize
from whorl.models.sources import SOURCES, parse


def test_every_setting_is_read() -> None:
    one = parse("file:nets/shop:v2.pt?arch=resnet18&num_classes=3&size=64x48&mean=0.5,0,1&resize=bicubic&name=mine")
    assert (one.source, one.place, one.name(), one.num_classes()) == ("file", "nets/shop:v2.pt", "mine", 3)
    usual = Input(size=(224, 224), mean=(0.0,) * 3, std=(2.0,) * 3)
    expected = Input(size=(64, 48), mean=(0.5, 0.0, 1.0), std=(2.0,) * 3, resize="bicubic")
    assert one.input(usual) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("resnet18", "resnet18"),
        ("timm:resnet50.a1_in1k?size=96", "timm:resnet50.a1_in1k"),
        ("onnx:a/b+c.onnx", "b_c.onnx"),
    ],
)
def test_a_name_without_one(text: str, name: str) -> None:
    assert parse(text).name() == name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timn:resnet18", "unknown model source 'timn'"),
        ("timm:", "does not say which model"),
        ("timm:x?sise=3", "Did you mean 'size'"),
        ("resnet18?size=3", "unknown setting of model"),
    ],
)
def test_what_is_no_address(text: str, says: str) -> None:
    with pytest.raises(WhorlError, match=says):
        parse(text)


@pytest.mark.parametrize("setting", ["size=12y", "mean=a", "resize=area", "name=a:b"])
def test_a_setting_that_cannot_be_read_says_how_it_is_written(setting: str) -> None:
    key, _, value = setting.partition("=")
    one, usual = parse(f"timm:resnet18?{setting}"), Input(size=(8, 8), mean=(0.0,), std=(1.0,))
    read: Callable[[], object] = one.name if key == "name" else lambda: one.input(usual)
    with pytest.raises(WhorlError, match=rf"{key} in 'timm:resnet18\?{key}=.*must be .*; got '{value[0]}"):
        read()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no FIFOs")
@pytest.mark.parametrize("name", ["fifo", "/dev/zero"])
def test_labels_are_read_from_a_file_alone(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(WhorlError, match=r"must be a text file, a class a line .*expected a regular file"):
        parse(f"timm:resnet18?labels={tmp_path / name}").labels()


def test_without_a_size_it_must_be_given() -> None:
    with pytest.raises(WhorlError, match="does not give the size"):
        parse("torchscript:net.pt").input(None)
    assert parse("torchscript:net.pt?size=8").input(None) == Input(size=(8, 8), mean=(0.0,) * 3, std=(1.0,) * 3)


@given(st.text(st.characters(exclude_characters="\ud800", codec="utf-8"), max_size=12))
def test_what_is_written_is_read_again(value: str) -> None:
    text = with_settings("timm:net", {"name": value, "size": "8"})
    assert split_address(text, SOURCES, "model")[2] == {"name": value, "size": "8"}
    assert is_name(value) == (len(value) > 0 and not set(value) & set(":+,?\x7f") and min(map(ord, value)) > 31)


def test_paths_are_taken_from_a_folder_where_they_lie_there(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    found = parse("onnx:net.onnx?labels=classes.txt").seen_from(tmp_path)
    assert parse(found).labels() == ("cat", "dog")
    assert parse(found).place == str(tmp_path / "net.onnx")
    assert parse("onnx:other.onnx").seen_from(tmp_path) == "onnx:other.onnx"
    (tmp_path / "classes.txt").write_text("cat\n\ndog\n")
    with pytest.raises(WhorlError, match="a class name in every line"):
        parse(found).labels()


def test_every_way_to_resize_can_be_asked_for() -> None:
    usual = Input(size=(8, 8), mean=(0.0,), std=(1.0,))
    assert [parse(f"timm:x?resize={way}").input(usual).resize for way in get_args(Resize)] == list(get_args(Resize))
