"""Packed forms of constant operands, made by `setup` as the plan of a Region asks (plan/realise.py inserts them).

A packed operand is a matrix [batch…, K, N] of the accumulation dtype, K and N linear over the contraction's k and n axes, in
the layout ``[batch…][N / block][K][block]``: any part of k of a sliver is contiguous.

    cpu_contraction   the columns' operand itself, slivers of nr; narrow integers joined in groups of k (region/views/narrow.py);
                      codes, zero points and scales of a dequantised one, each by itself; or the rows' operand, panels of mr
    cpu_planes        the weights of a convolution, panels of as many filters each
    cpu_places        the same, joined in groups of channels, slivers of nr filters
    cpu_winograd      3x3 weights transformed to 16 matrices (region/views/images/winograd.py): [batch…, 16, C, F], slivers of nr filters

The realised Region computes the operand from its packed form. For transformed weights this is the inverse transform, which is
short: weights 0, 1, 2 of a dimension are its matrices 0, 1, 3, or 0, 1 - 2, 3.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, expr, floordiv, product, var
from tatami.indexbook.ir import Guard
from tatami.plan.ir import DOT_COUNT, CpuContraction, CpuPlaces, CpuPlanes, CpuWinograd, PackedPlan, SchedulePlan
from tatami.region.ir import Binary, Cast, Const, Index, Let, Read, Reduce, Ref, Region, RegionExpr, Select, Within
from tatami.region.views.dequantised import find_dequantised, row_at, row_of_part, rows_of
from tatami.region.views.images.convolution import find_convolution
from tatami.region.views.images.places import find_places
from tatami.region.views.images.planes import panel_of
from tatami.region.views.images.winograd import MATRICES, WINDOW, TransformTile, tiles_of
from tatami.region.views.kinds import ContractionShape, contractions, operand_tensor
from tatami.region.views.narrow import Groups, groups_of, joined, narrow_dtype, parted
from tatami.region.views.slides import Slide
from tatami.region.walk import Types, all_axes, let_uses, lets_by_name, reads, substitute_axes

STORED_NARROW = (DType.i8, DType.u8, DType.fp16, DType.bf16)
"""Dtypes of slivers that micro-kernels of fp32 widen in registers."""


class PackedOperand(msgspec.Struct, frozen=True):
    """A packed operand of the contraction `acc`. `lets` compute the packed form from `tensor`, the last of them over `index`;
    `read` is the operand again, from the packed tensor of the given name. `operand` may be a part of the contraction's operand."""

    acc: str
    operand: RegionExpr
    tensor: str
    lets: tuple[Let, ...]
    sizes: dict[str, Expr]
    shape: Shape
    index: tuple[Expr, ...]
    block: int
    read: Callable[[str], RegionExpr]


def packed_operands(region: Region, plan: SchedulePlan) -> tuple[PackedOperand, ...]:
    """The operands that `plan` wants packed and that can be: their extents are numbers, and each reads one tensor."""
    if not isinstance(plan, PackedPlan):
        return ()
    shape = next((c for c in contractions(region) if c.acc == plan.acc), None)
    if shape is None:
        return ()
    if isinstance(plan, CpuWinograd):
        found = _transformed(region, plan)
    elif isinstance(plan, CpuPlaces):
        places = find_places(region)
        if isinstance(places, str):
            return ()
        found = _slivers(region, plan, shape, places.conv.weights, places.conv.filters, plan.nr)
    elif isinstance(plan, CpuPlanes):
        found = _panels(region, plan)
    else:
        (rows, m), (columns, n) = ((shape.rhs, shape.n), (shape.lhs, shape.m))[:: 1 if plan.swap else -1]
        if parts := _parts(region, plan, shape, columns, n):
            return parts
        found = _slivers(region, plan, shape, columns, n, plan.nr)
        if found is None and packs_rows(region, shape, plan):
            found = _slivers(region, plan, shape, rows, m, plan.mr)
    return () if found is None else (found,)


def packs_rows(region: Region, shape: ContractionShape, plan: CpuContraction) -> bool:
    """True if `setup` may pack the rows' operand in panels: panels are full, and every thread multiplies all of them with its
    columns."""
    extents = all_axes(region)
    rows = product(extents[a] for a in (shape.n if plan.swap else shape.m)).as_int()
    return (
        rows is not None and rows % plan.mr == 0 and plan.split == "n" and not (shape.batch or plan.dot or "m" in plan.in_place)
    )


