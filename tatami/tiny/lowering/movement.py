"""Movement operations: RESHAPE, PERMUTE, EXPAND, PAD, SHRINK, FLIP, and VIEW for anything they cannot express.

Concatenation selects by IOTA (a NaN in one operand never reaches another's part); fold is a sum of gathers.
"""

from __future__ import annotations

from typing import Any

from tatami.core.algebra.bounds import where_not_empty
from tatami.core.algebra.order import is_at_most, is_positive
from tatami.core.algebra.size_forms import tidy_size
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, maximum, mod, product
from tatami.frontend.operation import NoAttrs
from tatami.frontend.operations.joining import OneAxis, Split
from tatami.frontend.operations.movement import (
    Axes,
    BlockSize,
    Expand,
    Flatten,
    Pad,
    Permute,
    Repeat,
    Roll,
    Slice,
    Tile,
    ToShape,
    Trilu,
    expand_dims,
    flatten_range,
    slice_steps,
)
from tatami.frontend.operations.windows import Fold, Unfold, filled
from tatami.tiny.build import Value, axis_vars
from tatami.tiny.lowering.rule import Rule, Use
from tatami.tiny.lowering.view import view


def reshape(use: Use[ToShape]) -> Value:
    """The operand in another shape."""
    return use[0].reshape(use.attrs.shape)


def permute(use: Use[Permute]) -> Value:
    """The operand's axes in another order."""
    return use[0].permute(use.attrs.perm)


def expand(use: Use[Expand]) -> Value:
    """The operand repeated along axes."""
    return use[0].expand(use.attrs.shape, expand_dims(use.attrs, use[0].rank))


def to_declared_shape(use: Use[Any]) -> Value:
    """unsqueeze, squeeze: the operand in the result's shape; only axes of size 1 come or go."""
    return use[0].reshape(use.types[0].shape)


def flatten(use: Use[Flatten]) -> Value:
    """A range of axes merged into one."""
    x = use[0]
    first, last = flatten_range(use.attrs, x.rank, use.site)
    return x.reshape((*x.shape[:first], product(x.shape[first:last]), *x.shape[last:]))


def flip(use: Use[Axes]) -> Value:
    """The operand reversed along axes."""
    return use[0].flip(use.axes(use.attrs.axes, use[0].rank))


def repeat(use: Use[Repeat]) -> Value:
    """An axis of size 1 repeated `times`."""
    x = use[0]
    a = use.axis(use.attrs.axis, x.rank)
    return x.expand((*x.shape[:a], use.attrs.times, *x.shape[a + 1 :]))


def tile(use: Use[Tile]) -> Value:
    """[.., n, ..] -> [.., 1, n, ..] -> EXPAND [.., r, n, ..] -> [.., r*n, ..]."""
    x = use[0]
    if all(r == ONE for r in use.attrs.repeats):
        return x
    split: list[Expr] = []
    wide: list[Expr] = []
    for size, r in zip(x.shape, use.attrs.repeats, strict=True):
        split += [ONE, size]
        wide += [r, size]
    return x.reshape(split).expand(tuple(wide)).reshape(use.types[0].shape)


def pad(use: Use[Pad]) -> Value:
    """A border: constant by PAD, other modes axis by axis from the operand's own elements."""
    x, a = use[0], use.attrs
    if a.mode == "constant":
        return x.pad(a.pads, a.value if x.dtype.is_float or isinstance(a.value, str) else int(a.value))
    for axis, (lo, hi) in enumerate(a.pads):
        x = _bordered(x, axis, lo, hi, a.mode)
    declared = use.types[0].shape  # cropping may give a size in another form: min(1, a) + 1 for min(2, a + 1)
    return x if x.shape == declared else x.reshape(declared)


