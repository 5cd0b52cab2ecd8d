"""Views and movement. PyTorch's metadata has the result's shape, so most functions only need to know which axes move."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.algebra.order import is_at_most
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, IntoExpr, Shape, expr, maximum, minimum
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number, constant_int
from tatami.torch.refusal import Refusal
from tatami.torch.sizes import shape_of


def reshape(m: Importer, x: Tensor, *_: object, **__: object) -> Tensor:
    """Every operator that keeps elements in row-major order: the operand in the result's shape."""
    return _reshaped(x, m.shape)


def _reshaped(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else x.reshape(shape)


def expand(m: Importer, x: Tensor, size: Sequence[IntoExpr], *, implicit: bool = False) -> Tensor:
    """expand: the operand repeated to the result's shape."""
    return m.filled(x, m.shape)


def permute(m: Importer, x: Tensor, dims: Sequence[int]) -> Tensor:
    """permute: the axes in another order."""
    return x.permute([m.axis(d, x.rank) for d in dims]) if x.rank else x


def transpose(m: Importer, x: Tensor, a: int, b: int) -> Tensor:
    """transpose: two axes exchanged."""
    return x.transpose(m.axis(a, x.rank), m.axis(b, x.rank)) if x.rank else x


def matrix_transpose(m: Importer, x: Tensor) -> Tensor:
    """t: a matrix transposed; vectors stay."""
    return x.transpose(0, 1) if x.rank == 2 else x


# -- parts -----------------------------------------------------------------------------------------
def start_of(start: IntoExpr | None, size: Expr) -> Expr:
    """A start that may count from the end, limited to the axis; 0 for None."""
    at = expr(0 if start is None else start)
    number = at.as_int()
    if number is not None and number < 0:
        at = at + size
        if not is_at_most(ZERO, at):
            return maximum(at, 0)
    return at if is_at_most(at, size) else minimum(at, size)


def part(m: Importer, x: Tensor, axis: int, start: Expr, count: Expr, step: int = 1) -> Tensor:
    """`count` elements of an axis from `start` on, every `step`."""
    if count.as_int() == 0:
        shape = tuple(expr(0) if a == axis else s for a, s in enumerate(x.shape))
        return m.graph.full(shape, 0, x.dtype)
    starts = [ZERO] * x.rank
    stops, steps = list(x.shape), [1] * x.rank
    starts[axis], stops[axis], steps[axis] = start, start + (count - 1) * step + 1, step
    if tuple(stops) == x.shape and start == ZERO and step == 1:
        return x
    return x.one("slice", starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def slice_(
    m: Importer, x: Tensor, dim: int = 0, start: IntoExpr | None = None, end: IntoExpr | None = None, step: int = 1
) -> Tensor:
    """slice: elements start, start + step, … of an axis; the result's shape gives their number."""
    axis = m.axis(dim, x.rank)
    return part(m, x, axis, start_of(start, x.shape[axis]), m.shape[axis], constant_int(step, "the step of a slice"))


def select(m: Importer, x: Tensor, dim: int, index: IntoExpr) -> Tensor:
    """select: one element of an axis, which is removed."""
    axis = m.axis(dim, x.rank)
    return _reshaped(part(m, x, axis, _position(index, x.shape[axis]), expr(1)), m.shape)


def _position(index: IntoExpr, size: Expr) -> Expr:
    at = expr(index)
    number = at.as_int()
    return at + size if number is not None and number < 0 else at


def split(m: Importer, x: Tensor, sizes: object, dim: int = 0) -> tuple[Tensor, ...]:
    """split.Tensor, split_with_sizes: parts end to end; PyTorch's metadata has the size of each."""
    axis = m.axis(dim, x.rank)
    out: list[Tensor] = []
    at: Expr = ZERO
    for k in range(len(m.results)):
        size = m.shape_at(k)[axis]
        out.append(part(m, x, axis, at, size))
        at = at + size
    return tuple(out)


def unbind(m: Importer, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """unbind: the elements of an axis, which is removed."""
    axis = m.axis(dim, x.rank)
    return tuple(_reshaped(part(m, x, axis, expr(k), expr(1)), m.shape_at(k)) for k in range(len(m.results)))


def cat(m: Importer, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """cat: tensors end to end. Empty tensors of rank 1 are ignored, as in PyTorch. The other axes have the result's sizes."""
    kept = [t for t in tensors if not (t.rank == 1 and t.shape[0] == ZERO and len(m.shape) != 1)] or list(tensors)
    axis = m.axis(dim, len(m.shape))
    parts = [m.taken_as(m.cast(t, m.dtype), (*m.shape[:axis], t.shape[axis], *m.shape[axis + 1 :])) for t in kept]
    return parts[0] if len(parts) == 1 else m.graph.concat(parts, axis)


def stack(m: Importer, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """stack: tensors along a new axis."""
    axis = m.axis(dim, len(m.shape))
    each = (*m.shape[:axis], *m.shape[axis + 1 :])
    return m.graph.stack([m.taken_as(m.cast(t, m.dtype), each) for t in tensors], axis)


# -- rearrangement ---------------------------------------------------------------------------------
def flip(m: Importer, x: Tensor, dims: Sequence[int]) -> Tensor:
    """flip: the axes `dims` reversed."""
    return x.flip([m.axis(d, x.rank) for d in dims]) if dims and x.rank else x


def roll(m: Importer, x: Tensor, shifts: Sequence[IntoExpr], dims: Sequence[int] = ()) -> Tensor:
    """roll: elements shifted along axes, or over the flattened operand."""
    numbers = [constant_int(s, "the shift of a roll") for s in shifts]
    if not x.rank:
        return x
    if not dims:
        flat = x.reshape(-1).one("roll", shifts=tuple(numbers), axes=(0,))
        return flat.reshape(x.shape)
    for shift, dim in zip(numbers, dims, strict=True):
        x = x.one("roll", shifts=(shift,), axes=(m.axis(dim, x.rank),))
    return x


def repeat(m: Importer, x: Tensor, repeats: Sequence[IntoExpr]) -> Tensor:
    """repeat: whole copies along every axis, new axes first."""
    times = [expr(r) for r in repeats]
    lead = len(times) - x.rank
    x = _reshaped(x, (*[expr(1)] * lead, *x.shape))
    if any(t == ZERO for t in times):
        return m.graph.full(m.shape, 0, x.dtype)
    return x.tile(times) if any(t != expr(1) for t in times) else x


def constant_pad(m: Importer, x: Tensor, pad: Sequence[IntoExpr], value: Number = 0) -> Tensor:
    """constant_pad_nd: `pad` holds (before, after) from the last axis on; negative numbers crop."""
    pairs = _pairs(pad, x.rank)
    if isinstance(value, Expr) or not isinstance(value, bool | int | float):
        raise Refusal("a border whose value depends on sizes")
    return x.pad(pairs, _number(value, x.dtype))


def _number(value: bool | int | float, dtype: DType) -> bool | int | float:
    return float(value) if dtype.is_float else bool(value) if dtype == DType.bool else int(value)


def _pairs(pad: Sequence[IntoExpr], rank: int) -> list[tuple[Expr, Expr]]:
    pairs = [(expr(0), expr(0))] * rank
    for k in range(len(pad) // 2):
        pairs[rank - 1 - k] = (expr(pad[2 * k]), expr(pad[2 * k + 1]))
    return pairs


def mirrored(mode: str) -> Handler:
    """Handler of a padding mode that repeats the operand's own elements."""

    def handler(m: Importer, x: Tensor, pad: Sequence[IntoExpr]) -> Tensor:
        return x.pad(_pairs(pad, x.rank), mode=mode)

    return handler


def triangle(upper: bool) -> Handler:
    """Handler of triu if `upper`, else of tril."""

    def handler(m: Importer, x: Tensor, diagonal: int = 0) -> Tensor:
        return x.one("trilu", upper=upper, k=constant_int(diagonal, "the diagonal"))

    return handler


def diagonal(m: Importer, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """diagonal: elements with equal coordinates on two axes, as a new last axis."""
    a, b = m.axis(dim1, x.rank), m.axis(dim2, x.rank)
    rest = [k for k in range(x.rank) if k not in (a, b)]
    x = x.permute(*rest, a, b)
    count = m.shape[-1]
    if count == ZERO:
        return m.graph.full(m.shape, 0, x.dtype)
    x = part(m, x, x.rank - 2, expr(max(0, -offset)), count)
    return part(m, x, x.rank - 1, expr(max(0, offset)), count).one("diagonal")


def unfold(m: Importer, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """unfold: windows of `size` every `step` along an axis, as a new last axis."""
    if not x.rank:
        return _reshaped(x, m.shape)
    axis = m.axis(dim, x.rank)
    names = [expr(f"i{k}") for k in range(x.rank)]
    names[axis] = names[axis] * step + expr(f"i{x.rank}")
    return x.view(m.shape, map=names)


def windows(
    m: Importer, x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """im2col: [N.., C, H, W] -> [N.., C * kernel, positions]; zeros around the image."""
    border = [(0, 0)] * (x.rank - 2) + [(p, p) for p in padding]
    return x.pad(border).unfold(tuple(kernel), tuple(stride), tuple(dilation)).reshape(*m.shape)


def as_strided(
    m: Importer, x: Tensor, size: Sequence[IntoExpr], stride: Sequence[IntoExpr], offset: IntoExpr | None = None
) -> Tensor:
    """as_strided: the source's storage, which holds exactly the source, row by row, read through strides."""
    flat = x.reshape(-1) if x.rank != 1 else x
    linear: Expr = expr(offset or 0)
    for k, s in enumerate(stride):
        linear = linear + expr(f"i{k}") * expr(s)
    return flat.view(m.shape, linear=linear)


# -- into a part -----------------------------------------------------------------------------------
def slice_scatter(
    m: Importer,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: IntoExpr | None = None,
    end: IntoExpr | None = None,
    step: int = 1,
) -> Tensor:
    """slice_scatter: `x` with a part of one axis replaced, as a scatter, so that an updated input is written in place."""
    axis = m.axis(dim, x.rank)
    count = source.shape[axis]
    if count == ZERO:
        return x
    return replaced(m, x, m.cast(source, x.dtype), axis, start_of(start, x.shape[axis]), constant_int(step, "the step"))


def replaced(m: Importer, x: Tensor, source: Tensor, axis: int, start: Expr, step: int = 1) -> Tensor:
    """`x` with elements start, start + step, … of an axis replaced by the source."""
    if source.shape == x.shape and start == ZERO and step == 1:
        return source
    index = m.graph.one("iota", shape=source.shape, axis=axis, start=start, step=expr(step))
    return x.scatter(axis, index, source)


def select_scatter(m: Importer, x: Tensor, source: Tensor, dim: int, index: IntoExpr) -> Tensor:
    """select_scatter: `x` with one element of an axis replaced."""
    axis = m.axis(dim, x.rank)
    shape = tuple(expr(1) if a == axis else s for a, s in enumerate(x.shape))
    return replaced(m, x, m.cast(source, x.dtype).reshape(shape), axis, _position(index, x.shape[axis]))


def diagonal_scatter(m: Importer, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """diagonal_scatter: `x` with a diagonal replaced."""
    a, b = m.axis(dim1, x.rank), m.axis(dim2, x.rank)
    rest = [k for k in range(x.rank) if k not in (a, b)]
    order = [*rest, a, b]
    row = m.graph.iota((x.shape[a], x.shape[b]), 0)
    column = m.graph.iota((x.shape[a], x.shape[b]), 1)
    on = (row + offset).one("eq", column)
    there = (m.graph.iota((x.shape[a],), 0) + min(offset, 0)).clamp(0, None)
    last = m.graph.size_of(source.shape[-1] - 1)
    wide = m.cast(source, x.dtype).take(there.minimum(last), axis=-1)
    full = tuple(x.shape[k] for k in order)
    spread = wide.reshape(*wide.shape, 1).expand(full)
    out = m.graph.where(on.expand(full), spread, x.permute(order))
    return out.permute([order.index(k) for k in range(x.rank)])


_SAME_ELEMENTS = (
    "view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims",
    "flatten.using_ints", "view_as.default", "_reshape_alias.default",
)  # fmt: skip

VIEW: dict[str, Handler] = {
    **{f"aten.{name}": reshape for name in _SAME_ELEMENTS},
    "aten.expand.default": expand,
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": matrix_transpose,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split,
    "aten.unbind.int": unbind,
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.flip.default": flip,
    "aten.roll.default": roll,
    "aten.repeat.default": repeat,
    "aten.constant_pad_nd.default": constant_pad,
    **{f"aten.reflection_pad{n}d.default": mirrored("reflect") for n in (1, 2, 3)},
    **{f"aten.replication_pad{n}d.default": mirrored("edge") for n in (1, 2, 3)},
    "aten.tril.default": triangle(False),
    "aten.triu.default": triangle(True),
    "aten.diagonal.default": diagonal,
    "aten.unfold.default": unfold,
    "aten.im2col.default": windows,
    "aten.as_strided.default": as_strided,
    "aten.slice_scatter.default": slice_scatter,
    "aten.select_scatter.default": select_scatter,
    "aten.diagonal_scatter.default": diagonal_scatter,
}
"""Handlers of this file by overload. `as_strided` is right for a source that is stored row by row in a storage of its own;
`import_graph` refuses others."""
__all__ = ["VIEW", "part", "replaced", "shape_of", "start_of"]