def is_packable(region: Region, operand: RegionExpr, axes: tuple[str, ...]) -> bool:
    """True if the operand reads one tensor and its axes have known extents."""
    extents = all_axes(region)
    one = len({r.tensor for r in reads(operand)}) == 1
    return one and not let_uses(operand) and all(extents[a].as_int() is not None for a in axes)


def _value(region: Region, acc: str, operand: RegionExpr) -> tuple[RegionExpr, DType]:
    """The operand in the accumulation dtype, and that dtype."""
    e = lets_by_name(region)[acc].expr
    assert isinstance(e, Reduce)
    return (operand if Types(region).of(operand) == e.dtype else Cast(operand, e.dtype)), e.dtype


def _slivers(
    region: Region,
    plan: CpuContraction | CpuPlaces | CpuPlanes,
    shape: ContractionShape,
    operand: RegionExpr,
    own: tuple[str, ...],
    block: int,
) -> PackedOperand | None:
    axes = (*shape.batch, *shape.k, *own)
    if operand_tensor(operand) not in plan.packed or not is_packable(region, operand, axes):
        return None
    extents = all_axes(region)
    e, dtype = _value(region, plan.acc, operand)
    groups = _groups(region, plan, shape)
    narrow = stored_narrow(operand, dtype, Types(region)) if isinstance(plan, CpuContraction) and block == plan.nr else None
    if narrow is not None:
        e, dtype = narrow, Types(region).dtype(narrow)
    if groups is not None:
        e, extents = joined(operand, groups, region), {**extents, groups.axis: groups.number}
    index = (*(var(a) for a in shape.batch), _linear(extents, shape.k), _linear(extents, own))
    sizes = (*(extents[a] for a in shape.batch), product(extents[a] for a in shape.k), product(extents[a] for a in own))
    written = index
    if groups is not None and groups.number == ONE:  # no Region has an axis of one element
        e = substitute_axes(e, {groups.axis: ZERO}, lets_by_name(region))
        written, axes = tuple(substitute(x, {groups.axis: ZERO}) for x in index), tuple(a for a in axes if a != groups.axis)
    axis_sizes = {a: extents[a] for a in axes}
    tensor = operand_tensor(operand)
    lets = (Let("v", axes, dtype, e),)

    def again(name: str) -> RegionExpr:
        read = Read(name, index)
        if narrow is not None:
            return Cast(read, lets_by_name(region)[plan.acc].dtype)
        return read if groups is None else parted(read, groups, narrow_dtype(operand, groups, Types(region)))

    return PackedOperand(plan.acc, operand, tensor, lets, axis_sizes, sizes, written, block, again)


def _groups(region: Region, plan: CpuContraction | CpuPlaces | CpuPlanes, shape: ContractionShape) -> Groups | None:
    """The groups of k that a packed element of the plan holds; None if it holds one step of k."""
    if isinstance(plan, CpuPlaces):
        places = find_places(region)
        return None if isinstance(places, str) else places.groups
    return (
        groups_of(region, shape, DOT_COUNT[plan.dot]) if isinstance(plan, CpuContraction) and DOT_COUNT[plan.dot] > 1 else None
    )


def _parts(
    region: Region, plan: CpuContraction, shape: ContractionShape, operand: RegionExpr, own: tuple[str, ...]
) -> tuple[PackedOperand, ...]:
    """Codes, zero points and scales of a dequantised operand, each as slivers of its own. () for other operands."""
    found = find_dequantised(operand, Types(region))
    extents = all_axes(region)
    is_packed = found is not None and found.codes.tensor in plan.packed and shape.k == (found.k,) and not shape.batch
    if found is None or not is_packed or any(extents[a].as_int() is None for a in (*shape.k, *own)):
        return ()
    column, count, types = _linear(extents, own), product(extents[a] for a in own), Types(region)
    named = {a: var(f"column{i}") for i, a in enumerate(own)} | {found.k: var("row")}  # alike in every Region

    def packed(read: Read, each: int) -> PackedOperand:
        rows = rows_of(each, extents[found.k])
        part = row_of_part(read, each, found.k)
        e = Read(part.tensor, tuple(substitute(x, named) for x in part.map))
        axes = ("row", *(f"column{i}" for i in range(len(own))))
        sizes = dict(zip(axes, (rows, *(extents[a] for a in own))))
        index = (var("row"), substitute(column, named))

        def again(name: str) -> RegionExpr:
            return Read(name, (row_at(each, found.k), column))

        lets = (Let("v", axes, types.dtype(read), e),)
        return PackedOperand(plan.acc, read, read.tensor, lets, sizes, (rows, count), index, plan.nr, again)

    return tuple(packed(read, each) for read, each in found.parts)


