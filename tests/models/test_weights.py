from __future__ import annotations

import errno
import io
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import small_net
from whorl.errors import WhorlError
from whorl.files import sha256_of
from whorl.models.weights import (
    converted,
    load_strict,
    read_pickled_state_dict,
    read_state_dict,
    state_dict_sha256,
    tensors_sha256,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHORL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def state() -> dict[str, Tensor]:
    return dict(small_net().state_dict())


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def storage_bomb(marker: Path) -> bytes:
    """A bomb one level down, where a tensor's bytes should be: torch's own loader of storages would set it off."""

    class Storage:
        def __reduce__(self) -> tuple[Any, ...]:
            inner = io.BytesIO()
            torch.save(Bomb(marker), inner, _use_new_zipfile_serialization=False)
            return torch.storage._load_from_bytes, (inner.getvalue(),)

    return pickle.dumps(OrderedDict(weight=Storage()))


def test_reads_a_plain_pickle_of_tensors(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(OrderedDict(state)))
    assert same(read_pickled_state_dict(path), state)


def test_a_poisoned_pickle_runs_nothing(tmp_path: Path) -> None:
    path, marker = tmp_path / "state.pkl", tmp_path / "marker"
    poisoned = [
        pickle.dumps({"weight": Bomb(marker)}),
        pickle.dumps({"weight": Bomb(marker)}, protocol=0),
        storage_bomb(marker),
        b"cbuiltins\nexec\n(S'open(\"" + str(marker).encode() + b'", "w")\'\ntR.',
        b"\x80\x04\x8c\x05torch\x8c\x04load\x93.",  # not allowed either: torch.load itself
    ]
    for data in poisoned:
        path.write_bytes(data)
        with pytest.raises(WhorlError, match=r"nothing in it was run.*Save the state dict"):
            read_pickled_state_dict(path)
        assert not marker.exists()
    # The bombs are live: without the guard they go off.
    pickle.loads(poisoned[0])  # noqa: S301
    assert marker.exists()


def test_a_poisoned_checkpoint_runs_nothing(tmp_path: Path) -> None:
    path, marker = tmp_path / "state.pth", tmp_path / "marker"
    torch.save({"weight": Bomb(marker)}, path)
    with pytest.raises(WhorlError, match="nothing in it was run"):
        read_state_dict(path)
    assert not marker.exists()


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps(OrderedDict(a=torch.ones(9)))[:-20]])
def test_a_damaged_pickle_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "state.pkl").write_bytes(data)
    with pytest.raises(WhorlError, match=r"state\.pkl"):
        read_pickled_state_dict(tmp_path / "state.pkl")


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
def test_reads_checkpoints_as_people_save_them(tmp_path: Path, state: dict[str, Tensor], wrap: Any) -> None:
    path = tmp_path / "state.pth"
    torch.save(wrap({f"module.{key}": tensor for key, tensor in state.items()}), path)
    assert same(read_state_dict(path), state)


@pytest.mark.parametrize("name", ["state.pth", "state.safetensors"])
def test_files_that_are_no_weights_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(WhorlError, match="no weight file"):
        read_state_dict(path)
    path.write_bytes(b"garbage" * 10)
    with pytest.raises(WhorlError, match=r"state\."):
        read_state_dict(path)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(WhorlError, match="must hold a state dict"):
        read_state_dict(tmp_path / "list.pth")


def test_weights_must_fit_exactly(state: dict[str, Tensor]) -> None:
    net = small_net(seed=5)
    load_strict(net, state, "here")
    assert same(net.state_dict(), state)
    first, *_ = state
    bad = {**state, "surplus": torch.ones(1), first: torch.ones(2)}
    del bad[list(state)[-1]]
    with pytest.raises(
        WhorlError, match=r"here does not fit.*lacks 8\.weight.*unknown surplus.*is \(2,\), expected \(8, 3"
    ):
        load_strict(net, bad, "here")


def test_another_head_is_told_by_its_classes(state: dict[str, Tensor]) -> None:
    *_, head = state
    other = {**state, head: torch.ones(10, *state[head].shape[1:])}
    with pytest.raises(WhorlError, match=r"head of 10 classes: say so with num_classes=10"):
        load_strict(small_net(), other, "here")
    first, *_ = state
    with pytest.raises(WhorlError, match="Check the architecture"):
        load_strict(small_net(), other | {first: torch.ones(10, *state[first].shape[1:])[:, :1]}, "here")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t * torch.nan, "holds NaN or infinity"),
        (lambda t: torch.full_like(t, -torch.inf), "holds NaN or infinity"),
        (lambda t: t.long(), r"must be of floating point; got torch\.int64"),
        (lambda t: t > 0, r"must be of floating point; got torch\.bool"),
    ],
)
def test_weights_that_are_no_numbers_of_a_network(spoil: Any, message: str, state: dict[str, Tensor]) -> None:
    first, *_ = state
    with pytest.raises(WhorlError, match=rf"here: {first} {message}"):
        load_strict(small_net(), {**state, first: spoil(state[first])}, "here")


