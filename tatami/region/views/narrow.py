"""Sums of products of narrow integers: one multiply-add takes several neighbours of k, packed into an element of 32 bits.

    sum over k of x[k] * y[k]     ->     sum over g of dot(X[g], Y[g])
    X[g] = x[2g] & 0xffff | x[2g+1] << 16        dot: x[2g] * y[2g] + x[2g+1] * y[2g+1]

Four numbers of 8 bits are packed likewise. Zeros follow the last k. Sums wrap in 32 bits, so that they are exact in any order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, floordiv, var
from tatami.core.scalar import Scalar
from tatami.indexbook.ir import Guard
from tatami.region.ir import Binary, Cast, Const, Index, Iter, Let, Read, Reduce, Region, RegionExpr, Select, Within
from tatami.region.views.contraction import ContractionShape
from tatami.region.walk import Types, all_axes, lets_by_name, substitute_axes

BITS = 32
"""Bits of a packed element, and of a sum."""
UPPER = -(1 << BITS // 2)
"""The upper half of a packed element, as a signed number."""


Numbers: TypeAlias = Literal["integers", "any_signs", "floats"]
"""Operands of a multiply-add: integers, of two signs or of any where signs matter; or bf16."""


class Groups(msgspec.Struct, frozen=True):
    """`count` neighbours along `axis`, whose extent is `size`, are packed into one element."""

    axis: str
    count: int
    size: Expr

    @property
    def number(self) -> Expr:
        """Number of groups along the axis, the last of which may be partial."""
        return ceildiv(self.size, expr(self.count))

    @property
    def bits(self) -> int:
        """Bits of one member of a group."""
        return BITS // self.count

    @property
    def is_whole(self) -> bool:
        """True if the axis has a known extent and whole groups."""
        size = self.size.as_int()
        return size is not None and size % self.count == 0


def groups_of(region: Region, shape: ContractionShape, count: int, among: tuple[str, ...] = ()) -> Groups:
    """Groups along a k axis that has whole groups; if there is none, along the longest axis (an axis of unknown extent counts
    as longest). `among`: the k axes to choose from; empty: all."""
    extents = all_axes(region)
    found = [Groups(a, count, extents[a]) for a in among or shape.k]
    longest = max(found, key=lambda g: 1 << 62 if (n := g.size.as_int()) is None else n)
    return next((g for g in found if g.is_whole), longest)


def narrow_dtype(e: RegionExpr, groups: Groups, types: Types) -> DType:
    """The narrowest dtype known to hold the values of an operand, seen through casts to wider types and guards to a number that
    it holds too."""
    match e:
        case Cast(x=x, to=to, bits=False):
            inner = narrow_dtype(x, groups, types)
            if inner == DType.bf16 and to.is_float and to.itemsize > inner.itemsize:
                return inner
            return inner if to.widens(inner) and (to.is_signed or not inner.is_signed) else to
        case Select(pred=Within(), then=then, other=Const(value=value)):
            inner = narrow_dtype(then, groups, types)
            return inner if _holds(inner, value) else types.dtype(e)
        case Binary() if packed_read(e, groups) is not None:
            return _held(e, groups)
        case _:
            return types.dtype(e)


def operand_dtypes(
    region: Region, shape: ContractionShape, count: int, kind: Numbers = "integers", among: tuple[str, ...] = ()
) -> tuple[DType, DType] | None:
    """Narrow dtypes of lhs and rhs if sums of 32 bits may take `count` neighbours of k at once, else None: two that fit
    signed 16 bits; or four of 8 bits, signed on one side and unsigned on the other (of `any_signs`: of any signs); of `floats`
    two of bf16, with sums of fp32. `among`: the k axes along which neighbours are grouped; empty: all."""
    types, groups = Types(region), groups_of(region, shape, count, among)
    lhs, rhs = (narrow_dtype(e, groups, types) for e in (shape.lhs, shape.rhs))
    sums = lets_by_name(region)[shape.acc].expr
    if kind == "floats":
        fits = lhs == rhs == DType.bf16
    elif count == 2:
        fits = {lhs, rhs} <= {DType.i8, DType.u8, DType.i16}
    else:
        fits = {lhs, rhs} <= {DType.i8, DType.u8} and (kind == "any_signs" or lhs != rhs)
    wanted = DType.fp32 if kind == "floats" else DType.i32
    return (lhs, rhs) if fits and isinstance(sums, Reduce) and sums.dtype == wanted else None


def joined(e: RegionExpr, groups: Groups, region: Region) -> RegionExpr:
    """An operand in packed elements of i32 (for bf16: of fp32, whose bits are a pair); the value of the axis is then a group's
    number."""
    types = Types(region)
    while isinstance(e, Cast) and not e.bits and narrow_dtype(e, groups, types) == narrow_dtype(e.x, groups, types):
        e = e.x  # a cast that keeps the value
    read = packed_read(e, groups)
    if read is not None:
        return read
    if types.dtype(e) == DType.bf16:
        return _joined_floats(e, groups, region)
    if isinstance(e, Select) and isinstance(e.other, Const) and _is_padding(e, groups):
        return Select(e.pred, joined(e.then, groups, region), Const(_repeated(int(e.other.value), groups), DType.i32))
    dtype = types.dtype(e)
    is_clean = not dtype.is_signed and dtype.bits <= groups.bits
    wide = e if dtype == DType.i32 else Cast(e, DType.i32)
    parts = [_part(wide, t, groups, region, is_clean) for t in range(groups.count)]
    out = parts[0]
    for part in parts[1:]:
        out = Binary("bitor", out, part)
    return out


def _joined_floats(e: RegionExpr, groups: Groups, region: Region) -> RegionExpr:
    """Two neighbours of bf16 as the halves of an element: the first one's bits are the lower half."""
    low, high = (_bits(_member(e, t, groups, region)) for t in range(2))
    low = Binary("bitand", Binary("shr", low, Const(BITS // 2, DType.i32)), Const((1 << BITS // 2) - 1, DType.i32))
    return Cast(Binary("bitor", low, Binary("bitand", high, Const(UPPER, DType.i32))), DType.fp32, bits=True)


def _member(e: RegionExpr, t: int, groups: Groups, region: Region) -> RegionExpr:
    """Member `t` of a group of floats, as fp32; 0 past the end of the axis."""
    at = var(groups.axis) * groups.count + t
    x: RegionExpr = Cast(substitute_axes(e, {groups.axis: at}, lets_by_name(region)), DType.fp32)
    return x if groups.is_whole or not t else Select(Within((Guard(at, groups.size),)), x, Const(0.0, DType.fp32))


def _bits(e: RegionExpr) -> RegionExpr:
    return Cast(e, DType.i32, bits=True)


def _part(e: RegionExpr, t: int, groups: Groups, region: Region, is_clean: bool) -> RegionExpr:
    """The bits of member `t` of a group, at their position in the packed element. `is_clean`: there are no others to clear."""
    at = var(groups.axis) * groups.count + t
    x = substitute_axes(e, {groups.axis: at}, lets_by_name(region))
    if t and not groups.is_whole:
        x = Select(Within((Guard(at, groups.size),)), x, Const(0, DType.i32))
    if t + 1 < groups.count and not is_clean:
        x = Binary("bitand", x, Const((1 << groups.bits) - 1, DType.i32))
    return Binary("shl", x, Const(groups.bits * t, DType.i32)) if t else x


def _is_padding(e: Select, groups: Groups) -> bool:
    """True if `e` is a number outside a guard that is the same for all members of a group: 0, or any other where each group has
    the same members."""
    if not isinstance(e.pred, Within) or not isinstance(e.other, Const):
        return False
    is_even = groups.is_whole or groups.number == ONE or not e.other.value
    return is_even and all(groups.axis not in free_vars(g.index) for g in e.pred.guards)


def _repeated(value: int, groups: Groups) -> int:
    """The packed element, as a signed number of 32 bits, whose members are all `value`: those of a whole group, or of the only
    one."""
    members = min(groups.count, groups.size.as_int() or groups.count)
    bits = value & ((1 << groups.bits) - 1)
    joined_bits = sum(bits << groups.bits * t for t in range(members))
    return joined_bits - (1 << BITS) if joined_bits >> BITS - 1 else joined_bits


def _holds(dtype: DType, value: Scalar) -> bool:
    """True if an operand of this dtype may have this number besides its own."""
    if isinstance(value, str) or not dtype.is_int:
        return not value
    return -(dtype.is_signed << dtype.bits - 1) <= value < 1 << dtype.bits - dtype.is_signed


def _of_group(read: Read, groups: Groups) -> Read:
    """`read` at the first member of a group."""
    return Read(read.tensor, tuple(substitute(x, {groups.axis: var(groups.axis) * groups.count}) for x in read.map))


def parted(packed: Read, groups: Groups, held: DType) -> RegionExpr:
    """The inverse of `joined`: the operand at one position of k, as that member's bits of a packed element. `packed`: read
    of packed elements, in which the axis counts groups; `held`: dtype of the operand's values."""
    group = floordiv(var(groups.axis), expr(groups.count))
    own = var(groups.axis) - group * groups.count
    read = Read(packed.tensor, tuple(substitute(x, {groups.axis: group}) for x in packed.map))
    if held == DType.bf16:
        moved = Binary("shl", _bits(read), Index((expr(1) - own) * groups.bits, DType.i32))
        return Cast(Cast(Binary("bitand", moved, Const(UPPER, DType.i32)), DType.fp32, bits=True), DType.bf16)
    if held.is_signed or 8 * held.itemsize < groups.bits:
        up = Index((expr(groups.count - 1) - own) * groups.bits, DType.i32)
        return Binary("shr", Binary("shl", read, up), Const(BITS - groups.bits, DType.i32))
    down = Index(own * groups.bits, DType.i32)
    return Binary("bitand", Binary("shr", read, down), Const((1 << groups.bits) - 1, DType.i32))


def packed_read(e: RegionExpr, groups: Groups) -> Read | None:
    """The read of packed elements if the operand has the form that `parted` gives; else None."""
    if isinstance(e, Cast) and e.to == DType.bf16:
        inner: object = e
        while isinstance(inner, Cast | Binary):
            inner = inner.x
        read = _of_group(inner, groups) if isinstance(inner, Read) and groups.count == 2 else None
        return read if read is not None and e == parted(read, groups, DType.bf16) else None
    if not isinstance(e, Binary) or not isinstance(e.x, Binary) or not isinstance(e.x.x, Read):
        return None
    read = _of_group(e.x.x, groups)
    return read if e == parted(read, groups, _held(e, groups)) else None


def _held(e: Binary, groups: Groups) -> DType:
    """The dtype of the values in an expression that `parted` made."""
    return DType.i16 if groups.count == 2 else DType.i8 if e.fn == "shr" else DType.u8


def lying_groups(e: RegionExpr, groups: Groups, types: Types) -> Read | None:
    """The read of a group's first member if neighbours in memory already form a packed element; else None."""
    read = lying_read(e, groups, types)
    return None if read is None else _of_group(read, groups)


def lying_read(e: RegionExpr, groups: Groups, types: Types) -> Read | None:
    """The operand's read if it is used unchanged and its elements have the bits of a group's member; else None."""
    while isinstance(e, Cast) and narrow_dtype(e, groups, types) != e.to:
        e = e.x
    dtype = types.dtype(e)
    is_plain = isinstance(e, Read) and (dtype.is_int or dtype == DType.bf16) and dtype.bits == groups.bits
    return e if isinstance(e, Read) and is_plain and groups.is_whole else None


def in_groups(region: Region, shape: ContractionShape, groups: Groups) -> Region:
    """The Region over groups instead of elements of k. The product that it sums stands for the dot of two groups."""

    def changed(let: Let) -> Let:
        if let.name != shape.acc:
            return let
        assert isinstance(let.expr, Reduce)
        body = Binary("mul", joined(shape.lhs, groups, region), joined(shape.rhs, groups, region))
        return msgspec.structs.replace(let, expr=msgspec.structs.replace(let.expr, body=body))

    axes = tuple(Iter(a.name, groups.number) if a.name == groups.axis else a for a in region.reduce_axes)
    return msgspec.structs.replace(region, lets=tuple(map(changed, region.lets)), reduce_axes=axes)