def stored_narrow(operand: RegionExpr, sums: DType, types: Types) -> Read | None:
    """The read inside an operand that is widened to the fp32 of the sums, from a dtype in STORED_NARROW: its slivers stay
    narrow, and the micro-kernel widens them. Else None."""
    if not isinstance(operand, Cast) or operand.to != DType.fp32 or sums != DType.fp32 or not isinstance(operand.x, Read):
        return None
    return operand.x if types.dtype(operand.x) in STORED_NARROW else None


def _panels(region: Region, plan: CpuPlanes) -> PackedOperand | None:
    found = find_convolution(region)
    if isinstance(found, str):
        return None
    filters = product(all_axes(region)[a] for a in found.filters).as_int() or 1
    return _slivers(region, plan, found.shape, found.weights, found.filters, panel_of(filters, plan.mr))


def _linear(extents: dict[str, Expr], axes: tuple[str, ...]) -> Expr:
    return linearize(tuple(var(a) for a in axes), tuple(extents[a] for a in axes))


# -- Winograd ------------------------------------------------------------------------------------

_ROW, _COLUMN = "tile_row", "tile_column"


def _transformed(region: Region, plan: CpuWinograd) -> PackedOperand | None:
    found = find_convolution(region)
    if isinstance(found, str):
        return None
    rows, columns = found.slides
    down, across = tiles_of(found.slides)
    own = (*found.shape.batch, *found.channels, *found.filters)
    tensor = operand_tensor(found.weights)
    if tensor not in plan.packed or not is_packable(region, found.weights, own):
        return None
    extents = all_axes(region)
    e, dtype = _value(region, plan.acc, found.weights)
    lets = lets_by_name(region)

    def weight(row: int, column: int) -> RegionExpr:
        return substitute_axes(e, {rows.window: expr(row), columns.window: expr(column)}, lets)

    along = [
        Let(
            f"w{row}",
            (*own, _COLUMN),
            dtype,
            _spread(_COLUMN, across, [weight(row, column) for column in range(WINDOW)], dtype),
        )
        for row in range(WINDOW)
    ]
    last = Let("v", (*own, _ROW, _COLUMN), dtype, _spread(_ROW, down, [Ref(let.name) for let in along], dtype))
    batch, channels, filters = found.shape.batch, found.channels, found.filters
    lead, channel, filter_ = tuple(var(a) for a in batch), _linear(extents, channels), _linear(extents, filters)
    sizes = {a: extents[a] for a in own} | {_ROW: expr(MATRICES), _COLUMN: expr(MATRICES)}
    each, count = (product(extents[a] for a in group) for group in (channels, filters))
    shape = (*(extents[a] for a in batch), each * MATRICES**2, count)

    def place(row: Expr, column: Expr) -> tuple[Expr, ...]:
        """The matrices of a sliver of filters are consecutive, in the order of use."""
        return (*lead, (row * MATRICES + column) * each + channel, filter_)

    def read(name: str) -> RegionExpr:
        def entry(row: Expr, column: Expr) -> RegionExpr:
            return Read(name, place(row, column))

        def at(row: Expr) -> RegionExpr:
            return _lessened(columns, across, lambda column: entry(row, column), dtype)

        return _lessened(rows, down, at, dtype)

    index = place(var(_ROW), var(_COLUMN))
    return PackedOperand(plan.acc, found.weights, tensor, (*along, last), sizes, shape, index, plan.nr, read)


def _spread(axis: str, tile: TransformTile, w: list[RegionExpr], dtype: DType) -> RegionExpr:
    """Entry `axis` of the transform of the weights along one dimension."""

    def term(which: int, factor: float) -> RegionExpr:
        return w[which] if factor == 1 else Binary("mul", w[which], Const(factor, dtype))

    sums: list[RegionExpr] = []
    for terms in tile.matrices:
        first, *others = (term(*t) for t in terms)
        for other in others:
            first = Binary("add", first, other)
        sums.append(first)
    out = sums[-1]
    for at, value in reversed(list(enumerate(sums[:-1]))):
        out = Select(Binary("eq", Index(var(axis), DType.i64), Const(at, DType.i64)), value, out)
    return out


def _lessened(slide: Slide, tile: TransformTile, entry: Callable[[Expr], RegionExpr], dtype: DType) -> RegionExpr:
    """The weight at a place of the window, from the matrices of its dimension."""
    x = entry(var(slide.window) + floordiv(var(slide.window), expr(2)))
    if tile.less is None:
        return x
    middle = Within((Guard(var(slide.window) - 1, expr(1)),))
    return Binary("sub", x, Select(middle, entry(expr(tile.less)), Const(0, dtype)))
