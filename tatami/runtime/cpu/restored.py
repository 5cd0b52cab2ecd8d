"""Weights held in memory once: the packed form of a constant also stands for the constant.

A constant that was given in memory is needed in addition to its packed form only for the model itself: `f.save`, `f.stages`,
`f.fetch`, another compilation. If the packed form has every bit of it, which is verified, it is restored from that at such a
use. Constants of a file are read from it again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import permutations, product

import numpy as np

from tatami.core.algebra.visit import concrete
from tatami.core.layout import ROW_MAJOR, Layout
from tatami.core.tensor import Tensor, numpy_dtype
from tatami.execution.ir import ExecutionPlan
from tatami.runtime.layouts import packed_size, read_back

SMALLEST = 1 << 20
"""Minimum bytes of a constant for which the comparison pays."""
PIECE = 1 << 18
"""Bytes that are compared at a time, so that they stay in cache."""
MOST_AXES = 4
"""Maximum number of axes of an operand whose packed form may have them in another order."""


def hold_once(
    setup: ExecutionPlan | None, given: Mapping[str, Tensor], pooled: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> None:
    """Enable `release` for constants that `pooled` holds, unchanged or packed by `setup`. `sizes`: of `setup`."""
    packed = {} if setup is None else dict(_packed(setup, sizes))
    for name, tensor in given.items():
        if tensor.nbytes < SMALLEST or tensor.can_be_read_again:
            continue
        if name in pooled:
            tensor.read_again_by(
                partial(_restored, pooled[name], tensor.shape, None, tuple(range(len(tensor.shape)))), sure=True
            )
        elif name in packed and packed[name][0] in pooled:
            output, shape, layout = packed[name]
            memory = pooled[output].reshape(-1)
            if memory.dtype != numpy_dtype(tensor.dtype) or len(shape) > MOST_AXES:
                continue
            for form, order in product(_forms(tensor.shape), permutations(range(len(shape)))):
                alike = tuple(shape[k] for k in order) == form
                if alike and _is_packed(tensor.array.reshape(form).transpose(np.argsort(order)), memory, layout):
                    tensor.read_again_by(partial(_restored, memory, shape, layout, order), sure=True)
                    break


def _forms(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Shapes in which a kernel may read the same bytes: without axes of one element, a filter as the row of a matrix."""
    longer = tuple(s for s in shape if s != 1)
    return tuple(dict.fromkeys((shape, longer, (shape[0], math.prod(shape[1:])))))


def _packed(setup: ExecutionPlan, sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, tuple[int, ...], Layout | None]]]:
    """(constant, (name, shape, layout) of a step's result that is made from it alone)."""
    read = dict(zip(setup.input_buffers, (p.tensor for p in setup.signature.inputs)))
    made = dict(zip(setup.output_buffers, setup.signature.outputs))
    for ins in setup.instructions:
        if len(ins.inputs) == len(ins.outputs) == 1 and ins.inputs[0] in read and ins.outputs[0] in made:
            port = made[ins.outputs[0]]
            yield read[ins.inputs[0]], (port.tensor, concrete(port.shape, sizes), port.layout)


def _is_packed(whole: np.ndarray, memory: np.ndarray, layout: Layout | None) -> bool:
    """True if `memory` has every bit of `whole` in `layout`, compared in pieces along the outermost axis, which are
    contiguous."""
    layout = layout or ROW_MAJOR
    if layout.kind not in ("row_major", "blocked") or layout.padding or memory.size != packed_size(whole.shape, layout):
        return False
    axis = layout.order[0] if layout.order else 0
    block = math.prod(factor for a, factor in layout.blocks if a == axis)
    size = whole.shape[axis]
    count = -(-size // block)
    slab = memory.size // count
    each = max(1, PIECE // (slab * memory.itemsize))
    word = np.dtype(f"u{memory.itemsize}")
    for k in range(0, count, each):
        part = [slice(None)] * whole.ndim
        part[axis] = slice(k * block, min(size, (k + each) * block))
        piece = whole[tuple(part)]
        packed = read_back(memory[k * slab : (k + each) * slab], piece.shape, layout)
        if not np.array_equal(packed.view(word), piece.view(word)):
            return False
    return True


def _restored(memory: np.ndarray, shape: tuple[int, ...], layout: Layout | None, order: tuple[int, ...]) -> memoryview:
    """The bytes of a constant; a view of `memory` if it lies there unchanged."""
    whole = np.ascontiguousarray(read_back(memory, shape, layout).transpose(order))
    return whole.reshape(-1).view("u1").data.toreadonly()