def _bordered(x: Value, axis: int, lo: Expr, hi: Expr, mode: str) -> Value:
    """`x` with a border of any width along `axis` (numpy.pad); a negative width crops, before anything is added.

    Narrow borders of known width are pieces end to end, which stay affine. A wide one repeats the axis (wrap), or the axis
    followed by its reverse (reflect), modulo that period. If a size is symbolic it is unknown which case holds: an index
    computed from the coordinate reads the right element for every size.
    """
    n = x.shape[axis]
    if is_positive(-lo) or is_positive(-hi):
        first, last = (-lo if is_positive(-lo) else ZERO), (n + hi if is_positive(-hi) else n)
        x = part(x, axis, first, last)
        lo, hi, n = lo + first, (ZERO if is_positive(-hi) else hi), x.shape[axis]
    if lo == ZERO == hi:
        return x
    if mode == "edge" or n == ONE:
        return _pieces(x, axis, lo, hi, "edge")
    known = None if n.as_int() is None else [w.as_int() for w in (lo, hi)]
    if known is None or None in known:
        return _at_computed_index(x, axis, lo, hi, mode)
    if mode == "wrap":
        return _periodic(x, axis, lo, n + lo + hi)
    if all(w is not None and expr(w) != n and is_positive(n - w) for w in known):
        return _pieces(x, axis, lo, hi, mode)
    inner = part(x, axis, ONE, n - 1).flip((axis,)) if n != expr(2) else None
    return _periodic(x if inner is None else joined([x, inner], axis), axis, lo, n + lo + hi)


def _periodic(x: Value, axis: int, lo: Expr, size: Expr) -> Value:
    """The axis repeated: element i is element i - lo modulo the axis's size, which is a number."""
    i = axis_vars(x.rank)
    i[axis] = mod(i[axis] - lo, x.shape[axis])
    return x.view((*x.shape[:axis], size, *x.shape[axis + 1 :]), i)


def _at_computed_index(x: Value, axis: int, lo: Expr, hi: Expr, mode: str) -> Value:
    """The axis with borders read at a computed index. The axis between them is read directly: a border is short compared with
    its axis, and an index modulo a symbolic period takes a division per element. If a width may be negative, the whole
    result is read at a computed index."""
    size = x.shape[axis] + lo + hi
    if not (is_positive(lo + 1) and is_positive(hi + 1)):
        return _computed(x, axis, -lo, size, mode)
    pieces = [x]
    if lo != ZERO:
        pieces.insert(0, _computed(x, axis, -lo, lo, mode))
    if hi != ZERO:
        pieces.append(_computed(x, axis, x.shape[axis], hi, mode))
    return joined(pieces, axis, size)


def _computed(x: Value, axis: int, start: Expr, width: Expr, mode: str) -> Value:
    """`width` elements, from `start` on (which may be negative), of the axis repeated without end."""
    b, n = x.builder, x.shape[axis]
    shape = (*x.shape[:axis], width, *x.shape[axis + 1 :])
    at = b.iota(shape, axis) + b.size(start)
    if mode == "wrap":
        at = at.fn("mod", b.size(n))
    else:
        period = b.size(maximum(2 * n - 2, 1))
        at = at.fn("mod", period)
        at = at.fn("min", period - at)
    entries: list[Expr | None] = list(axis_vars(x.rank))
    entries[axis] = None
    return x.gather(shape, entries, at, bounds="clamp")


def _pieces(x: Value, axis: int, lo: Expr, hi: Expr, mode: str) -> Value:
    pieces, n = [], x.shape[axis]
    inner = x
    if not is_positive(n):  # an axis that may be empty gets one element for the border to read
        inner = x.pad([(ZERO, maximum(n, ONE) - n if k == axis else ZERO) for k in range(x.rank)])
    if lo != ZERO:
        pieces.append(_border(inner, axis, lo, mode, before=True))
    pieces.append(x)
    if hi != ZERO:
        pieces.append(_border(inner, axis, hi, mode, before=False))
    return joined(pieces, axis, x.shape[axis] + lo + hi)


def _border(x: Value, axis: int, width: Expr, mode: str, *, before: bool) -> Value:
    n = x.shape[axis]
    if mode == "edge":
        one = part(x, axis, ZERO, ONE) if before else part(x, axis, n - 1, n)
        return one.expand((*x.shape[:axis], width, *x.shape[axis + 1 :]))
    return (part(x, axis, ONE, width + 1) if before else part(x, axis, n - 1 - width, n - 1)).flip((axis,))


