"""Arrays in the layout that a kernel requires (spec 3 §6.2). An array that has it already is used unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tatami.core.layout import Layout


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distance in elements between neighbours along each axis of an array that lies row by row."""
    out: list[int] = []
    step = 1
    for size in reversed(shape):
        out.insert(0, step)
        step *= max(size, 1)
    return tuple(out)


def lies_in(array: np.ndarray, layout: Layout | None) -> bool:
    """True if a kernel can read the array's memory as `layout`."""
    if layout is None or layout.kind in ("row_major", "swizzled"):
        return bool(array.flags.c_contiguous)
    return layout.kind == "col_major" and bool(array.flags.f_contiguous)


def lay_out(array: np.ndarray, layout: Layout | None) -> np.ndarray:
    """A copy whose memory, read in order, is the array in `layout`; borders and block padding are zeros."""
    if layout is None or layout.kind in ("row_major", "swizzled"):
        return np.ascontiguousarray(array)
    if layout.kind == "col_major":
        return np.ascontiguousarray(array.T)
    border, parts, order = _blocks(array.shape, layout)
    split = np.pad(array, border).reshape([n for axis in parts for n in axis])
    return np.ascontiguousarray(split.transpose(order))


def read_back(memory: np.ndarray, shape: tuple[int, ...], layout: Layout | None) -> np.ndarray:
    """The array of that shape which lies in `memory` in `layout`: the inverse of `lay_out`. A view if possible."""
    if layout is None or layout.kind in ("row_major", "swizzled"):
        return memory.reshape(shape)
    if layout.kind == "col_major":
        return memory.reshape(shape[::-1]).T
    border, parts, order = _blocks(shape, layout)
    sizes = [n for axis in parts for n in axis]
    split = memory.reshape([sizes[k] for k in order]).transpose(np.argsort(order))
    whole = split.reshape([s + sum(b) for s, b in zip(shape, border)])
    return whole[tuple(slice(before, before + s) for s, (before, _) in zip(shape, border))]


def packed_size(shape: tuple[int, ...], layout: Layout | None) -> int:
    """Number of elements of memory that an array of that shape takes in `layout`."""
    if layout is None or layout.kind != "blocked":
        return math.prod(shape)
    return math.prod(math.prod(axis) for axis in _blocks(shape, layout)[1])


def _blocks(shape: Sequence[int], layout: Layout) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """A blocked layout of an array of that shape: (elements before and after each axis, the sizes that each axis is split into
    from outer to inner, the order of all these in memory)."""
    rank = len(shape)
    border = [list(layout.padding[a]) if layout.padding else [0, 0] for a in range(rank)]
    block = [1] * rank
    for axis, factor in layout.blocks:
        block[axis] *= factor
    for axis in range(rank):
        border[axis][1] += -(shape[axis] + sum(border[axis])) % block[axis]
    parts: list[list[int]] = [
        [s + sum(b)] for s, b in zip(shape, border)
    ]  # outer, then blocks from the last listed to the first
    for axis, factor in layout.blocks:
        parts[axis][0] //= factor
        parts[axis].insert(1, factor)
    first = np.cumsum([0, *(len(axis) for axis in parts)])
    seen = [0] * rank
    tail = []
    for axis, _ in layout.blocks:
        seen[axis] += 1
        tail.append(int(first[axis]) + len(parts[axis]) - seen[axis])
    return border, parts, [*(int(first[a]) for a in layout.order or range(rank)), *tail]
