"""Tensors in blocks: raw bytes to codes, scales and offsets in numpy, and the graph operations that compute with them.

    value[n, k] = codes[n, k] * scale[n, k // block] + offset[n, k // block]
    x @ value^T = x @ dequantize(codes, scale)^T + (sums of x over blocks) @ offset^T

Codes are signed numbers of 4 or 8 bits, which a product reads as they are (`frontend/rewrites/narrow_weights.py`); codes from 0 on
are shifted, and the offset with them. A scale of K formats is a small integer times a number of 16 bits, exact in fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

import ml_dtypes
import numpy as np

from tatami.core.dtype import DType
from tatami.core.tensor import Tensor as Payload
from tatami.core.tensor import dtype_of
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import placed
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gguf.formats import Format

Part: TypeAlias = Literal["codes", "scale", "offset"]
"""A part of a matrix in blocks."""
Made: TypeAlias = Callable[[], np.ndarray]
PIECE = 1 << 20
"""Bytes of a file that are made codes and scales at a time: a matrix needs no further memory of its size."""


class Blocks(NamedTuple):
    """The parts of a matrix, each made when it is called: codes [N, K], and scales and offsets [N, blocks] in fp32. `scale` None:
    numbers as they are, in fp32, fp16 or bf16."""

    codes: Made
    scale: Made | None = None
    offset: Made | None = None

    def part(self, part: Part) -> np.ndarray:
        """A part that the matrix has."""
        made: Made | None = getattr(self, part)
        assert made is not None
        return made()


def split_blocks(data: bytes, form: Format, columns: int) -> Blocks:
    """Codes, scales and offsets of the rows with these bytes."""
    if form.name in _PLAIN:
        return Blocks(lambda: np.frombuffer(data, _PLAIN[form.name]).reshape(-1, columns))
    return _SPLIT[form.name](np.frombuffer(data, np.uint8).reshape(-1, columns // form.weights, form.bytes))


class StoredMatrix(NamedTuple):
    """A matrix [rows, columns] in a file. `read` reads the bytes of some rows: from the first one on, and how many."""

    form: Format
    rows: int
    columns: int
    read: Callable[[int, int], bytes]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that the matrix has, in order."""
        first = split_blocks(self.read(0, 1), self.form, self.columns)
        return tuple(part for part in get_args(Part) if getattr(first, part) is not None)

    def part(self, part: Part) -> np.ndarray:
        """One part of all rows, read piece by piece."""
        each = max(1, PIECE // (self.columns // self.form.weights * self.form.bytes))
        out: np.ndarray | None = None
        for first in range(0, self.rows, each):
            count = min(each, self.rows - first)
            piece = split_blocks(self.read(first, count), self.form, self.columns).part(part)
            out = np.empty((self.rows, piece.shape[1]), piece.dtype) if out is None else out
            out[first : first + count] = piece
        assert out is not None
        return out

    def constant(self, part: Part) -> Payload:
        """One part as a constant that is read again where it is needed: of a large model, memory holds only what kernels read."""

        def again() -> memoryview:
            return self.part(part).reshape(-1).view(np.uint8).data.toreadonly()

        array = self.part(part)
        dtype = dtype_of(array)
        assert dtype is not None
        made = Payload.of_bytes(array.reshape(-1).view(np.uint8).data.toreadonly(), dtype, array.shape)
        made.read_again_by(again)
        made.release()
        return made


_PLAIN: dict[str, type | np.dtype] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def _half(raw: np.ndarray) -> np.ndarray:
    """[N, blocks, 2] bytes of fp16 as [N, blocks] fp32."""
    numbers: np.ndarray = np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)
    return numbers