def part(x: Value, axis: int, lo: Expr, hi: Expr, step: int = 1) -> Value:
    """Elements lo, lo + step, … < hi of one axis."""
    los, his, steps = [ZERO] * x.rank, list(x.shape), [1] * x.rank
    los[axis], his[axis], steps[axis] = lo, hi, step
    return x.shrink(los, his, steps)


def joined(parts: list[Value], axis: int, total: Expr | None = None) -> Value:
    """Parts end to end: each padded to the full length, chosen by the coordinate along `axis`. `total`: the length in the
    caller's form, by default the sum in tidy form."""
    if total is None:
        total = tidy_size(sum((p.shape[axis] for p in parts[1:]), parts[0].shape[axis]))
    x = parts[0]
    shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
    out: Value | None = None
    start = ZERO
    for p in parts:
        pads = [(ZERO, ZERO)] * x.rank
        pads[axis] = (start, total - start - p.shape[axis])
        padded = p.pad(pads)
        if out is None:
            out = padded
        else:
            coordinate = x.builder.iota(shape, axis)
            out = coordinate.fn("lt", x.builder.size(start)).where(out, padded)
        start = start + p.shape[axis]
    assert out is not None
    return out


def slice_(use: Use[Slice]) -> Value:
    """Elements starts, starts + step, … < stops of each axis. Conditions on symbolic bounds that are not proved are checked
    when sizes are bound (`frontend/operations/size_conditions.py`); reads that depend on them are padded."""
    x, a = use[0], use.attrs
    spare = [(ZERO, ZERO)] * x.rank
    for axis, (size, lo, hi) in enumerate(zip(x.shape, a.starts, a.stops, strict=True)):
        reached = lo + where_not_empty(tidy_size(hi - lo))
        if not is_at_most(ZERO, lo) or not is_at_most(reached, size):
            spare[axis] = (ZERO if is_at_most(ZERO, lo) else maximum(-lo, 0), maximum(hi - size, 0))
    before = [w for w, _ in spare]
    los, his = (tuple(s + w for s, w in zip(at, before, strict=True)) for at in (a.starts, a.stops))
    return x.pad(spare).shrink(los, his, slice_steps(a))


def roll(use: Use[Roll]) -> Value:
    """x[(i - s) mod n], as two parts end to end if n is a number."""
    x = use[0]
    for shift, a in zip(use.attrs.shifts, use.attrs.axes, strict=True):
        axis = use.axis(a, x.rank)
        n = x.shape[axis].as_int()
        if n is None:
            i = axis_vars(x.rank)
            i[axis] = mod(i[axis] - shift, x.shape[axis])
            x = x.view(x.shape, i)
        elif n and shift % n:
            cut = expr(n - shift % n)
            x = joined([part(x, axis, cut, x.shape[axis]), part(x, axis, ZERO, cut)], axis)
    return x


def unfold(use: Use[Unfold]) -> Value:
    """Sliding windows of the trailing axes: [.., k.., o..]."""
    x, a = use[0], use.attrs
    n = len(a.kernel)
    lead = x.rank - n
    stride, dilation = filled(a.stride, n), filled(a.dilation, n)
    i = axis_vars(len(use.types[0].shape))
    extra = 1 if a.groups > 1 else 0
    channels = i[:lead]
    if extra:
        per = use.types[0].shape[lead]
        channels = [*i[: lead - 1], i[lead - 1] * per + i[lead]]
    k, o = i[lead + extra : lead + extra + n], i[lead + extra + n :]
    return x.view(use.types[0].shape, [*channels, *(o[j] * stride[j] + k[j] * dilation[j] for j in range(n))])


def fold(use: Use[Fold]) -> Value:
    """out[c, l] = sum over k of x[c, k, (l - k*dilation)/stride]: zeros between the windows, then shifted reads."""
    x, a = use[0], use.attrs
    n = len(a.kernel)
    if a.groups > 1:
        channel = len(a.size) - n - 1
        x = x.reshape((*x.shape[:channel], a.size[channel], *x.shape[channel + 2 :]))
    lead = x.rank - 2 * n
    stride, dilation = filled(a.stride, n), filled(a.dilation, n)
    spatial = a.size[lead:]
    pads = [(ZERO, ZERO)] * (lead + n)
    x = spread(x, range(lead + n, lead + 2 * n), stride)
    for j in range(n):
        reach = (a.kernel[j] - 1) * dilation[j]
        pads.append((expr(reach), spatial[j] - x.shape[lead + n + j]))
    x = x.pad(pads)
    i = axis_vars(lead + 2 * n)
    out, k = i[lead : lead + n], i[lead + n :]
    index = [*i[:lead], *k, *(out[j] - k[j] * dilation[j] + (a.kernel[j] - 1) * dilation[j] for j in range(n))]
    moved = x.view((*x.shape[:lead], *spatial, *a.kernel), index)
    return moved.sum(range(lead + n, lead + 2 * n)).cast(use.dtype)


