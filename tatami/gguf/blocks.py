"""Tensors in blocks: raw bytes to codes and scales in numpy, and the graph operations that make numbers of them.

    value[n, k] = codes[n, k] * scale[n, k // block] + offset[n, k // block]

A scale or offset is a number of 16 bits per block, or, in K formats, one per 256 weights times a small integer per block. Both
are multiplied in the graph, so that a file's bits are all that a program holds of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr, exact_div
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gguf.formats import Format


class Factor(NamedTuple):
    """A number per block: `of_group` [N, groups] in fp16, times `of_block` [N, blocks] if there is one."""

    of_group: np.ndarray
    of_block: np.ndarray | None = None


class Blocks(NamedTuple):
    """The codes [N, K] of a matrix in blocks, and what they are multiplied with and added to. `scale` None: numbers as they
    are, in fp32, fp16 or bf16."""

    codes: np.ndarray
    scale: Factor | None = None
    offset: Factor | None = None


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
    """[N, blocks, 2] bytes as [N, blocks] fp16."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0]


def _joined(codes: np.ndarray) -> np.ndarray:
    """Codes [N, blocks, ..] as [N, K]."""
    return codes.reshape(codes.shape[0], -1)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """[.., n] bytes as [.., 2n]: all low nibbles, then all high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _bits(raw: np.ndarray) -> np.ndarray:
    """[.., 4] bytes as their 32 bits, lowest first."""
    return np.unpackbits(raw, axis=-1, bitorder="little")


def _q4_0(raw: np.ndarray) -> Blocks:
    codes = _nibbles(raw[..., 2:]).astype(np.int8) - 8
    return Blocks(_joined(codes).astype(ml_dtypes.int4), Factor(_half(raw[..., :2])))


def _q4_1(raw: np.ndarray) -> Blocks:
    codes = _joined(_nibbles(raw[..., 4:])).astype(ml_dtypes.uint4)
    return Blocks(codes, Factor(_half(raw[..., :2])), Factor(_half(raw[..., 2:4])))


def _q5_0(raw: np.ndarray) -> Blocks:
    codes = (_nibbles(raw[..., 6:]) | _bits(raw[..., 2:6]) << 4).astype(np.int8) - 16
    return Blocks(_joined(codes), Factor(_half(raw[..., :2])))


def _q5_1(raw: np.ndarray) -> Blocks:
    codes = _nibbles(raw[..., 8:]) | _bits(raw[..., 4:8]) << 4
    return Blocks(_joined(codes), Factor(_half(raw[..., :2])), Factor(_half(raw[..., 2:4])))


def _q8_0(raw: np.ndarray) -> Blocks:
    return Blocks(_joined(np.ascontiguousarray(raw[..., 2:]).view(np.int8)), Factor(_half(raw[..., :2])))


def _scales_of_six_bits(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight scales and eight offsets [N, groups, 8] in the 12 bytes of a K block."""
    a, b, c = raw[..., :4], raw[..., 4:8], raw[..., 8:12]
    scales = np.concatenate([a & 63, c & 15 | (a >> 6) << 4], axis=-1)
    return scales, np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], axis=-1)


def _runs_of_64(raw: np.ndarray) -> np.ndarray:
    """[N, groups, 128] bytes as nibbles [N, groups, 8, 32]: 32 bytes hold 32 low nibbles, then 32 high ones."""
    return _nibbles(raw.reshape(*raw.shape[:2], 4, 32)).reshape(*raw.shape[:2], 8, 32)


def _q4_k(raw: np.ndarray) -> Blocks:
    scales, lows = _scales_of_six_bits(raw[..., 4:16])
    codes = _joined(_runs_of_64(raw[..., 16:])).astype(ml_dtypes.uint4)
    return Blocks(codes, Factor(_half(raw[..., :2]), _joined(scales)), Factor(-_half(raw[..., 2:4]), _joined(lows)))


def _q5_k(raw: np.ndarray) -> Blocks:
    scales, lows = _scales_of_six_bits(raw[..., 4:16])
    high = np.unpackbits(raw[..., 16:48, None], axis=-1, bitorder="little").swapaxes(-1, -2)
    codes = _runs_of_64(raw[..., 48:]) | high << 4
    return Blocks(_joined(codes), Factor(_half(raw[..., :2]), _joined(scales)), Factor(-_half(raw[..., 2:4]), _joined(lows)))


def _q6_k(raw: np.ndarray) -> Blocks:
    low = _nibbles(raw[..., :128].reshape(*raw.shape[:2], 2, 64)).reshape(*raw.shape[:2], 2, 4, 32)
    pairs = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1) & 3
    codes = (low | pairs << 4).astype(np.int8) - 32
    scales = _joined(np.ascontiguousarray(raw[..., 192:208]).view(np.int8))
    return Blocks(_joined(codes), Factor(_half(raw[..., 208:]), scales))


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
        self.factors = [
            None
            if f is None
            else (graph.constant(f.of_group, f"{name}.{part}", role="param"), self._of_block(graph, name, part, f))
            for part, f in (("scale", blocks.scale), ("offset", blocks.offset))
        ]

    @staticmethod
    def _of_block(graph: Graph, name: str, part: str, f: Factor) -> Tensor | None:
        return None if f.of_block is None else graph.constant(f.of_block, f"{name}.{part}.of_block", role="param")

    def values(self) -> Tensor:
        """All numbers [N, K] in fp32."""
        return self._made(lambda t: t)

    def rows(self, index: Tensor) -> Tensor:
        """The numbers [*index, K] of some rows."""
        return self._made(lambda t: t.take(index, 0))

    def _made(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        value = of(self.codes).cast(DType.fp32)
        scale, offset = (self._along(f, of, value) for f in self.factors)
        value = value if scale is None else value * scale
        return value if offset is None else value + offset

    @staticmethod
    def _along(factor: tuple[Tensor, Tensor | None] | None, of: Callable[[Tensor], Tensor], like: Tensor) -> Tensor | None:
        """A factor repeated along the weights of its blocks, in the shape of `like`."""
        if factor is None:
            return None
        group, block = factor
        number = of(group).cast(DType.fp32)
        if block is not None:
            each = of(block).cast(DType.fp32)
            number = _repeated(number, each.shape[-1]) * each
        return _repeated(number, like.shape[-1])


def _repeated(x: Tensor, size: Expr) -> Tensor:
    """The elements of the last axis, each repeated so often that there are `size`."""
    *lead, count = x.shape
    times = exact_div(size, count)
    assert times is not None
    return x.unsqueeze(x.rank).expand((*lead, count, times)).reshape((*lead, size))
