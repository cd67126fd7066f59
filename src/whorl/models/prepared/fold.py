"""A convolution and the normalisation after it as one convolution: the same function in a fraction of the time.

With its statistics held, BatchNorm multiplies and shifts each channel. On a GPU that is memory traffic alone, and
backwards more of it than the convolutions make.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from whorl.models.classifier import Classifier

_Module = TypeVar("_Module", bound=nn.Module)
Pair = tuple[nn.Conv2d, nn.BatchNorm2d]
Product = tuple[Tensor, Tensor]

# A logit may differ by this share of the largest one: more than TF32 makes of it, and far less than a wrong fold.
_CLOSE = 1e-2


class ChannelAffine(NamedTuple):
    """A scale and a shift of each channel, (C,) both."""

    scale: Tensor
    shift: Tensor

    @classmethod
    def of(
        cls, mean: Tensor | None, variance: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> ChannelAffine | None:
        """From what torch calls it, in its own dtype; None without running statistics.

        >>> ChannelAffine.of(torch.ones(1), torch.full((1,), 4.0), None, None, 0.0)
        ChannelAffine(scale=tensor([0.5000]), shift=tensor([-0.5000]))
        """
        if mean is None or variance is None:
            return None
        scale = torch.rsqrt(variance + eps)
        if weight is not None:
            scale = weight * scale
        return cls(scale, (0.0 if bias is None else bias) - mean * scale)


def same_padded(module: nn.Module) -> bool:
    """Whether a module is timm's convolution with TensorFlow's padding; without timm loaded there is none."""
    layers = sys.modules.get("timm.layers")
    return layers is not None and type(module) is layers.Conv2dSame


def fold(net: nn.Module, size: tuple[int, int], channels: int = 3, *, learns: bool = False) -> int:
    """Let every convolution do the work of the BatchNorm behind it, in place.

    Parameters keep their names, shapes and values. A fold that would change the network, such as of a convolution whose
    output is used twice, is noticed by running it before and after; then nothing is folded.

    Args:
        net: in eval mode, and on the device where it is to stay.
        size: height and width of images that it takes.
        channels: of the images.
        learns: whether the parameters may still change, by learning or otherwise: the product of kernel and scale is
            then taken in each pass, instead of once.

    Returns:
        How many normalisations are folded.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    >>> fold(net, (8, 8)), sorted(name for name, _ in net.named_parameters())
    (1, ['0.bias', '0.weight', '1.bias', '1.weight'])
    """
    if not any(isinstance(module, nn.BatchNorm2d) and _fits(module) for module in net.modules()):
        return 0
    like = next(net.parameters())
    x = torch.linspace(-1, 1, channels * size[0] * size[1]).view(1, channels, *size).to(like)
    with torch.no_grad():
        pairs, before = _pairs(net, x)
        for conv, norm in pairs:
            product = partial(_product, conv, norm) if learns else partial(_as_it_is, _product(conv, norm))
            conv.forward = partial(_convolve, conv, product)  # type: ignore[method-assign]  # of this module alone
            norm.forward = partial(_finish, norm)  # type: ignore[method-assign]  # as above
        after = net(x)
    if pairs and float((after - before).abs().max()) <= _CLOSE * float(before.abs().max()):
        return len(pairs)
    for conv, norm in pairs:
        del conv.forward, norm.forward
    return 0


def alias(module: _Module) -> _Module:
    """A copy of a module's structure over the same memory: it may be hooked and changed, and the original is not.

    >>> net = nn.Linear(2, 2)
    >>> other = alias(net)
    >>> other.weight.data_ptr() == net.weight.data_ptr(), other.weight.requires_grad, other is net
    (True, False, False)
    """
    memo: dict[int, object] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters()}
    memo |= {id(buffer): buffer for buffer in module.buffers()}
    return deepcopy(module, memo)


def folded(classifier: Classifier) -> Classifier:
    """A copy of a classifier with its normalisations folded: the same answers up to rounding, sooner.

    Args:
        classifier: frozen, and stays as it is. The copy shares its tensors, and holds until one of them changes. One
            that cannot be copied, such as a network that holds a file or a lock, is given back.
    """
    try:
        copy = alias(classifier)
    except Exception:  # noqa: BLE001 - it is somebody's own, and may raise anything
        return classifier
    fold(copy.net, copy.size, len(copy.mean))
    if copy._mean.device.type == "cpu":
        for module in copy.net.modules():
            if type(module) is nn.MaxPool2d and not module.return_indices:
                module.forward = partial(pool, module)  # type: ignore[method-assign]  # of this module alone
    return copy


def _pairs(net: nn.Module, x: Tensor) -> tuple[list[Pair], Tensor]:
    """The convolutions whose output is a normalisation's input, and what the network answers."""
    made: dict[int, nn.Conv2d] = {}
    kept: list[Tensor] = []  # so that no tensor's id is given to another meanwhile
    pairs: list[Pair] = []

    def after(module: nn.Module, _: object, out: Tensor) -> None:
        # A subclass may compute anything; timm's pads by the image's size.
        known = type(module) is nn.Conv2d or same_padded(module)
        if known and isinstance(module, nn.Conv2d) and module.padding_mode == "zeros":
            made[id(out)] = module
            kept.append(out)

    def before(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        conv = made.get(id(given[0]))
        if conv is not None and isinstance(module, nn.BatchNorm2d) and _fits(module):
            pairs.append((conv, module))

    hooks = [m.register_forward_hook(after) for m in net.modules() if isinstance(m, nn.Conv2d)]
    hooks += [m.register_forward_pre_hook(before) for m in net.modules() if isinstance(m, _BatchNorm)]
    try:
        answer: Tensor = net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return pairs, answer


def _fits(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.running_mean is not None and not norm.training


def _product(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Product:
    """Kernel and bias of the convolution that does both."""
    found = ChannelAffine.of(norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps)
    assert found is not None  # noqa: S101 - _fits saw to it
    scale, shift = found
    if conv.bias is not None:
        shift = shift + conv.bias * scale
    return conv.weight * scale[:, None, None, None], shift


def _as_it_is(product: Product) -> Product:
    return product


def _convolve(conv: nn.Conv2d, product: Callable[[], Product], x: Tensor) -> Tensor:
    weight, shift = product()
    padding = conv.padding
    if type(conv) is not nn.Conv2d:
        x, padding = sys.modules["timm.layers"].pad_same(x, conv.kernel_size, conv.stride, conv.dilation), (0, 0)
    return F.conv2d(x, weight, shift, conv.stride, padding, conv.dilation, conv.groups)


def _finish(norm: nn.Module, x: Tensor) -> Tensor:
    # timm's normalisations end in an activation of their own.
    for part in ("drop", "act"):
        layer = getattr(norm, part, None)
        if layer is not None:
            x = layer(x)
    return x


def pool(layer: nn.MaxPool2d, x: Tensor) -> Tensor:
    """Do what a layer does, values and gradients bit by bit, in a third of the time.

    Args:
        layer: one that does not return indices.
        x: (B, C, H, W).

    >>> x, layer = torch.rand(2, 16, 9, 9), nn.MaxPool2d(3, 2, 1)
    >>> torch.equal(pool(layer, x), layer(x))
    True
    """
    # Images in another memory format than torch's own are not slow.
    if x.dim() != 4 or not x.is_contiguous() or x.device.type != "cpu":
        plainly: Tensor = nn.MaxPool2d.forward(layer, x)
        return plainly
    window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
    out: Tensor = _Pooled.apply(x, window)  # type: ignore[no-untyped-call]  # torch's own
    return out


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[Any, ...]) -> Tensor:
        last = x.contiguous(memory_format=torch.channels_last)
        out, which = F.max_pool2d_with_indices(last, *window)
        # Back at once: the layers around would mix both formats, and be slow in their turn.
        ctx.save_for_backward(x, which.contiguous())
        ctx.window = window
        return out.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, which = ctx.saved_tensors
        *sizes, ceil = ctx.window
        pairs = [[size, size] if isinstance(size, int) else list(size) for size in sizes]
        gradient = gradients[0].contiguous()
        return torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, *pairs, ceil, which), None
