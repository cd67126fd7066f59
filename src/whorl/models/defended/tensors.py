"""Some of a network's tensors: written small, read back, and laid over a network that has the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from whorl.errors import WhorlError
from whorl.files import atomic_write
from whorl.models.weights import StateDict, read_state_dict


def pack(path: Path, state: Mapping[str, Tensor], *, about: Mapping[str, str] | None = None) -> None:
    """Write tensors as fp16 safetensors (whole numbers as they are); the file appears whole or not at all.

    Args:
        path: ends in ``.safetensors``.
        state: name to tensor.
        about: text to keep in the file's header.
    """
    from safetensors.torch import save

    def small(tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu()
        return (tensor.half() if tensor.is_floating_point() else tensor).contiguous()

    packed = {name: small(tensor) for name, tensor in state.items()}
    for name, tensor in packed.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise WhorlError(f"{name} cannot be written in fp16: it holds values beyond its range, or NaN.")
    with atomic_write(path) as file:
        file.write(save(packed, metadata=dict(about or {})))


def unpack(path: Path) -> StateDict:
    """Read what :func:`pack` wrote, floating tensors as float32."""
    state = read_state_dict(path)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def overlay(net: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Overwrite some tensors of a network by name, whatever their dtype and device.

    Args:
        net: the network.
        state: name to tensor, each of which the network has, in the same shape.
        origin: where the tensors come from, for the error message.
    """
    own = net.state_dict()
    for name, tensor in state.items():
        if name not in own:
            raise WhorlError(f"{origin} does not fit {type(net).__name__}: it has the unknown {name}.")
        if own[name].shape != tensor.shape:
            raise WhorlError(
                f"{origin} does not fit {type(net).__name__}: {name} is {tuple(tensor.shape)}, "
                f"expected {tuple(own[name].shape)}."
            )
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)
