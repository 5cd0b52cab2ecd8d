"""Windows of 8-bit integers that take four neighbours along the columns at once: depthwise convolutions of quantised images.

    y[c, h, w] = sum over i, j of x[c, s*h + i - 1, s*w + j - 1] * f[c, i, j]
    ->           sum over i, q of dot((x[…, 4q], …, x[…, 4q + 3]), (f[c, i, 4q], …, f[c, i, 4q + 3]))

Places after the last column of the window have weight 0. Sums wrap in 32 bits, so that they are exact in any order.
"""

from __future__ import annotations

from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.core.expr import ONE
from tatami.region.ir import Binary, Cast, Reduce, Region, RegionExpr
from tatami.region.views.images.window import MAX_TERMS, Window, is_looped
from tatami.region.views.narrow import Groups, narrow_dtype
from tatami.region.walk import Types, lets_by_name, nodes, widened

COUNT = 4
"""Neighbours of a packed element."""
STEPS = (1, 2)
"""Strides along the columns."""
MOST_APART = 9999
"""Maximum stride and dilation along the rows, which the name of the routine has in four digits."""


class Quads(NamedTuple):
    """A window's operands in 8 bits. `image`: the value that slides, inside its guards; `weights`: what it is multiplied with."""

    image: RegionExpr
    weights: RegionExpr
    dtypes: tuple[DType, DType]


def find_quads(region: Region, window: Window) -> Quads | str:
    """The operands of a window whose products are of 8-bit integers, or the reason why they are not."""
    types, columns = Types(region), window.slides[-1]
    reduce = widened(lets_by_name(region)[window.let].expr, None, types)
    assert isinstance(reduce, Reduce)
    body = reduce.body
    if reduce.fn != "sum" or reduce.dtype != DType.i32 or not isinstance(body, Binary) or body.fn != "mul":
        return f"{reduce.fn} in {reduce.dtype}; quads are products of 8 bits with sums in i32"
    if types.dtype(body) != DType.i32:
        return f"products in {types.dtype(body)}, which may round or wrap; quads take products in i32"
    if is_looped(region, window):
        return f"a window of more than {MAX_TERMS} places, which loops read"
    if columns.stride not in STEPS or columns.dilation != 1:
        return f"stride {columns.stride}, dilation {columns.dilation} along the columns; quads take stride 1 or 2 without gaps"
    rows = window.slides[0]
    if len(window.slides) == 2 and max(rows.stride, rows.dilation) > MOST_APART:
        return f"stride {rows.stride}, dilation {rows.dilation} along the rows; quads take {MOST_APART} at most"
    sides = [(x, y) for x, y in ((body.x, body.y), (body.y, body.x)) if window.moving in nodes(x)]
    if len(sides) != 1 or window.moving in nodes(sides[0][1]):
        return "the value that slides is on both sides of the product"
    ((slides, still),) = sides
    alone = Groups(columns.window, COUNT, ONE)
    dtypes = (narrow_dtype(slides, alone, types), narrow_dtype(still, alone, types))
    image, weights = (_narrow(e, alone, types) for e in (window.inside, still))
    if not set(dtypes) <= {DType.i8, DType.u8} or (types.dtype(image), types.dtype(weights)) != dtypes:
        return f"products of {dtypes[0]} and {dtypes[1]}; quads are of 8 bits"
    if _narrow(slides, alone, types) != _narrow(window.moving, alone, types):
        return "a function of the value that slides is multiplied"
    return Quads(image, weights, dtypes)


def _narrow(e: RegionExpr, groups: Groups, types: Types) -> RegionExpr:
    """`e` without casts that keep its values."""
    while isinstance(e, Cast) and not e.bits and narrow_dtype(e, groups, types) == narrow_dtype(e.x, groups, types):
        e = e.x
    return e