def _joined(codes: np.ndarray) -> np.ndarray:
    """Codes [N, blocks, ..] as [N, K]."""
    return codes.reshape(codes.shape[0], -1)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """[.., n] bytes as [.., 2n]: all low nibbles, then all high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _bits(raw: np.ndarray) -> np.ndarray:
    """[.., 4] bytes as their 32 bits, lowest first."""
    return np.unpackbits(raw, axis=-1, bitorder="little")


def _signed(codes: np.ndarray, middle: int) -> np.ndarray:
    """Codes from 0 on as [N, K] signed ones, `middle` as 0: 4 bits if they fit, else 8."""
    return _joined(codes.astype(np.int8) - np.int8(middle)).astype(ml_dtypes.int4 if middle == 8 else np.int8)


def _shifted(codes: Made, middle: int, scale: Made, offset: Made) -> Blocks:
    """Blocks of codes * scale + offset, with signed codes."""
    return Blocks(lambda: _signed(codes(), middle), scale, lambda: offset() + np.float32(middle) * scale())


def _q4_0(raw: np.ndarray) -> Blocks:
    return Blocks(lambda: _signed(_nibbles(raw[..., 2:]), 8), lambda: _half(raw[..., :2]))


def _q4_1(raw: np.ndarray) -> Blocks:
    return _shifted(lambda: _nibbles(raw[..., 4:]), 8, lambda: _half(raw[..., :2]), lambda: _half(raw[..., 2:4]))


def _q5_0(raw: np.ndarray) -> Blocks:
    return Blocks(lambda: _signed(_nibbles(raw[..., 6:]) | _bits(raw[..., 2:6]) << 4, 16), lambda: _half(raw[..., :2]))


def _q5_1(raw: np.ndarray) -> Blocks:
    def codes() -> np.ndarray:
        return _nibbles(raw[..., 8:]) | _bits(raw[..., 4:8]) << 4

    return _shifted(codes, 16, lambda: _half(raw[..., :2]), lambda: _half(raw[..., 2:4]))


def _q8_0(raw: np.ndarray) -> Blocks:
    return Blocks(lambda: _joined(np.ascontiguousarray(raw[..., 2:]).view(np.int8)), lambda: _half(raw[..., :2]))


def _of_groups(group: np.ndarray, each: np.ndarray) -> np.ndarray:
    """A number [N, groups] times a small integer for each of its blocks [N, groups, blocks], as [N, all blocks]."""
    return _joined(group[..., None] * each.astype(np.float32))


def _six_bits(raw: np.ndarray) -> tuple[Made, Made]:
    """The scales and offsets [N, all blocks] of K blocks: two numbers of 16 bits, and twice eight of 6 bits in 12 bytes."""
    a, b, c = raw[..., 4:8], raw[..., 8:12], raw[..., 12:16]

    def scale() -> np.ndarray:
        return _of_groups(_half(raw[..., :2]), np.concatenate([a & 63, c & 15 | (a >> 6) << 4], axis=-1))

    def offset() -> np.ndarray:
        return _of_groups(-_half(raw[..., 2:4]), np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], axis=-1))

    return scale, offset


def _runs_of_64(raw: np.ndarray) -> np.ndarray:
    """[N, groups, 128] bytes as nibbles [N, groups, 8, 32]: 32 bytes hold 32 low nibbles, then 32 high ones."""
    return _nibbles(raw.reshape(*raw.shape[:2], 4, 32)).reshape(*raw.shape[:2], 8, 32)


def _q4_k(raw: np.ndarray) -> Blocks:
    return _shifted(lambda: _runs_of_64(raw[..., 16:]), 8, *_six_bits(raw))


def _q5_k(raw: np.ndarray) -> Blocks:
    def codes() -> np.ndarray:
        high = np.unpackbits(raw[..., 16:48, None], axis=-1, bitorder="little").swapaxes(-1, -2)
        return _runs_of_64(raw[..., 48:]) | high << 4

    return _shifted(codes, 16, *_six_bits(raw))


def _q6_k(raw: np.ndarray) -> Blocks:
    def codes() -> np.ndarray:
        low = _nibbles(raw[..., :128].reshape(*raw.shape[:2], 2, 64)).reshape(*raw.shape[:2], 2, 4, 32)
        pairs = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & 3
        return _signed(low | pairs << 4, 32)

    def scale() -> np.ndarray:
        return _of_groups(_half(raw[..., 208:]), np.ascontiguousarray(raw[..., 192:208]).view(np.int8))

    return Blocks(codes, scale)


_SPLIT: dict[str, Callable[[np.ndarray], Blocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


class Matrix:
    """A matrix [N, K] of a graph in its blocks."""

    def __init__(self, graph: Graph, name: str, stored: StoredMatrix) -> None:
        names = {"codes": name}
        self.tensor = f"{name}.weight"
        """The tensor's name in the file, to which nodes are traced."""
        made = {part: stored.constant(part) for part in stored.parts}
        found = {part: graph.constant(t, names.get(part, f"{name}.{part}"), role="param") for part, t in made.items()}
        self.codes, self.scale, self.offset = found["codes"], found.get("scale"), found.get("offset")
        self.depth = stored.columns
        self.block = self.depth // made["scale"].shape[1] if "scale" in made else 0

    def product(self, x: Tensor) -> Tensor:
        """x [.., K] times the transposed matrix."""
        with placed(self.tensor):
            if self.scale is None:
                return x @ self.codes.cast(DType.fp32).transpose()
            y = x @ self.codes.dequantize(self.scale, axis=1, block=self.block).transpose()
            if self.offset is None:
                return y
            sums = x.reshape((*x.shape[:-1], self.depth // self.block, self.block)).sum(x.rank)
            return y + sums @ self.offset.transpose()

    def rows(self, index: Tensor) -> Tensor:
        """The numbers [*index, K] of some rows."""
        with placed(self.tensor):
            value = self.codes.take(index, 0).cast(DType.fp32)
            if self.scale is not None:
                value = value * self._along(self.scale.take(index, 0))
            return value if self.offset is None else value + self._along(self.offset.take(index, 0))

    def _along(self, numbers: Tensor) -> Tensor:
        """A number per block [.., blocks], repeated along the weights of the block."""
        *lead, count = numbers.shape
        wide = numbers.unsqueeze(numbers.rank).expand((*lead, count, self.block))
        return wide.reshape((*lead, self.depth))
