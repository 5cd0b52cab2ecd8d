"""Rows in groups whose sizes are data, each group times a matrix of its own.

    group[i]  = sum over g of (ends[g] <= i)
    acc[i, n] = sum over k of x[i, k] * w[group[i], k, n]        0 instead of w outside of it

The group number never falls from row to row, so that a kernel can process the groups of a tile one after the other. Within one
group its number is known, and the product is a plain one:

    acc[i, n] = sum over k of x[i, k] * w[group', k, n]
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.region.ir import Binary, Cast, Index, Let, Read, ReadAt, Reduce, Ref, Region, RegionExpr
from tatami.region.walk import lets_by_name, nodes, rewrite, used_lets

GROUP = "group'"
"""Name of the rows' group number in index expressions. The quote keeps it apart from axes."""


class RowGroups(msgspec.Struct, frozen=True):
    """Row `i` of axis `rows` belongs to the group whose number is the count of `ends` that are at most `i`; `ends` is read
    along `counter`, whose extent is `count`. `matrices`: number of matrices; rows of a group beyond them are multiplied by
    zeros."""

    rows: str
    counter: str
    ends: Read
    count: Expr
    matrices: Expr


def within_a_group(region: Region) -> tuple[Region, RowGroups] | None:
    """(the Region as rows of one group compute it, the groups), if a product reads its matrix by the row's group alone; else
    None."""
    lets = lets_by_name(region)
    for let in region.lets:
        match let.expr:
            case Reduce(fn="sum", body=Binary(fn="mul", x=x, y=y)):
                for other, matrix in ((x, y), (y, x)):
                    if (found := _chosen(matrix, let, lets, region)) is not None and not used_lets(other):
                        read, number, groups = found
                        return _without(region, let, number, groups, other, matrix, read), groups
    return None


def _chosen(e: RegionExpr, product: Let, lets: dict[str, Let], region: Region) -> tuple[ReadAt, Let, RowGroups] | None:
    """(the read of the matrix in `e`, the let that is its number, the groups which that let counts), or None."""
    found = [n for n in nodes(e) if isinstance(n, ReadAt)]
    used = used_lets(e)
    if len(found) != 1 or len(used) != 1 or found[0].bounds != "zero" or found[0].indices != (Ref(used[0]),):
        return None
    read, number = found[0], lets[used[0]]
    users = [x for x in region.lets if number.name in used_lets(x.expr)]
    if users != [product] or any(y.source == number.name or number.name in y.indices for y in region.yields):
        return None
    ends = _counted(number)
    if ends is None:
        return None
    shape = next(p.memref.shape for p in region.inputs if p.name == read.tensor)
    (counter,) = number.expr.axes if isinstance(number.expr, Reduce) else ("",)
    sizes = {i.name: i.size for i in region.reduce_axes}
    return read, number, RowGroups(number.axes[0], counter, ends, sizes[counter], shape[read.map.index(None)])


def _counted(number: Let) -> Read | None:
    """The read of the ends if `number` counts, row by row, the ends that are at most the row; None for anything else, and for
    integers that could wrap."""
    match number:
        case Let(
            axes=(row,),
            expr=Reduce(
                fn="sum", dtype=sum_dtype, axes=(counter,), init=0 | None,
                body=Cast(x=Binary(fn="le", x=ends, y=Index(value=at)), to=to),
            ),
        ) if at == var(row) and {to, sum_dtype} <= {DType.i32, DType.i64}:  # fmt: skip
            read = ends.x if isinstance(ends, Cast) and ends.to == DType.i64 else ends
            if isinstance(read, Read) and read.map == (var(counter),):
                return read
    return None


def _without(
    region: Region, product: Let, number: Let, groups: RowGroups, other: RegionExpr, matrix: RegionExpr, read: ReadAt
) -> Region:
    known = Read(read.tensor, tuple(var(GROUP) if m is None else m for m in read.map))
    body = Binary("mul", other, rewrite(matrix, lambda n: known if n == read else n))
    assert isinstance(product.expr, Reduce)
    plain = msgspec.structs.replace(product, expr=msgspec.structs.replace(product.expr, body=body))
    return msgspec.structs.replace(
        region,
        reduce_axes=tuple(i for i in region.reduce_axes if i.name != groups.counter),
        lets=tuple(plain if x is product else x for x in region.lets if x is not number),
    )
