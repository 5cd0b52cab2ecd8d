"""Tensors in blocks: raw bytes to codes, scales and offsets in numpy, and the graph operations that compute with them.

    value[n, k] = codes[n, k] * scale[n, k // block] + offset[n, k // block]
    x @ value^T = x @ dequantize(codes, scale)^T + (sums of x over blocks) @ offset^T

Codes are signed numbers of 4 or 8 bits, which a product reads as they are (`frontend/rewrites/narrow_weights.py`); codes from 0 on
are shifted, and the offset with them. A scale of K formats is a small integer times a number of 16 bits, exact in fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gguf.formats import Format


class Blocks(NamedTuple):
    """The codes [N, K] of a matrix, and the scales and offsets [N, blocks] in fp32. `scale` None: numbers as they are, in fp32,
    fp16 or bf16."""

    codes: np.ndarray
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None


def split_blocks(data: bytes, form: Format, shape: tuple[int, ...]) -> Blocks:
    """Codes, scales and offsets of a tensor with these bytes; leading axes are joined."""
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    if form.name in _PLAIN:
        return Blocks(np.frombuffer(data, _PLAIN[form.name]).reshape(rows, shape[-1]))
    raw = np.frombuffer(data, np.uint8).reshape(rows, -1, form.bytes)
    return _SPLIT[form.name](raw)


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


def _shifted(codes: np.ndarray, middle: int, scale: np.ndarray, offset: np.ndarray) -> Blocks:
    """Blocks of codes * scale + offset, with signed codes."""
    return Blocks(_signed(codes, middle), scale, offset + np.float32(middle) * scale)


def _q4_0(raw: np.ndarray) -> Blocks:
    return Blocks(_signed(_nibbles(raw[..., 2:]), 8), _half(raw[..., :2]))


def _q4_1(raw: np.ndarray) -> Blocks:
    return _shifted(_nibbles(raw[..., 4:]), 8, _half(raw[..., :2]), _half(raw[..., 2:4]))


def _q5_0(raw: np.ndarray) -> Blocks:
    return Blocks(_signed(_nibbles(raw[..., 6:]) | _bits(raw[..., 2:6]) << 4, 16), _half(raw[..., :2]))


def _q5_1(raw: np.ndarray) -> Blocks:
    return _shifted(_nibbles(raw[..., 8:]) | _bits(raw[..., 4:8]) << 4, 16, _half(raw[..., :2]), _half(raw[..., 2:4]))


def _q8_0(raw: np.ndarray) -> Blocks:
    return Blocks(_joined(np.ascontiguousarray(raw[..., 2:]).view(np.int8)), _half(raw[..., :2]))


def _of_groups(group: np.ndarray, each: np.ndarray) -> np.ndarray:
    """A number [N, groups] times a small integer for each of its blocks [N, groups, blocks], as [N, all blocks]."""
    return _joined(group[..., None] * each.astype(np.float32))


def _scales_of_six_bits(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales and offsets [N, all blocks] of K blocks: two numbers of 16 bits, and twice eight of 6 bits in 12 bytes."""
    a, b, c = raw[..., 4:8], raw[..., 8:12], raw[..., 12:16]
    scales = np.concatenate([a & 63, c & 15 | (a >> 6) << 4], axis=-1)
    lows = np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], axis=-1)
    return _of_groups(_half(raw[..., :2]), scales), _of_groups(-_half(raw[..., 2:4]), lows)


def _runs_of_64(raw: np.ndarray) -> np.ndarray:
    """[N, groups, 128] bytes as nibbles [N, groups, 8, 32]: 32 bytes hold 32 low nibbles, then 32 high ones."""
    return _nibbles(raw.reshape(*raw.shape[:2], 4, 32)).reshape(*raw.shape[:2], 8, 32)


def _q4_k(raw: np.ndarray) -> Blocks:
    return _shifted(_runs_of_64(raw[..., 16:]), 8, *_scales_of_six_bits(raw))


def _q5_k(raw: np.ndarray) -> Blocks:
    high = np.unpackbits(raw[..., 16:48, None], axis=-1, bitorder="little").swapaxes(-1, -2)
    return _shifted(_runs_of_64(raw[..., 48:]) | high << 4, 16, *_scales_of_six_bits(raw))


def _q6_k(raw: np.ndarray) -> Blocks:
    low = _nibbles(raw[..., :128].reshape(*raw.shape[:2], 2, 64)).reshape(*raw.shape[:2], 2, 4, 32)
    pairs = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & 3
    scales = np.ascontiguousarray(raw[..., 192:208]).view(np.int8)
    return Blocks(_signed(low | pairs << 4, 32), _of_groups(_half(raw[..., 208:]), scales))


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

    def __init__(self, graph: Graph, name: str, blocks: Blocks) -> None:
        self.codes = graph.constant(blocks.codes, name, role="param")
        self.scale, self.offset = (
            None if numbers is None else graph.constant(numbers, f"{name}.{part}", role="param")
            for part, numbers in (("scale", blocks.scale), ("offset", blocks.offset))
        )
        self.depth = blocks.codes.shape[1]
        self.block = 0 if blocks.scale is None else self.depth // blocks.scale.shape[1]

    def product(self, x: Tensor) -> Tensor:
        """x [.., K] times the transposed matrix."""
        if self.scale is None:
            return x @ self.codes.cast(DType.fp32).transpose()
        y = x @ self.codes.dequantize(self.scale, axis=1, block=self.block).transpose()
        if self.offset is None:
            return y
        sums = x.reshape((*x.shape[:-1], self.depth // self.block, self.block)).sum(x.rank)
        return y + sums @ self.offset.transpose()

    def rows(self, index: Tensor) -> Tensor:
        """The numbers [*index, K] of some rows."""
        value = self.codes.take(index, 0).cast(DType.fp32)
        if self.scale is not None:
            value = value * self._along(self.scale.take(index, 0))
        return value if self.offset is None else value + self._along(self.offset.take(index, 0))

    def _along(self, numbers: Tensor) -> Tensor:
        """A number per block [.., blocks], repeated along the weights of the block."""
        *lead, count = numbers.shape
        wide = numbers.unsqueeze(numbers.rank).expand((*lead, count, self.block))
        return wide.reshape((*lead, self.depth))
