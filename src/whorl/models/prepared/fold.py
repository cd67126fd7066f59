"""A convolution and the normalisation after it as one convolution: the same function in a fraction of the time.

With its statistics held, BatchNorm multiplies and shifts each channel. On a GPU that is memory traffic alone, and
backwards more of it than the convolutions make.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, cached_property, partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from whorl.models.classifier import Classifier
from whorl.models.ensemble import Ensemble

_Module = TypeVar("_Module", bound=nn.Module)
Pair = tuple[nn.Conv2d, nn.BatchNorm2d]
Product = tuple[Tensor, Tensor]

# Of a first layer: colours, and perhaps one more.
_FEW_CHANNELS = 4
_ONE = [1, 1]
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
            joined = partial(_convolve_anew, conv, norm) if learns else KeptConvolution(conv, *_product(conv, norm))
            conv.forward = joined  # type: ignore[method-assign, assignment]  # of this module alone
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


def folded(model: _Module, *, norms: bool = True) -> _Module:
    """A copy of a classifier or an ensemble with its normalisations folded: the same answers up to rounding, sooner.

    Args:
        model: frozen, and stays as it is. The copy shares its tensors, and holds until one of them changes. One that
            cannot be copied, such as a network that holds a file or a lock, is given back.
        norms: False leaves normalisations as they are, and only lays out kernels.
    """
    try:
        copy = alias(model)
    except Exception:  # noqa: BLE001 - it is somebody's own, and may raise anything
        return model
    fold_copy(copy, norms=norms)
    return copy


def fold_copy(model: nn.Module, *, norms: bool = True) -> None:
    """Fold a classifier or an ensemble that is nobody else's, in place; one that is hooked keeps its hooks."""
    for member in model.models if isinstance(model, Ensemble) else (model,):
        assert isinstance(member, Classifier)  # noqa: S101 - as simple() has it
        if norms:
            fold(member.net, member.size, len(member.mean))
        pack(member.net)


def pack(net: nn.Module) -> None:
    """Let a frozen network on a CPU keep its kernels as they are multiplied, and pool faster: the same up to rounding.

    Args:
        net: a copy that is nobody else's, changed in place; it holds until a parameter changes.
    """
    for module in net.modules():
        if "forward" in vars(module) or any(tensor.device.type != "cpu" for tensor in module.parameters(recurse=False)):
            continue
        if isinstance(module, nn.Conv2d) and _plain(module) and not module._forward_pre_hooks:
            kept = KeptConvolution(module, module.weight, module.bias)
            module.forward = kept  # type: ignore[method-assign, assignment]  # of this module alone
        elif type(module) is nn.MaxPool2d and not module.return_indices:
            module.forward = partial(pool, module)  # type: ignore[method-assign]  # as above


def _pairs(net: nn.Module, x: Tensor) -> tuple[list[Pair], Tensor]:
    """The convolutions whose output is a normalisation's input, and what the network answers."""
    made: dict[int, nn.Conv2d] = {}
    kept: list[Tensor] = []  # so that no tensor's id is given to another meanwhile
    pairs: list[Pair] = []

    def after(module: nn.Module, _: object, out: Tensor) -> None:
        if isinstance(module, nn.Conv2d) and _plain(module):
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


def _plain(conv: nn.Conv2d) -> bool:
    """Whether a module is a convolution as it should be: a subclass may compute anything; timm's pads by the size."""
    return (type(conv) is nn.Conv2d or same_padded(conv)) and conv.padding_mode == "zeros"


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