@pytest.mark.parametrize("name", ["state.pth", "state.safetensors"])
def test_a_name_with_and_without_the_prefix_of_parallel_training(
    name: str, tmp_path: Path, state: dict[str, Tensor]
) -> None:
    from safetensors.torch import save_file

    first, *_ = state
    both = {**state, f"module.{first}": state[first] + 1}
    save_file(both, tmp_path / name) if name.endswith("safetensors") else torch.save(both, tmp_path / name)
    with pytest.raises(WhorlError, match=rf"holds both {first} and module\.{first}"):
        read_state_dict(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no FIFOs")
@pytest.mark.parametrize("name", ["state.pth", "state.safetensors", "state.pkl"])
def test_a_fifo_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    read = read_pickled_state_dict if name.endswith("pkl") else read_state_dict
    with pytest.raises(WhorlError, match="expected a regular file, got a FIFO"):
        read(tmp_path / name)


def test_converts_once_and_again_if_damaged(home: Path, state: dict[str, Tensor]) -> None:
    calls: list[int] = []

    def convert() -> dict[str, Tensor]:
        calls.append(1)
        return state

    pinned = tensors_sha256(state)
    path, digest = converted("small", "ab" * 32, convert, pinned)
    assert same(read_state_dict(path), state)
    assert path.with_name("small.safetensors.sha256").read_text() == f"{digest}  small.safetensors\n"
    assert converted("small", "ab" * 32, convert, pinned) == (path, digest)
    assert len(calls) == 1
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert converted("small", "ab" * 32, convert, pinned) == (path, digest)
    assert len(calls) == 2
    assert same(read_state_dict(path), state)
    assert converted("small", "cd" * 32, convert, pinned)[0] != path  # another source, another file


def replace_with_hash(path: Path, state: dict[str, Tensor]) -> None:
    """Put other weights in the place of cached ones, and their hash in the place of the hash."""
    from safetensors.torch import save_file

    save_file(state, path)
    path.with_name(f"{path.name}.sha256").write_text(f"{sha256_of(path)}  {path.name}\n")


def test_weights_that_were_replaced_together_with_their_hash_are_converted_anew(
    home: Path, state: dict[str, Tensor]
) -> None:
    path, digest = converted("small", "ab" * 32, lambda: state, tensors_sha256(state))
    replace_with_hash(path, {key: tensor + 1 for key, tensor in state.items()})
    assert converted("small", "ab" * 32, lambda: state, tensors_sha256(state)) == (path, digest)
    assert same(read_state_dict(path), state)


def test_weights_that_come_out_otherwise_are_not_kept(home: Path, state: dict[str, Tensor]) -> None:
    with pytest.raises(WhorlError, match="do not come out as published"):
        converted("small", "ab" * 32, lambda: state, "0" * 64)
    assert not list(home.rglob("*.safetensors"))


def test_a_full_disk_leaves_no_half_file(home: Path, state: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WhorlError, match="no space left"):
            converted("small", "ab" * 32, lambda: state, tensors_sha256(state))
    assert not [path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"]
    path, _ = converted("small", "ab" * 32, lambda: state, tensors_sha256(state))
    assert same(read_state_dict(path), state)


def test_a_killed_conversion_is_done_again(home: Path, state: dict[str, Tensor]) -> None:
    code = """
import os, signal, torch
from whorl.models.weights import converted, tensors_sha256
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
made = {"weight": torch.ones(3)}
converted("small", "ab" * 32, lambda: made, tensors_sha256(made))
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert list(home.rglob(".*.part"))
    path, _ = converted("small", "ab" * 32, lambda: state, tensors_sha256(state))
    assert same(read_state_dict(path), state)
    assert not list(home.rglob(".*.part"))


def test_the_hash_of_a_state_dict_sees_values_names_and_shapes() -> None:
    hashes = {
        state_dict_sha256(net)
        for net in (small_net(), small_net(seed=1), small_net().half(), nn.Sequential(small_net()), nn.Linear(2, 3))
    }
    assert len(hashes) == 5
    assert state_dict_sha256(small_net()) == state_dict_sha256(small_net())


def test_a_shape_without_values_is_no_weight(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2, device="meta")}, tmp_path / "net.pt")
    with pytest.raises(WhorlError, match="must hold a state dict"):
        read_state_dict(tmp_path / "net.pt")


def test_torchs_advice_to_run_a_file_is_not_passed_on(tmp_path: Path) -> None:
    torch.save({"weight": Path()}, tmp_path / "net.pt")
    with pytest.raises(WhorlError, match=r"\(Weights only load failed\)\. Save the state dict"):
        read_state_dict(tmp_path / "net.pt")
