"""Read a quantised TensorFlow Lite file as data: its tensors and operators, of which nothing is run.

The format is a flatbuffer: tables point at one another by offsets, which a damaged file may point anywhere. So each
read is checked against the end of the file, and counts against what a network of images can need.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from whorl.errors import WhorlError

Kind = Literal["average pool", "concatenation", "convolution", "max pool", "reshape"]
Padding = Literal["SAME", "VALID"]
_T = TypeVar("_T")

# Numbers that TensorFlow Lite's schema gives to operators, padding schemes, dtypes and kinds of options.
_KINDS: dict[int, Kind] = {1: "average pool", 2: "concatenation", 3: "convolution", 17: "max pool", 22: "reshape"}
_PADDINGS: dict[int, Padding] = {0: "SAME", 1: "VALID"}
_DTYPES = {2: torch.int32, 3: torch.uint8}
_OPTIONS = {"average pool": 5, "concatenation": 10, "convolution": 1, "max pool": 5}
_MOST = 4096  # entries of any list but a tensor's data: lists that point at one another must not add up to hours


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantisedTensor:
    """A tensor of integers that stand for ``scale * (integer - zero_point)``.

    Attributes:
        name: as TensorFlow called it.
        shape: channels last, kernels as (out, height, width, in).
        data: the integers, uint8 or int32; None for what is computed.
        scale: above 0; None for integers that stand for themselves.
        zero_point: which integer stands for 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    data: Tensor | None
    scale: float | None
    zero_point: int

    def values(self) -> Tensor:
        """What a constant's integers stand for, in float64."""
        if self.data is None or self.scale is None:
            raise WhorlError(f"TensorFlow Lite tensor {self.name!r} must be a quantised constant.")
        return self.scale * (self.data.double() - self.zero_point)

    def range(self) -> tuple[float, float]:
        """The lowest and the highest number that a uint8 tensor can hold: what is beyond is clamped to it."""
        if self.scale is None or self.dtype != torch.uint8:
            raise WhorlError(f"TensorFlow Lite tensor {self.name!r} must be quantised to uint8.")
        return self.scale * -self.zero_point, self.scale * (255 - self.zero_point)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A step of the computation.

    Attributes:
        kind: what it does.
        inputs: which tensors it takes, by number.
        output: which tensor it makes.
        padding: of a convolution or pool.
        stride: rows and columns.
        window: rows and columns of a pool.
        axis: of a concatenation.
        fused: number of the activation that follows; 0 for none, where the output's range may still clamp.
    """

    kind: Kind
    inputs: tuple[int, ...]
    output: int
    padding: Padding = "VALID"
    stride: tuple[int, int] = (1, 1)
    window: tuple[int, int] = (1, 1)
    axis: int = 0
    fused: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantisedGraph:
    """A network: numbered tensors, operators in the order of computation, and the tensors at both ends."""

    tensors: tuple[QuantisedTensor, ...]
    operators: tuple[Operator, ...]
    input: int
    output: int


def read_tflite(path: Path) -> QuantisedGraph:
    """Read a TensorFlow Lite file with one graph of uint8 convolutions, pools and concatenations.

    Args:
        path: the file.

    Returns:
        What it says. Indices of tensors are checked; whether the operators make sense together is not.

    Raises:
        WhorlError: there is no such file, it is damaged, or it holds anything else.
    """
    try:
        return _graph(_Buffer(path.read_bytes()))
    except FileNotFoundError as error:
        raise WhorlError(f"there is no file {path}.") from error
    except (_MalformedError, UnicodeDecodeError) as error:
        raise WhorlError(f"{path} is not a TensorFlow Lite file that can be read here: {error}.") from error


class _MalformedError(Exception):
    """What is wrong with the file."""


class _Buffer:
    """The bytes of a flatbuffer."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, form: str, at: int) -> Any:
        # struct would count a negative place from the end
        if not 0 <= at <= len(self.data) - struct.calcsize(form):
            raise _MalformedError(f"it points at byte {at} of {len(self.data)}")
        return struct.unpack_from(form, self.data, at)[0]

    def followed(self, at: int) -> int:
        """Where the offset at a place leads."""
        return at + int(self.number("<I", at))


class _Table:
    """A table: fields by number, each of which may be left out."""

    def __init__(self, buffer: _Buffer, at: int) -> None:
        self.buffer, self.at = buffer, at
        self.fields = at - buffer.number("<i", at)
        self.size = buffer.number("<H", self.fields)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        offset = self.buffer.number("<H", self.fields + entry) if entry < self.size else 0
        return self.at + offset if offset else None

    def number(self, field: int, form: str = "<i", default: int = 0) -> Any:
        at = self._place(field)
        return default if at is None else self.buffer.number(form, at)

    def table(self, field: int) -> _Table:
        at = self._place(field)
        if at is None:
            raise _MalformedError(f"field {field} of the table at byte {self.at} is missing")
        return _Table(self.buffer, self.buffer.followed(at))

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def _vector(self, field: int, width: int, most: int = _MOST) -> range:
        """Where the entries of a vector lie that are so many bytes wide; nowhere if it is left out."""
        at = self._place(field)
        if at is None:
            return range(0)
        start = self.buffer.followed(at)
        count = self.buffer.number("<I", start)
        if count > most or start + 4 + count * width > len(self.buffer.data):
            raise _MalformedError(f"the vector at byte {start} has {count} entries")
        return range(start + 4, start + 4 + count * width, width)

    def numbers(self, field: int, form: str = "<i") -> tuple[Any, ...]:
        return tuple(self.buffer.number(form, at) for at in self._vector(field, struct.calcsize(form)))

    def content(self, field: int, most: int = _MOST) -> bytes:
        places = self._vector(field, 1, most)
        return self.buffer.data[places.start : places.stop]

    def tables(self, field: int) -> list[_Table]:
        return [_Table(self.buffer, self.buffer.followed(at)) for at in self._vector(field, 4)]