def _convolve_anew(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    windows = Windows.of(conv)
    return windows.convolve(*windows.padded(x), *_product(conv, norm))


class Windows(NamedTuple):
    """All of a convolution but its tensors, and not the module, which would hold in a circle what stands in for it."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    same: bool
    """Whether it pads by its images' size, as TensorFlow does."""

    @classmethod
    def of(cls, conv: nn.Conv2d) -> Windows:
        """Those of a module."""
        same = type(conv) is not nn.Conv2d
        return cls(conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, same)

    def padded(self, x: Tensor) -> tuple[Tensor, str | tuple[int, ...]]:
        """What is convolved, and how much it is still to be padded."""
        if not self.same:
            return x, self.padding
        return sys.modules["timm.layers"].pad_same(x, self.size, self.stride, self.dilation), (0, 0)

    def convolve(self, x: Tensor, padding: str | tuple[int, ...], weight: Tensor, bias: Tensor | None) -> Tensor:
        """What torch makes of them."""
        return F.conv2d(x, weight, bias, self.stride, padding, self.dilation, self.groups)


class KeptConvolution:
    """What a convolution does, with a kernel and a bias that stay.

    On a CPU the kernel is laid out once as oneDNN multiplies it, forwards and backwards. torch does so in every pass,
    which for one image at a time takes nearly as long as the multiplication. Values lie with an image's channels side
    by side from then on; who showed it an image that does not gets such a gradient back.

    Args:
        conv: says all but the kernel and the bias.
        weight: kernel.
        bias: or None.

    >>> conv, x = nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.rand(1, 3, 8, 8)
    >>> torch.allclose(KeptConvolution(conv, conv.weight, conv.bias)(x), conv(x), atol=1e-5)
    True
    """

    def __init__(self, conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> None:
        self.windows, self.weight, self.bias = Windows.of(conv), weight, bias
        self.packed: Packed | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Convolve (B, C, H, W) images."""
        windows = self.windows
        x, padding = windows.padded(x)
        if not isinstance(padding, str) and self._packs(x, padding):
            packed = self.packed  # another thread may be about to replace it
            if packed is None or packed.shape != x.shape:
                packed = self.packed = Packed(self.weight, self.bias, x.shape, windows.stride, padding)
            out: Tensor = _Convolved.apply(x, packed)  # type: ignore[no-untyped-call]  # torch's own
            return out
        return windows.convolve(x, padding, self.weight, self.bias)

    def _packs(self, x: Tensor, padding: tuple[int, ...]) -> bool:
        windows = self.windows
        if not x.device.type == self.weight.device.type == "cpu":
            return False
        usual = windows.groups == 1 and windows.dilation == (1, 1) and x.dim() == 4 and x.numel() > 0
        # Of more padding a gradient would be cut, which its convolution cannot say.
        narrow = all(by < size for by, size in zip(padding, windows.size, strict=True))
        single = x.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return usual and narrow and single and packs()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "packed": None}  # oneDNN's own memory cannot be sent

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptConvolution:
        copy = object.__new__(KeptConvolution)
        vars(copy).update(vars(self))  # nothing changes them, so copies for several threads need no memory of their own
        return copy


class Blocks(NamedTuple):
    """The gradient of a convolution of stride 2 at its images, as a plain one that gives 2×2 blocks of pixels."""

    kernel: Tensor
    """(4·C, K, h, w): of each channel the four pixels of a block."""
    reach: list[int]
    """How far it is padded at each end."""
    begin: list[int]
    """Where its answer begins that belongs to the images."""

    @classmethod
    def of(cls, kernel: Tensor, padding: Sequence[int]) -> Blocks:
        """Of a (K, C, h, w) kernel.

        >>> Blocks.of(torch.ones(8, 3, 7, 7), (3, 3)).kernel.shape
        torch.Size([12, 8, 4, 4])
        """
        windows = list(zip(kernel.shape[2:], padding, strict=True))
        before = [(size - 1 - pad) // 2 for size, pad in windows]
        reach = [one + (1 + pad) // 2 for one, (_, pad) in zip(before, windows, strict=True)]
        made = kernel.new_zeros(kernel.shape[1], 2, 2, kernel.shape[0], *(one + 1 for one in reach))
        # Pixel 2m + f of an image meets window 2i + a - padding where a is 2(m - i) + f + padding.
        for f_y, f_x, y, x in product(range(2), range(2), range(reach[0] + 1), range(reach[1] + 1)):
            a_y, a_x = 2 * (before[0] - y) + f_y + padding[0], 2 * (before[1] - x) + f_x + padding[1]
            if 0 <= a_y < kernel.shape[2] and 0 <= a_x < kernel.shape[3]:
                made[:, f_y, f_x, :, y, x] = kernel[:, :, a_y, a_x].T
        return cls(made.flatten(0, 2), reach, [most - one for most, one in zip(reach, before, strict=True)])

    def pixels(self, answer: Tensor, gradient: Tensor) -> Tensor:
        """The images' gradient, of the answer to a (B, K, h, w) gradient."""
        (top, left), (height, width) = self.begin, gradient.shape[2:]
        return F.pixel_shuffle(answer[:, :, top : top + height, left : left + width], 2)


class Packed:
    """A (K, C, h, w) kernel as oneDNN multiplies it, for images of one shape: forwards, and backwards once needed.

    Args:
        weight: kernel.
        bias: or None.
        shape: (B, C, H, W) of the images.
        stride: of the convolution.
        padding: likewise.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, shape: torch.Size, stride: tuple[int, ...], padding: tuple[int, ...]
    ) -> None:
        self.shape, self.stride, self.padding = shape, stride, padding
        self.kernel, self.bias = weight.detach().contiguous(), None if bias is None else bias.detach()
        sizes = list(zip(shape[2:], self.kernel.shape[2:], stride, padding, strict=True))
        # Rows and columns of the image at its far end that no window reaches.
        self.rest = [(side + 2 * pad - window) % step for side, window, step, pad in sizes]
        self.sides = [(side + 2 * pad - window) // step + 1 for side, window, step, pad in sizes]
        with torch.no_grad():
            reorder = torch.ops.mkldnn._reorder_convolution_weight
            self.forwards: Tensor = reorder(self.kernel, padding, stride, _ONE, 1, list(shape))

    @cached_property
    def blocks(self) -> Blocks | None:
        """What ``backwards`` is of a first layer that halves its images.

        Of so few channels, a transposed convolution takes three times as long.
        """
        halves = self.stride == (2, 2) and list(self.shape[2:]) == [2 * side for side in self.sides]
        return Blocks.of(self.kernel, self.padding) if halves and self.shape[1] <= _FEW_CHANNELS else None

    @cached_property
    def backwards(self) -> Tensor:
        """The kernel, or its blocks, laid out for the gradient at the images."""
        own, answer = torch.ops.mkldnn, [self.shape[0], self.kernel.shape[0], *self.sides]
        with torch.no_grad():
            kept: Tensor
            if self.blocks is not None:
                kept = own._reorder_convolution_weight(self.blocks.kernel, self.blocks.reach, _ONE, _ONE, 1, answer)
            else:
                given = (self.padding, self.rest, self.stride, _ONE, 1, answer)
                kept = own._reorder_convolution_transpose_weight(self.kernel, *given)
            return kept

    def convolved(self, x: Tensor) -> Tensor:
        """The answer to images of its shape, channels side by side in both."""
        given = (self.forwards, self.bias, self.padding, self.stride, _ONE, 1)
        out: Tensor = torch.ops.mkldnn._convolution_pointwise(x, *given, "none", [], "")
        return out

    def returned(self, gradient: Tensor) -> Tensor:
        """The gradient at the images, of one at the answer; likewise."""
        if self.blocks is not None:
            own = (self.backwards, None, self.blocks.reach, _ONE, _ONE, 1)
            return self.blocks.pixels(torch.ops.mkldnn._convolution_pointwise(gradient, *own, "none", [], ""), gradient)
        given = (self.backwards, None, self.padding, self.rest, self.stride, _ONE, 1)
        out: Tensor = torch.ops.mkldnn._convolution_transpose_pointwise(gradient, *given, "none", [], "")
        return out


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Packed) -> Tensor:
        ctx.packed, ctx.plain = packed, x.is_contiguous()
        return packed.convolved(x.contiguous(memory_format=torch.channels_last))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        found = ctx.packed.returned(gradients[0].contiguous(memory_format=torch.channels_last))
        return found.contiguous() if ctx.plain else found, None


@cache
def packs() -> bool:
    """Whether torch lays out kernels in advance here: by operations that no page promises, so they are tried."""
    x = torch.linspace(-1, 1, 2 * 20 * 9 * 8).reshape(2, 20, 9, 8)
    weight, bias = torch.linspace(1, -1, 24 * 20 * 9).reshape(24, 20, 3, 3), torch.linspace(-1, 1, 24)
    last: Any = {"memory_format": torch.channels_last}
    try:
        with torch.enable_grad():
            leaf = x.requires_grad_()
            answer = F.conv2d(leaf, weight, bias, 2, 1)
            (gradient,) = torch.autograd.grad(answer.square().sum(), leaf)
        with torch.no_grad():
            packed = Packed(weight, bias, x.shape, (2, 2), (1, 1))
            own = packed.convolved(x.contiguous(**last))
            returned = packed.returned((2 * answer).contiguous(**last))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return all(
        one.shape == other.shape and one.is_contiguous(**last) and torch.allclose(one, other, rtol=1e-4, atol=1e-3)
        for one, other in ((own, answer), (returned, gradient))
    )


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
