"""Arrays in the layout a kernel asks for (spec 3 §6.2). What already lies so is used as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tatami.core.layout import Layout


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index of an axis to the next, where an array lies row by row."""
    out: list[int] = []
    step = 1
    for size in reversed(shape):
        out.insert(0, step)
        step *= max(size, 1)
    return tuple(out)


def lies_in(array: np.ndarray, layout: Layout | None) -> bool:
    """May a kernel read the array's memory as `layout`?"""
    if layout is None or layout.kind in ("row_major", "swizzled"):
        return bool(array.flags.c_contiguous)
    return layout.kind == "col_major" and bool(array.flags.f_contiguous)


def lay_out(array: np.ndarray, layout: Layout | None) -> np.ndarray:
    """A copy whose memory, read in order, is the array in `layout`; borders and block padding are zeros."""
    if layout is None or layout.kind in ("row_major", "swizzled"):
        return np.ascontiguousarray(array)
    if layout.kind == "col_major":
        return np.ascontiguousarray(array.T)
    rank = array.ndim
    border = [list(layout.padding[a]) if layout.padding else [0, 0] for a in range(rank)]
    whole = [1] * rank
    for axis, factor in layout.blocks:
        whole[axis] *= factor
    for axis in range(rank):
        border[axis][1] += -(array.shape[axis] + sum(border[axis])) % whole[axis]
    padded = np.pad(array, border)
    parts: list[list[int]] = [[s] for s in padded.shape]  # per axis: outer, then blocks from the last listed to the first
    for axis, factor in layout.blocks:
        parts[axis][0] //= factor
        parts[axis].insert(1, factor)
    split = padded.reshape([n for axis in parts for n in axis])
    first = np.cumsum([0, *(len(axis) for axis in parts)])
    seen = [0] * rank
    tail = []
    for axis, _ in layout.blocks:
        seen[axis] += 1
        tail.append(int(first[axis]) + len(parts[axis]) - seen[axis])
    outer = [int(first[a]) for a in layout.order or range(rank)]
    return np.ascontiguousarray(split.transpose(outer + tail))
