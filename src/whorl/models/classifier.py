"""A network together with everything needed to show it an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.errors import WhorlError, first_line, quoted
from whorl.models.weights import state_dict_sha256
from whorl.records import Limits, Positive, checked

Resize = Literal["bilinear", "bicubic"]
M = TypeVar("M")
Side = Annotated[int, Limits(least=1, most=20_000)]
"""Pixels of an input."""
Classes = Annotated[int, Limits(least=1, most=1_000_000)]
"""How many classes a network knows."""


class Classifier(nn.Module):
    """A frozen image classifier that owns its preprocessing.

    Takes RGB images (B, C, H, W) in [0, 1] at any height and width, and returns logits (B, num_classes). Images of
    another size are resized with antialiasing; images that fit are not touched, so the network sees them exactly.
    Everything is differentiable with respect to the images.

    The network is taken over: it is put into eval mode, where ``train()`` keeps it, and its parameters stop requiring
    gradients. Pass ``copy.deepcopy(net)`` to go on training the original.

    Args:
        net: maps normalised images (B, C, height, width) to logits (B, num_classes).
        size: height and width that the network expects, in pixels; one integer stands for both.
        mean: one number per channel, in units of the [0, 1] range.
        std: one number per channel, likewise.
        num_classes: how many logits the network returns.
        labels: one name per class. Without them the classes are called "0", "1", ...
        name: what to call the model in tables and messages.
        resize: how to resample images of another size.
        weights_sha256: SHA-256 of the weights, where known: of the file that they were read from, or of the tensors
            themselves when they came from elsewhere.

    Attributes:
        net: the bare network.
        size: (height, width).
        mean: as given.
        std: as given.
        num_classes: as given.
        labels: one name per class.
        name: as given.
        resize: as given.
        weights_sha256: as given.
        code_sha256: SHA-256 of the source files and settings of a network of one's own, if a ``python:`` address
            loaded it.
    """

    def __init__(  # wide: a classifier is its network and all that belongs to its input
        self,
        net: nn.Module,
        *,
        size: int | tuple[int, int],
        mean: Sequence[float],
        std: Sequence[float],
        num_classes: int,
        labels: Sequence[str] | None = None,
        name: str = "",
        resize: Resize = "bilinear",
        weights_sha256: str | None = None,
    ) -> None:
        super().__init__()
        self.net = _checked_net(net).eval()
        for parameter in net.parameters():  # not net.requires_grad_(), which a ScriptModule has not
            parameter.requires_grad_(False)
        self.size = _checked_size(size)
        self.mean, self.std = _checked_statistics(mean, std)
        self.num_classes: int = checked("num_classes", num_classes, Classes)
        self.labels = tuple(map(str, range(self.num_classes))) if labels is None else _class_names(labels)
        if len(self.labels) != self.num_classes:
            raise WhorlError(f"labels must name every class once; expected {self.num_classes}, got {len(self.labels)}.")
        if resize not in get_args(Resize):
            raise WhorlError(f"resize must be one of {', '.join(get_args(Resize))}; got {resize!r}.")
        self.name: str = checked("name", name, str) or type(net).__name__
        self.resize: Resize = resize
        self.weights_sha256 = weights_sha256
        self._tensors_then = None if weights_sha256 is None else state_dict_sha256(net)
        self.code_sha256: str | None = None
        device = next((tensor.device for tensor in _floating(net)), torch.device("cpu"))
        self._set_statistics(device)
        super().train(False)

    @classmethod
    def from_module(  # wide: as the class itself
        cls,
        net: nn.Module,
        *,
        size: int | tuple[int, int],
        mean: Sequence[float],
        std: Sequence[float],
        labels: Sequence[str] | None = None,
        num_classes: int | None = None,
        name: str = "",
        resize: Resize = "bilinear",
    ) -> Self:
        """Make a classifier of any network.

        Args:
            net: see :class:`Classifier`; it is taken over.
            size: height and width that the network expects, in pixels.
            mean: one number per channel, in units of the [0, 1] range.
            std: one number per channel, likewise.
            labels: one name per class.
            num_classes: how many logits the network returns. Without it and without labels, the network is evaluated on
                one gray image.
            name: what to call the model. Without it, the name of the network's class.
            resize: how to resample images of another size.

        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
        >>> clf = Classifier.from_module(net, size=(8, 8), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> clf(torch.rand(2, 3, 20, 30)).shape
        torch.Size([2, 10])
        """
        if num_classes is None:
            channels = len(_checked_statistics(mean, std)[0])
            num_classes = (
                len(_class_names(labels)) if labels is not None else count_classes(net, _checked_size(size), channels)
            )
        return cls(net, size=size, mean=mean, std=std, num_classes=num_classes, labels=labels, name=name, resize=resize)

    def weights_now(self) -> str:
        """SHA-256 of the weights: ``weights_sha256`` while they are unchanged, otherwise that of the tensors."""
        now = state_dict_sha256(self.net)
        return self.weights_sha256 if self.weights_sha256 and now == self._tensors_then else now

    def identity(self) -> dict[str, Any]:
        """Say exactly which network it is, as JSON: its name, hashes of weights and of your own code, and its input."""
        return {
            "name": self.name,
            "weights_sha256": self.weights_now(),
            **({} if self.code_sha256 is None else {"code_sha256": self.code_sha256}),
            "input": [list(self.size), list(self.mean), list(self.std), self.resize],
        }

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: (B, C, H, W), any floating dtype, RGB in [0, 1]. The range is not checked: looking at the values would
                make a GPU wait.

        Returns:
            (B, num_classes) logits, in float32, or in float64 if the network computes in float64.
        """
        x = self.normalised(x)
        # A graph that is compiled or traced would have the images of its example counted into it.
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]  # torch.jit is untyped
        if x.device.type != "cpu" or torch.compiler.is_compiling() or tracing:
            return self._logits(x)
        # One image at a time, so that its answer and its gradient are the same whatever it is batched with, to the
        # last bit: a CPU's matrix products round differently for another number of rows.
        parts = [self._logits(part) for part in x.split(self._rows)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def normalised(self, x: Tensor) -> Tensor:
        """Images as the bare network gets them: resized, normalised, in its dtype; differentiable.

        >>> clf = Classifier(nn.Flatten(), size=2, mean=(0.5,), std=(0.25,), num_classes=4)
        >>> clf.normalised(torch.ones(1, 1, 8, 8)).round(decimals=3)
        tensor([[[[2., 2.],
                  [2., 2.]]]])
        """
        self._check_images(x)
        dtype = _dtype(self.net)
        # Half-precision networks get images that were resized and normalised in float32.
        x = x.to(self._mean.dtype)
        if x.shape[-2:] != self.size:
            x = F.interpolate(x, self.size, mode=self.resize, align_corners=False, antialias=True)
        x = (x - self._mean) / self._std
        return x if dtype is None else x.to(dtype)

    def _logits(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        if not isinstance(logits, Tensor) or logits.shape != (x.shape[0], self.num_classes) or logits.is_complex():
            got = f"{tuple(logits.shape)}, {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
            raise WhorlError(
                f"{self.name} must return logits of shape {(x.shape[0], self.num_classes)}; got {got}. "
                "Wrap the network so that it returns just them."
            )
        return logits if logits.dtype == torch.float64 else logits.to(torch.float32)

    @property
    def _rows(self) -> int:
        """Images that the network takes at a time on a CPU: one, or what an ONNX graph was exported for."""
        return getattr(self.net, "batch", None) or 1

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - the signature is torch's
        """Stay in eval mode, whatever is requested: a measured model must not change while it is measured."""
        return super().train(False)

    def extra_repr(self) -> str:
        """Describe the model in the first line of its repr."""
        height, width = self.size
        parts = [repr(self.name), f"size={height}x{width}", f"classes={self.num_classes}"]
        parts += [f"mean={_short(self.mean)}", f"std={_short(self.std)}", f"resize={self.resize}"]
        if self.weights_sha256:
            parts.append(f"weights={self.weights_sha256[:12]}")
        return ", ".join(parts)

    def _check_images(self, x: Tensor) -> None:
        channels = len(self.mean)
        if isinstance(x, Tensor) and 0 in x.shape[-2:]:
            raise WhorlError(f"images must have height and width of at least 1; got shape {tuple(x.shape)}.")
        if not isinstance(x, Tensor) or x.is_sparse:
            kind = "a sparse one" if isinstance(x, Tensor) else type(x).__name__
            raise WhorlError(f"images must be a dense (B, {channels}, H, W) tensor; got {kind}.")
        if x.ndim != 4 or x.shape[1] != channels:
            hint = " Add a batch dimension with x[None]." if x.ndim == 3 else ""
            raise WhorlError(f"images must have shape (B, {channels}, H, W); got {tuple(x.shape)}.{hint}")
        if not x.is_floating_point():
            raise WhorlError(f"images must be floating point in [0, 1]; got {x.dtype}. Divide by 255.")

    def _set_statistics(self, device: torch.device) -> None:
        dtype = torch.float64 if _dtype(self.net) == torch.float64 else torch.float32
        for name, values in (("_mean", self.mean), ("_std", self.std)):
            # Not in the state dict: they are settings, not weights.
            self.register_buffer(name, torch.tensor(values, dtype=dtype, device=device).view(1, -1, 1, 1), False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # .half() and the like reach buffers too, and would leave the mean with three digits.
        self._set_statistics(self._mean.device)
        return self

    _mean: Tensor
    _std: Tensor


def _floating(net: nn.Module) -> Iterator[Tensor]:
    return (tensor for tensor in chain(net.parameters(), net.buffers()) if tensor.is_floating_point())


def name_of(model: object) -> str:
    """What to call a network: its own name, or its function's."""
    name = getattr(model, "name", None) or getattr(model, "__name__", None)
    return name if isinstance(name, str) else type(model).__name__


def by_name(models: Iterable[M]) -> dict[str, M]:
    """Networks by what they are called.

    Raises:
        WhorlError: two of them have one name, so that a table would have one row for both.
    """
    found: dict[str, M] = {}
    for model in models:
        if found.setdefault(name := name_of(model), model) is not model:
            raise WhorlError(
                f"two networks are called {name!r}. Give each a name of its own: name= in its address, or .name."
            )
    return found


def network_dtype(model: object, x: Tensor) -> torch.dtype:
    """The dtype to feed a model: that of its parameters, or of ``x`` where it has none."""
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return x.dtype


def forward(model: Callable[[Tensor], Any], x: Tensor) -> Any:
    """What a model answers to (B, C, H, W) images: anyone's code, so whatever it raises says where it was raised.

    Raises:
        WhorlError: it failed, but for want of GPU memory.
    """
    try:
        return model(x)
    except (WhorlError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a model is anyone's code
        raise WhorlError(
            f"the model failed on {x.dtype} images of shape {tuple(x.shape)}: {first_line(error)}. "
            "Check that it takes such images; whorl.Classifier.from_module resizes and normalises them for it."
        ) from error


def forward_cast(model: Callable[[Tensor], Any], x: Tensor) -> Any:
    """What a model answers to a copy of images, in the dtype of its parameters; otherwise as :func:`forward`."""
    return forward(model, x.to(network_dtype(model, x), copy=True))  # it may work in place


def _dtype(net: nn.Module) -> torch.dtype | None:
    return next((tensor.dtype for tensor in _floating(net)), None)


def _checked_net(net: object) -> nn.Module:
    if not isinstance(net, nn.Module):
        raise WhorlError(
            f"a network must be a torch.nn.Module; got {quoted(net)}. Put what calls yours into the forward of one."
        )
    return net


def _checked_size(size: int | tuple[int, int]) -> tuple[int, int]:
    pair: int | tuple[int, int] = checked("size", size, Side | tuple[Side, Side])
    return (pair, pair) if isinstance(pair, int) else pair


def _checked_statistics(mean: Sequence[float], std: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means: tuple[float, ...] = checked("mean", mean, tuple[float, ...])
    stds: tuple[float, ...] = checked("std", std, tuple[Positive, ...])
    if not means or len(means) != len(stds):
        raise WhorlError(f"mean and std must hold one number per channel; got {quoted(mean)} and {quoted(std)}.")
    return means, stds


def _class_names(labels: Sequence[str]) -> tuple[str, ...]:
    # A set has no order, and a text is as many names as it has letters.
    names: tuple[str, ...] = checked("labels", labels, tuple[str, ...])
    return names


def count_classes(net: nn.Module, size: tuple[int, int], channels: int) -> int:
    """Evaluate a network on one gray image to count its logits. Puts it into eval mode."""
    like = next(_floating(_checked_net(net)), torch.empty(0))
    with torch.no_grad():
        shown = torch.zeros(1, channels, *size, dtype=like.dtype, device=like.device)
        try:
            logits: Any = net.eval()(shown)
        except Exception as error:  # a network is anyone's code
            raise WhorlError(
                f"the network failed on one image of shape {tuple(shown.shape)}: {first_line(error)}. Check the size."
            ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise WhorlError(f"a classifier must return logits of shape (B, classes); got {got} for one image.")
    return logits.shape[1]


def _short(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.4g}' for value in values)})"
