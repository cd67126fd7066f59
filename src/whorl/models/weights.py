"""Weight files: read without running code, converted once to safetensors, hashed."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from whorl.artifacts import cache_home, writing_to_cache
from whorl.errors import WhorlError, reason
from whorl.files import atomic_write, exclusive, has_sha256, regular, remove_parts

StateDict = dict[str, Tensor]

_PARALLEL = "module."  # what nn.DataParallel puts before every name
_FORMAT = 1  # part of the names of converted files: raise it when a conversion changes, and old files are left alone


def read_state_dict(path: Path) -> StateDict:
    """Read a state dict from a safetensors file, or from a torch checkpoint that holds nothing but tensors.

    A checkpoint may keep the state dict under "state_dict" or "model", and its keys may start with "module.".

    Args:
        path: ``*.safetensors``, or anything that ``torch.load(weights_only=True)`` reads.

    Returns:
        Name -> tensor on the CPU.

    Raises:
        WhorlError: there is no such file, it is damaged, or it holds more than tensors.
    """
    with _reading(path):
        content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_checkpoint(path)
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    held = _checked(content, path)
    state = {key.removeprefix(_PARALLEL): tensor for key, tensor in held.items()}
    if len(state) < len(held):
        twice = next(key for key in held if f"{_PARALLEL}{key}" in held)
        raise WhorlError(
            f"{path} holds both {twice} and {_PARALLEL}{twice}, and only one of them can be the weights. Save the "
            "state dict of one network alone."
        )
    return state


def read_pickled_state_dict(path: Path) -> StateDict:
    """Read a state dict that was written with plain ``pickle``, running none of the code that the file may name.

    Only what a pickled state dict is made of may be built: ordered dictionaries and tensors. The raw storages inside
    it are torch files in turn, and are read with ``weights_only``.

    Args:
        path: a pickle of an ordered dictionary of tensors.

    Returns:
        Name -> tensor on the CPU.

    Raises:
        WhorlError: there is no such file, it is damaged, or it names anything else.
    """
    try:
        with _reading(path), path.open("rb") as file:
            return _checked(_TensorUnpickler(file).load(), path)
    except WhorlError:
        raise
    except Exception as error:  # a damaged or hostile pickle may raise anything
        raise _refused(path, error) from error


def load_strict(net: nn.Module, state: StateDict, origin: str) -> None:
    """Load a state dict that must fit the network exactly.

    Args:
        net: the network.
        state: name -> tensor.
        origin: where the weights come from, for the error message.
    """
    own = net.state_dict()
    complaints = [
        f"{kind} {', '.join(sorted(names)[:3])} ({len(names)} in all)"
        for kind, names in (("lacks", own.keys() - state.keys()), ("has the unknown", state.keys() - own.keys()))
        if names
    ]
    wrong = [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own.keys() & state.keys()
        if state[name].shape != own[name].shape
    ]
    complaints += sorted(wrong)[:3]
    if complaints:
        raise WhorlError(
            f"{origin} does not fit {type(net).__name__}: it {'; '.join(complaints)}. {_other_head(own, state)}"
        )
    for name, tensor in state.items():
        if own[name].is_floating_point() and not tensor.is_floating_point():
            raise WhorlError(f"{origin}: {name} must be of floating point; got {tensor.dtype}. Dequantise it first.")
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise WhorlError(f"{origin}: {name} holds NaN or infinity, so no answer of the network can be trusted.")
    net.load_state_dict(state)


def _other_head(own: StateDict, state: StateDict) -> str:
    """What to do about weights that do not fit: where only the number of classes differs, say which it is."""
    differ = [name for name in own if name not in state or state[name].shape != own[name].shape]
    alike = own.keys() == state.keys() and all(state[name].shape[1:] == own[name].shape[1:] for name in differ)
    rows = {state[name].shape[0] for name in differ} if alike and all(state[name].ndim for name in differ) else set()
    if len(rows) != 1:
        return "Check the architecture."
    [count] = rows
    return f"It has a head of {count} classes: say so with num_classes={count}."


def converted(name: str, source_sha256: str, convert: Callable[[], StateDict], pinned: str) -> tuple[Path, str]:
    """Return the safetensors version of some weights, converting them on first use.

    The file's hash lies beside it, in the format of ``sha256sum``. A file without its hash, or with another, is the
    work of a killed process or a bad disk, and is converted anew. So is one whose tensors are not those that are
    pinned: whoever replaces a file can replace the hash beside it.

    Args:
        name: what to call the file.
        source_sha256: SHA-256 of what is converted.
        convert: reads the source.
        pinned: :func:`tensors_sha256` of what must come out.

    Returns:
        The file in the cache, and its SHA-256.

    Raises:
        WhorlError: other tensors come out, or the cache cannot be written to.
    """
    path = cache_home() / "weights" / f"{name}-{source_sha256[:16]}-{_FORMAT}" / f"{name}.safetensors"
    record = path.with_name(path.name + ".sha256")
    if digest := _recorded(path, record, pinned):
        return path, digest
    with writing_to_cache(), exclusive(path.parent):
        remove_parts(path.parent)
        if digest := _recorded(path, record, pinned):  # another process was faster
            return path, digest
        from safetensors.torch import save

        state = {key: tensor.contiguous() for key, tensor in convert().items()}
        if (got := tensors_sha256(state)) != pinned:
            raise WhorlError(
                f"the weights of {name} do not come out as published: expected tensors of SHA-256 {pinned}, got "
                f"{got}. Nothing was kept. Check the installed torch, and report it."
            )
        data = save(state)
        digest = hashlib.sha256(data).hexdigest()
        with atomic_write(path) as file:
            file.write(data)
        with atomic_write(record) as file:
            file.write(f"{digest}  {path.name}\n".encode())
    return path, digest


def state_dict_sha256(net: nn.Module) -> str:
    """Hash the tensors of a network: names, dtypes, shapes and values, whatever file they came from.

    >>> state_dict_sha256(nn.Identity())[:12]
    'e3b0c44298fc'
    """
    return tensors_sha256(net.state_dict())


def tensors_sha256(state: Mapping[str, Tensor]) -> str:
    """Hash tensors by name, dtype, shape and value."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _recorded(path: Path, record: Path, pinned: str) -> str | None:
    try:
        digest = regular(record).read_text(encoding="ascii").split()[0]
        sound = has_sha256(path, digest) and tensors_sha256(read_state_dict(path)) == pinned
    except (OSError, ValueError, IndexError):
        return None
    return digest if sound else None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """The operating system's errors in our words; what is no regular file is not waited for."""
    try:
        regular(path)
        yield
    except FileNotFoundError as error:
        raise WhorlError(f"there is no weight file {path}.") from error
    except OSError as error:
        raise WhorlError(f"the weight file {path} cannot be read ({error}).") from error


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise WhorlError(f"{path} is not a sound safetensors file ({error}).") from error


def _read_checkpoint(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # the unpickler and the archive reader raise all sorts
        raise _refused(path, error) from error


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Stand-ins made for this one load, so that not even an attribute of a torch function can be overwritten.
        match module, name:
            case "collections", "OrderedDict":
                return OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return lambda *parts: torch._utils._rebuild_tensor_v2(*parts)
            case "torch.storage", "_load_from_bytes":
                return lambda data: torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        raise pickle.UnpicklingError(f"it wants to use {module}.{name}")


def _checked(content: object, path: Path) -> StateDict:
    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items())
        or any(value.is_meta for value in content.values())  # a shape without values
    ):
        raise WhorlError(f"{path} must hold a state dict, a mapping of names to tensors; got something else.")
    return cast(StateDict, dict(content))


def _refused(path: Path, error: Exception) -> WhorlError:
    said = reason(error).partition(". ")[0]  # torch goes on to advise how to run what is in it
    return WhorlError(
        f"{path} was not loaded, and nothing in it was run: expected a file of tensors only ({said}). "
        "Save the state dict alone, with torch.save or as safetensors."
    )
