"""A Region seen as a matrix product: C[b, m, n] = epilogue(sum over k of A[b, m, k] * B[b, k, n]).

The view follows from the Region alone. Batch axes stand in both operands (or in none), m axes in the lhs only, n axes in the
rhs only; the reduced axes are k. Each operand is the expression that the reduce multiplies; if it is a plain read, its element
address is affine and `strides` are the coefficients (spec 3 §6.3.1, C-CON1).

    acc = reduce(sum, [k], mul(A[m, k], B[k, n]))   ->   m=(m), n=(n), k=(k), A.strides={m: K, k: 1}
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, product, var
from tatami.core.kernel import is_divisible
from tatami.core.layout import address
from tatami.core.scalar import number
from tatami.indexbook.ir import Guard
from tatami.region import ir
from tatami.region.views.expressions import axes_of, dtype_of, refs_of
from tatami.region.views.partials import BLOCK, Partial, without_partials
from tatami.region.views.row_groups import RowGroups, within_a_group
from tatami.region.walk import nodes


class Group(msgspec.Struct, frozen=True):
    """Axes of one role of the product, outermost first, with their sizes."""

    axes: tuple[str, ...]
    sizes: tuple[Expr, ...]

    @property
    def size(self) -> Expr:
        """Number of positions: the product of all sizes."""
        return product(self.sizes)


class Gather(msgspec.Struct, frozen=True):
    """One element of `tensor` at `index` (an address over the Region's axes), or 0 where a guard fails: a window of an image
    with its padding, or any other affine view (spec 3 §6.4)."""

    tensor: str
    index: Expr
    guards: tuple[Guard, ...] = ()


class GemmOperand(msgspec.Struct, frozen=True):
    """One operand of the product. `expr`: the factor, without widening casts of a plain read. `tensor` is "" and `strides`
    None if the operand is computed or guarded, not plainly read; `offset`: the address at zero; `gather` is None if it is
    computed."""

    expr: ir.RegionExpr
    dtype: DType
    tensor: str = ""
    strides: dict[str, Expr] | None = None
    offset: Expr = ZERO
    gather: Gather | None = None


class GemmView(msgspec.Struct, frozen=True):
    """The roles of a Region's only product. `acc`: its let; `dtype`: the accumulator's."""

    acc: str
    dtype: DType
    batch: Group
    m: Group
    n: Group
    k: Group
    lhs: GemmOperand
    rhs: GemmOperand
    tf32: bool
    """True if both operands are rounded to 10 fraction bits before the product, as tensor cores round fp32. `lhs` and `rhs`
    then describe the unrounded values, and their `expr` the rounded ones."""
    epilogue: tuple[ir.Let, ...]
    """All other lets; each can be computed where one element of the accumulator is held."""
    groups: RowGroups | None = None
    """Rows in groups, each with a matrix of its own: `rhs` is the matrix of one group, whose number stands in its addresses.
    None for a single matrix."""
    partials: tuple[Partial, ...] = ()
    """Reductions over blocks of rows or columns, each of a let of `epilogue` or of the accumulator."""


def gemm_view(region: ir.Region, acc: str = "") -> GemmView | str:
    """The view, or the reason why there is none. `acc` names the contraction's let if a Region has several."""
    if region.opaque is not None:
        return "the Region is a named routine"
    region, partials = without_partials(region)
    region, groups = within_a_group(region) or (region, None)
    found = [let for let in region.lets if is_product_reduce(let.expr) and acc in ("", let.name)]
    if not found:
        return "no let is a sum of products" if not acc else f"let {acc} is not a sum of products"
    if len(found) > 1:
        return f"{len(found)} lets are sums of products ({', '.join(x.name for x in found)})"
    let = found[0]
    assert isinstance(let.expr, ir.Reduce) and isinstance(let.expr.body, ir.Binary)
    sizes = {i.name: i.size for i in (*region.iters, *region.reduce_axes)}
    dtypes = {p.name: p.memref.dtype for p in region.inputs}
    x, y = let.expr.body.x, let.expr.body.y
    if refs_of(x) or refs_of(y):
        return "an operand of the product is another let"
    in_x, in_y = axes_of(x), axes_of(y)
    if not set(let.expr.axes) <= in_x & in_y:
        return "a reduced axis stands in one operand only"
    group: dict[str, list[str]] = {"b": [], "m": [], "n": []}
    for axis in let.axes:
        role = "b" if (axis in in_x) == (axis in in_y) else "m" if axis in in_x else "n"
        group[role].append(axis)
    for other in region.lets:
        if other is not let and (why := not_elementwise(other)):
            return why
    for y_ in region.yields:
        if y_.indices or y_.combine != "set":
            return f"output {y_.to} is scattered"
    rounded = [inner for e in (x, y) if (inner := rounded_to_tf32(e)) is not None]
    tf32 = len(rounded) == 2
    lhs, rhs = (_operand(e, region, dtypes, tuple(let.axes) + let.expr.axes) for e in (rounded if tf32 else (x, y)))
    m, n, k = _group(group["m"], sizes), _group(group["n"], sizes), _group(list(let.expr.axes), sizes)
    if groups is not None and m.axes != (groups.rows,):
        return f"rows in groups run over {', '.join(m.axes) or 'no axis'}, not over {groups.rows} alone"
    if partials and (groups is not None or not all(is_block(p, m, "m") or is_block(p, n, "n") for p in partials)):
        return "a let reduces something other than a block of rows or columns"
    k = max(_orders(k), key=lambda order: _bytes_together(lhs, m, order) + _bytes_together(rhs, n, order))
    if tf32:
        lhs, rhs = (msgspec.structs.replace(o, expr=e) for o, e in ((lhs, x), (rhs, y)))
    return GemmView(
        let.name,
        let.dtype,
        _group(group["b"], sizes),
        m,
        n,
        k,
        lhs,
        rhs,
        tf32,
        tuple(other for other in region.lets if other is not let),
        groups,
        partials,
    )


def is_block(p: Partial, group: Group, role: Literal["m", "n"]) -> bool:
    """True if the blocks of `p` lie within the last axis of the group, and never reach across its end."""
    whole = len(group.axes) == 1 or (bool(group.axes) and is_divisible(group.sizes[-1], p.width))
    return whole and group.axes[-1:] == (p.axis,) and p.width == BLOCK[role]


def _group(axes: list[str], sizes: dict[str, Expr]) -> Group:
    return Group(tuple(axes), tuple(sizes[a] for a in axes))


def is_product_reduce(e: ir.RegionExpr) -> bool:
    """True if `e` is a sum of products of two factors."""
    return isinstance(e, ir.Reduce) and e.fn == "sum" and isinstance(e.body, ir.Binary) and e.body.fn == "mul"


def not_elementwise(let: ir.Let) -> str:
    """The reason why the let cannot be computed element by element from an accumulator; "" if it can."""
    for e in nodes(let.expr):
        match e:
            case ir.Reduce() | ir.Scan():
                return f"let {let.name} reduces or scans"
            case ir.At() | ir.BroadcastInDim() | ir.Transpose() | ir.ReadAt() | ir.Random():
                return f"let {let.name} holds {type(e).__name__}"
            case _:
                pass
    return ""


def rounded_to_tf32(e: ir.RegionExpr) -> ir.RegionExpr | None:
    """The expression that an operand rounds to 10 fraction bits, or None if it does not round. The zero outside a guard needs
    no rounding."""
    match e:
        case ir.Unary(fn="tf32", x=x):
            return x
        case ir.Select(pred=ir.Within(), then=then, other=ir.Const(value=value)) if number(value) == 0:
            inner = rounded_to_tf32(then)
            return None if inner is None else msgspec.structs.replace(e, then=inner)
        case _:
            return None


def _orders(k: Group) -> list[Group]:
    """Orders of k that may be tried: the Region's own, then one with each other axis last."""
    pairs = list(zip(k.axes, k.sizes))
    orders = [[*pairs[:i], *pairs[i + 1 :], pairs[i]] for i in range(len(pairs) - 1)]
    return [k, *(Group(tuple(a for a, _ in p), tuple(size for _, size in p)) for p in orders)]


def _bytes_together(operand: GemmOperand, mn: Group, k: Group) -> int:
    """Bytes of the operand that one copy instruction can load, for this order of k: 16 at most. Contiguous rows or columns
    come by TMA only, so they count half."""
    if not why_not_plain(operand, mn, k):
        return 16
    by_columns = operand.strides is not None and mn.axes and operand.strides[mn.axes[-1]] == ONE
    return max(run_of(operand, k) * operand.dtype.itemsize, 8 if by_columns else 0)


def run_of(operand: GemmOperand, k: Group) -> int:
    """Number of neighbours along k that lie together in memory under the same guards, starting at any multiple of that number:
    at most 16 bytes' worth, and a divisor of the last k axis's extent and of the steps of all other axes. 1 for an operand
    without a gather."""
    g = operand.gather
    if g is None or not k.axes or step_of(g.index, k.axes[-1]) != ONE:
        return 1
    last = k.axes[-1]
    if any(last in free_vars(x.index) for x in g.guards):
        return 1
    other = substitute(g.index, {last: ZERO})
    widths = (w for w in (16, 8, 4, 2) if w * operand.dtype.itemsize <= 16)
    return next((w for w in widths if is_divisible(k.sizes[-1], w) and is_divisible(other, w)), 1)


def _operand(e: ir.RegionExpr, region: ir.Region, dtypes: dict[str, DType], axes: tuple[str, ...]) -> GemmOperand:
    inner = e
    while isinstance(inner, ir.Cast) and not inner.bits and inner.to in (DType.fp32, DType.fp64):
        inner = inner.x
    code = inner.to if isinstance(inner, ir.Cast) and inner.bits and inner.to.is_fp8 else None
    if code is not None and isinstance(inner, ir.Cast):
        inner = inner.x
    if isinstance(inner, ir.Select):
        found = _gather(inner, region)
        dtype = dtypes[found.tensor] if found is not None else dtype_of(e, dtypes, {})
        if found is not None and inner is not e and not (dtype.is_narrow_float or dtype == DType.fp32):
            return GemmOperand(e, dtype_of(e, dtypes, {}))
        return GemmOperand(e, dtype, gather=found)
    if not isinstance(inner, ir.Read):
        return GemmOperand(e, dtype_of(e, dtypes, {}))
    memref = next(p.memref for p in region.inputs if p.name == inner.tensor)
    dtype = code or memref.dtype
    if inner is not e and not (dtype.is_narrow_float or dtype.is_fp8 or dtype == DType.fp32):
        return GemmOperand(e, dtype_of(e, dtypes, {}))
    flat = address(memref.layout, memref.shape, inner.map)
    at_zero = substitute(flat, dict.fromkeys(axes, ZERO))
    strides: dict[str, Expr] = {}
    total = at_zero
    for a in axes:
        one = {b: (ONE if b == a else ZERO) for b in axes}
        strides[a] = substitute(flat, one) - at_zero
        total = total + strides[a] * var(a)
    gather = Gather(inner.tensor, flat)
    if total != flat:
        return GemmOperand(inner, dtype, gather=gather)
    return GemmOperand(inner, dtype, inner.tensor, strides, at_zero, gather)


def _gather(e: ir.Select, region: ir.Region) -> Gather | None:
    """A guarded read with 0 outside, as an address with guards; None for any other select."""
    then = e.then
    while isinstance(then, ir.Cast) and not then.bits and then.to in (DType.fp32, DType.fp64):
        then = then.x
    zero = isinstance(e.other, ir.Const) and number(e.other.value) == 0
    if not (isinstance(e.pred, ir.Within) and isinstance(then, ir.Read) and zero):
        return None
    memref = next(p.memref for p in region.inputs if p.name == then.tensor)
    return Gather(then.tensor, address(memref.layout, memref.shape, then.map), e.pred.guards)


def mergeable(group: Group, operand: GemmOperand, k: Group) -> tuple[Group, list[tuple[str, Expr]]]:
    """(axes of a tile, leading axes that do not merge with them): the tile runs along the longest run of inner axes through
    which `operand` steps evenly. All axes of the group for an operand that `why_not_plain` refuses."""
    if operand.strides is None or why_not_plain(operand, group, k):
        return group, []
    start = len(group.axes) - 1
    while start > 0 and is_even(group, operand.strides, start - 1):
        start -= 1
    start = max(start, 0)
    return Group(group.axes[start:], group.sizes[start:]), list(zip(group.axes[:start], group.sizes[:start]))


def is_even(group: Group, strides: dict[str, Expr], i: int) -> bool:
    """True if axes i and i + 1 of the group step evenly, so that they merge into one."""
    return strides[group.axes[i]] == strides[group.axes[i + 1]] * group.sizes[i + 1] or group.sizes[i] == ONE


def major_of(operand: GemmOperand, mn: Group, k: Group) -> Literal["k", "mn"] | None:
    """The group whose last axis is contiguous in memory: "k", "mn" (rows or columns), or None if neither is."""
    if operand.strides is None:
        return None
    if k.axes and operand.strides[k.axes[-1]] == ONE:
        return "k"
    return "mn" if mn.axes and operand.strides[mn.axes[-1]] == ONE else None


def why_not_plain(operand: GemmOperand, mn: Group, k: Group) -> str:
    """The reason why the operand cannot be read as one matrix in memory, or ""."""
    if operand.strides is None:
        return "an operand is computed or guarded, not plainly read"
    if any(not is_even(k, operand.strides, i) for i in range(len(k.axes) - 1)):
        return f"axes {', '.join(k.axes)} of {operand.tensor} do not merge into one"
    if major_of(operand, mn, k) is None:
        return f"{operand.tensor} is contiguous along neither of its axes"
    return ""


def why_not_mma(view: GemmView, *, codes: bool = False) -> str:
    """The reason why the MMA templates do not take this product, or "": every operand must be a matrix in memory, or gathered
    element by element. With `codes`, fp8 operands that may be rounded count as multiplied too (by wgmma)."""
    for operand, group in ((view.lhs, view.m), (view.rhs, view.n)):
        if operand.gather is None:
            return why_not_plain(operand, group, view.k)
    if view.lhs.dtype != view.rhs.dtype:
        return f"operands are {view.lhs.dtype} and {view.rhs.dtype}"
    is_multiplied = view.lhs.dtype.is_narrow_float or (codes and view.tf32 and view.lhs.dtype.is_fp8)
    if not is_multiplied and view.lhs.dtype != DType.fp32:
        return f"operands are {view.lhs.dtype}; the MMA template takes fp16, bf16 and fp32"
    if view.dtype != DType.fp32:
        return f"the accumulator is {view.dtype}; the MMA template accumulates in fp32"
    return ""


# -- questions about expressions -------------------------------------------------------------------