def spread(x: Value, axes: range, stride: tuple[int, ...]) -> Value:
    """`x` with stride - 1 zeros after every element of these axes."""
    for axis, s in zip(axes, stride, strict=True):
        if s == 1:
            continue
        y = x.unsqueeze(axis + 1)
        pads = [(0, 0)] * y.rank
        pads[axis + 1] = (0, s - 1)
        x = y.pad(pads).reshape((*x.shape[:axis], x.shape[axis] * s, *x.shape[axis + 1 :]))
    return x


def concat(use: Use[OneAxis]) -> Value:
    """Operands end to end along an axis."""
    return joined(use.present, use.axis(use.attrs.axis, use[0].rank))


def stack(use: Use[OneAxis]) -> Value:
    """Operands side by side along a new axis."""
    axis = use.axis(use.attrs.axis, use[0].rank + 1)
    return joined([v.unsqueeze(axis) for v in use.present], axis)


def split(use: Use[Split]) -> tuple[Value, ...]:
    """Parts of the given sizes along an axis."""
    x = use[0]
    axis = use.axis(use.attrs.axis, x.rank)
    out, start = [], ZERO
    for size in use.attrs.sizes:
        out.append(part(x, axis, start, start + size))
        start = start + size
    return tuple(out)


def depth_to_space(use: Use[BlockSize]) -> Value:
    """Channels moved into blocks of pixels, in order DCR or CRD."""
    x, b = use[0], use.attrs.block
    n, _, h, w = x.shape
    c = use.types[0].shape[1]
    if use.attrs.mode == "DCR":
        x = x.reshape((n, b, b, c, h, w)).permute((0, 3, 4, 1, 5, 2))
    else:
        x = x.reshape((n, c, b, b, h, w)).permute((0, 1, 4, 2, 5, 3))
    return x.reshape(use.types[0].shape)


def space_to_depth(use: Use[BlockSize]) -> Value:
    """Blocks of pixels moved into channels, in order DCR or CRD."""
    x, b = use[0], use.attrs.block
    n, c, _, _ = x.shape
    _, _, h, w = use.types[0].shape
    order = (0, 3, 5, 1, 2, 4) if use.attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape((n, c, h, b, w, b)).permute(order).reshape(use.types[0].shape)


def trilu(use: Use[Trilu]) -> Value:
    """x on and above (or below) diagonal k, else 0."""
    x = use[0]
    row = x.builder.iota(x.shape, x.rank - 2) + use.attrs.k
    column = x.builder.iota(x.shape, x.rank - 1)
    keep = column >= row if use.attrs.upper else column <= row
    return keep.where(x, False if x.dtype == DType.bool else 0)


def diagonal(use: Use[NoAttrs]) -> Value:
    """Elements with equal last two coordinates."""
    i = axis_vars(use[0].rank - 1)
    return use[0].view(use.types[0].shape, [*i, i[-1]])


MOVEMENT: dict[str, Rule] = {
    "reshape": reshape,
    "permute": permute,
    "expand": expand,
    "unsqueeze": to_declared_shape,
    "squeeze": to_declared_shape,
    "flatten": flatten,
    "flip": flip,
    "repeat": repeat,
    "tile": tile,
    "pad": pad,
    "slice": slice_,
    "roll": roll,
    "unfold": unfold,
    "fold": fold,
    "concat": concat,
    "stack": stack,
    "split": split,
    "view": view,
    "depth_to_space": depth_to_space,
    "space_to_depth": space_to_depth,
    "trilu": trilu,
    "diagonal": diagonal,
}
"""Rules of this family by operation."""
