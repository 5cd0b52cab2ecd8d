"""Operands and results of a contraction that are matrices in memory, so that a kernel can use them without a copy.

x[b, m, k] of a contiguous tensor    rows m, columns k: at 0, pitch K        rows k, columns m: no matrix, columns lie apart
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, expr, var
from tatami.core.layout import address
from tatami.core.scalar import number
from tatami.region.ir import Read, Reduce, Region
from tatami.region.views.contraction import ContractionShape
from tatami.region.views.narrow import Groups, lying_read
from tatami.region.walk import Types, all_axes, lets_by_name, written_index


def by_images(shape: ContractionShape, images: tuple[str, ...]) -> ContractionShape:
    """The contraction with the axes `images` of one side moved to the batch: they are processed one at a time."""
    m, n = (tuple(a for a in group if a not in images) for group in (shape.m, shape.n))
    return msgspec.structs.replace(shape, batch=(*shape.batch, *images), m=m, n=n)


class Matrix(msgspec.Struct, frozen=True):
    """Element (i, j) of a block of `tensor` is at ``first + i * pitch + j``; i and j are linear over groups of axes. `first`:
    an address over the other axes."""

    tensor: str
    first: Expr
    pitch: Expr


def side_matrix(
    region: Region, shape: ContractionShape, side: Literal["m", "n"], swap: bool, groups: Groups | None = None
) -> Matrix | None:
    """The matrix of one operand, if it is read unchanged in the dtype of the sums; else None. Rows and columns are m and k, or
    k and n.

    `swap` exchanges the operands. With `groups` (narrow integers; side "m" only, groups of neighbours in memory) an element is
    one number of a group.
    """
    is_lhs = (side == "m") != swap
    operand, own = (shape.lhs, shape.m) if is_lhs else (shape.rhs, shape.n)
    reduce = lets_by_name(region)[shape.acc].expr
    assert isinstance(reduce, Reduce)
    read = lying_read(operand, groups, Types(region)) if groups is not None else operand
    if not isinstance(read, Read):
        return None
    memref = next(p.memref for p in region.inputs if p.name == read.tensor)
    at = address(memref.layout, memref.shape, read.map)
    if groups is None and memref.dtype != reduce.dtype:
        return None
    if groups is not None and (side == "n" or step_of(at, groups.axis) != ONE):
        return None
    rows, columns = (own, shape.k) if side == "m" else (shape.k, own)
    return _matrix(read.tensor, at, rows, columns, all_axes(region))


def result_matrix(region: Region, acc: str, rows: Sequence[str], columns: Sequence[str]) -> Matrix | None:
    """The matrix into which the sums can be written directly: the Region's only output, which stores nothing but them. None if
    there is no such matrix."""
    let = lets_by_name(region)[acc]
    assert isinstance(let.expr, Reduce)
    if len(region.yields) != 1 or len(region.outputs) != 1:
        return None
    written, target = region.yields[0], region.outputs[0]
    plain = written.source == acc and not written.indices and written.combine == "set" and not target.updates
    if not plain or {let.expr.dtype, let.dtype, written.cast or let.dtype, target.memref.dtype} != {let.expr.dtype}:
        return None
    if let.expr.init is not None and number(let.expr.init) != 0:
        return None
    at = address(target.memref.layout, target.memref.shape, written_index(written, let.axes))
    return _matrix(target.name, at, rows, columns, all_axes(region))


def _matrix(tensor: str, at: Expr, rows: Sequence[str], columns: Sequence[str], extents: Mapping[str, Expr]) -> Matrix | None:
    pitch, step = _step(at, rows, extents), _step(at, columns, extents)
    if pitch is None or step not in (ONE, ZERO):
        return None
    return Matrix(tensor, substitute(at, dict.fromkeys((*rows, *columns), ZERO)), pitch)


def _step(at: Expr, axes: Sequence[str], extents: Mapping[str, Expr]) -> Expr | None:
    """Address difference of one step of the linear index over `axes`: 0 if there is one element, None if steps differ."""
    step: Expr | None = None
    inner = ONE
    for axis in reversed(axes):
        if extents[axis] == ONE:
            continue
        own = step_of(at, axis)
        if own is None or free_vars(own) & extents.keys():
            return None
        if step is None:
            step = own
        elif own != step * inner:
            return None
        inner = inner * extents[axis]
    return ZERO if step is None else step


def write_addresses(region: Region) -> tuple[Expr, ...]:
    """The address that each yield writes, over its let's axes, in a Region that scatters nothing."""
    axes = {let.name: let.axes for let in region.lets}
    outputs = {o.name: o.memref for o in region.outputs}
    found = ((outputs[y.to], written_index(y, axes[y.source])) for y in region.yields)
    return tuple(address(memref.layout, memref.shape, index) for memref, index in found)


def results_go_down(addresses: Sequence[Expr], rows: tuple[str, ...], columns: tuple[str, ...]) -> bool:
    """True if results that are contiguous in memory form a column of the sums."""
    if not (rows and columns):
        return False
    return all(step_of(a, rows[-1]) == ONE and step_of(a, columns[-1]) != ONE for a in addresses)


def rows_alternate(addresses: Sequence[Expr], rows: tuple[str, ...], columns: tuple[str, ...], count: Expr) -> bool:
    """True if results of rows 2i and 2i + 1 of the sums alternate in memory. `count`: the number of rows."""
    m = count.as_int()
    if m is None or m % 2 or len(rows) != 1 or not columns:
        return False
    row, column = rows[0], columns[-1]
    for at in addresses:
        one, other = (substitute(at, {row: var(row) * 2 + i}) for i in range(2))
        if step_of(one, column) != expr(2) or other - one != ONE:
            return False
    return True
