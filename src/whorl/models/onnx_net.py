"""ONNX files as networks that answer queries and give no gradients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from whorl.errors import WhorlError, imported, reason

if TYPE_CHECKING:
    import numpy.typing as npt

_DTYPES: dict[str, npt.DTypeLike] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}


class OnnxNet(nn.Module):
    """An ONNX graph with one image input; its first output is taken as the logits.

    Args:
        path: the ``.onnx`` file.
        device: where to run it. CUDA is used if the installed onnxruntime offers it, the CPU otherwise.

    Attributes:
        size: (height, width) that the graph requires, or None if it takes any.
        channels: how many channels the graph requires, or None if it does not say.
        batch: how many images the graph takes at a time, or None if it takes any number.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        super().__init__()
        onnxruntime = imported("onnxruntime", "an ONNX model", extra="onnx")
        if not path.is_file():
            raise WhorlError(f"there is no ONNX file {path}.")
        wanted = ["CPUExecutionProvider"]
        if device.type == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            wanted.insert(0, "CUDAExecutionProvider")
        try:
            self._session: Any = onnxruntime.InferenceSession(str(path), providers=wanted)
        except Exception as error:  # onnxruntime has a class per failure, none of them public
            raise WhorlError(f"{path} is not a usable ONNX model ({reason(error)}).") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in _DTYPES:
            described = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
            raise WhorlError(f"{path} must take one floating-point (B, C, H, W) input; got {described}.")
        self._input: str = inputs[0].name
        self._dtype = _DTYPES[inputs[0].type]
        # A dimension that the graph leaves open is a name or None.
        batch, channels, height, width = (side if isinstance(side, int) else None for side in inputs[0].shape)
        self.batch = batch
        self.channels = channels
        self.size = (height, width) if height and width else None

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxNet:
        # A session cannot be copied, and holds nothing that a copy could change: so that whoever prepares a network for
        # its gradients gets as far as hearing that it has none.
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Run the graph on normalised images (B, C, H, W); returns its first output (B, classes) on their device."""
        if x.requires_grad and torch.is_grad_enabled():
            raise WhorlError(
                "an ONNX model answers queries but has no gradients. Attack it with a score-based or decision-based "
                "attack, or craft the images on another model and test them here."
            )
        images = x.detach().cpu().numpy().astype(self._dtype, copy=False)
        return torch.from_numpy(self._run(images)).to(x.device)

    def _run(self, images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.batch is None or self.batch == len(images):
            return self._ask(images)
        # A graph exported for a fixed batch takes that many and no fewer: repeat the last image to fill up.
        short = -len(images) % self.batch
        padded = np.concatenate([images, np.repeat(images[-1:], short, axis=0)])
        parts = [self._ask(padded[i : i + self.batch]) for i in range(0, len(padded), self.batch)]
        return np.concatenate(parts)[: len(images)]

    def _ask(self, images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        outputs: list[npt.NDArray[Any]] = self._session.run(None, {self._input: images})
        return outputs[0]