def _graph(buffer: _Buffer) -> QuantisedGraph:
    if buffer.data[4:8] != b"TFL3":
        raise _MalformedError("it does not start as one")
    model = _Table(buffer, buffer.followed(0))
    graph = _only(model.tables(2), "graph")
    buffers = model.tables(4)
    codes = [code.number(0, "<b") for code in model.tables(1)]
    tensors = tuple(_tensor(table, buffers) for table in graph.tables(0))
    start, end = _only(graph.numbers(1), "input"), _only(graph.numbers(2), "output")
    operators = tuple(_operator(table, codes) for table in graph.tables(3))
    for number in (start, end, *(one for step in operators for one in (*step.inputs, step.output))):
        if not 0 <= number < len(tensors):
            raise _MalformedError(f"it names tensor {number} of {len(tensors)}")
    return QuantisedGraph(tensors=tensors, operators=operators, input=start, output=end)


def _tensor(table: _Table, buffers: list[_Table]) -> QuantisedTensor:
    name, shape, dtype = table.content(3).decode(), table.numbers(0), _listed(_DTYPES, table.number(1, "<b"), "dtype")
    scale, zero_point = _quantisation(table.table(4)) if table.has(4) else (None, 0)
    if not 0 <= zero_point <= 255 * (dtype == torch.uint8):
        raise _MalformedError(f"tensor {name!r} has zero point {zero_point}")
    number = table.number(2, "<I")
    if number >= len(buffers):
        raise _MalformedError(f"tensor {name!r} is in buffer {number} of {len(buffers)}")
    content = buffers[number].content(0, most=len(table.buffer.data))
    if content and (min(shape, default=1) < 1 or math.prod(shape) * dtype.itemsize != len(content)):
        raise _MalformedError(f"tensor {name!r} of shape {shape} has {len(content)} bytes")
    # Little-endian, as every machine is that torch runs on. A bytearray, for torch wants what may be written to.
    data = torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape) if content else None
    return QuantisedTensor(name=name, shape=shape, dtype=dtype, data=data, scale=scale, zero_point=zero_point)


def _quantisation(table: _Table) -> tuple[float | None, int]:
    scales, zeros = table.numbers(2, "<f"), table.numbers(3, "<q")
    if not scales and not zeros:
        return None, 0
    if len(scales) != 1 or len(zeros) != 1 or not (math.isfinite(scales[0]) and scales[0] > 0):
        raise _MalformedError(f"expected one positive scale and one zero point for a tensor; got {scales} and {zeros}")
    return scales[0], zeros[0]


def _operator(table: _Table, codes: list[int]) -> Operator:
    code = table.number(0, "<I")
    if code >= len(codes):
        raise _MalformedError(f"it names operator code {code} of {len(codes)}")
    kind = _listed(_KINDS, codes[code], "operator")
    output = _only(table.numbers(2), f"output of a {kind}")
    inputs = table.numbers(1)
    if kind == "reshape":  # to a constant shape, which is its second input
        return Operator(kind=kind, inputs=inputs, output=output)
    if table.number(3, "<B") != _OPTIONS[kind]:
        raise _MalformedError(f"a {kind} has options of another operator")
    options = table.table(4)
    if kind == "concatenation":
        return Operator(kind=kind, inputs=inputs, output=output, axis=options.number(0), fused=options.number(1, "<b"))
    pool = kind != "convolution"
    stride = options.number(2), options.number(1)  # width comes first
    window = (options.number(4), options.number(3)) if pool else (1, 1)
    if not pool and (options.number(4, default=1) > 1 or options.number(5, default=1) > 1):
        raise _MalformedError("a convolution is dilated")
    if min(*stride, *window) < 1:
        raise _MalformedError(f"a {kind} has stride {stride} and window {window}")
    padding = _listed(_PADDINGS, options.number(0, "<b"), "padding")
    fused = options.number(5 if pool else 3, "<b")
    return Operator(kind=kind, inputs=inputs, output=output, padding=padding, stride=stride, window=window, fused=fused)


def _only(found: Sequence[_T], what: str) -> _T:
    if len(found) != 1:
        raise _MalformedError(f"expected one {what}; got {len(found)}")
    return found[0]


def _listed(known: Mapping[int, _T], number: int, what: str) -> _T:
    if number not in known:
        raise _MalformedError(f"expected {what} {', '.join(map(str, known))}; got {number}")
    return known[number]
