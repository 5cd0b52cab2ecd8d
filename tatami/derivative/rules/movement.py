"""Derivatives of movement: the opposite movement, or a sum where an element is read several times."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Extreme, Floor, Shape, Var, expr, product
from tatami.derivative.step import Cotangents, Rule, Step, in_shape, padded
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operations.movement import expand_dims, slice_steps


def _reshaped(s: Step) -> Cotangents:
    return [s.g.reshape(s[0].shape)]


def _permute(s: Step) -> Cotangents:
    perm = list(s.attrs.perm)
    return [s.g.permute([perm.index(k) for k in range(len(perm))])]


def _expand(s: Step) -> Cotangents:
    x, g = s[0], s.g
    dims = list(expand_dims(s.attrs, x.rank))
    own = {d for d, size in zip(dims, x.shape, strict=True) if size != ONE or g.shape[d] == ONE}
    axes = [k for k in range(g.rank) if k not in own]
    return [in_shape(g.sum(axes) if axes else g, x.shape)]


def _repeat(s: Step) -> Cotangents:
    return [s.g.sum(s.axis(s.attrs.axis, s[0].rank), keepdims=True)]


def _pad(s: Step) -> Cotangents | None:
    return [padded(s.g, [(-lo, -hi) for lo, hi in s.attrs.pads])] if s.attrs.mode == "constant" else None


def _slice(s: Step) -> Cotangents:
    """The elements back in their places, zeros between them where the step is more than 1."""
    g, x = s.g, s[0]
    for axis, step in enumerate(slice_steps(s.attrs)):
        if step > 1:
            wide = g.unsqueeze(axis + 1)
            wide = wide.pad([(0, step - 1 if k == axis + 1 else 0) for k in range(wide.rank)])
            g = wide.reshape((*g.shape[:axis], g.shape[axis] * step, *g.shape[axis + 1 :]))
    starts = [expr(e) for e in s.attrs.starts]
    return [padded(g, [(lo, size - lo - have) for lo, size, have in zip(starts, x.shape, g.shape, strict=True)])]


def _concat(s: Step) -> Cotangents:
    axis = s.axis(s.attrs.axis, s.g.rank)
    out, start = [], ZERO
    for x in s.operands:
        assert x is not None
        out.append(_part(s.g, axis, start, start + x.shape[axis]))
        start = start + x.shape[axis]
    return out


def _part(x: Tensor, axis: int, lo: Expr, hi: Expr) -> Tensor:
    starts, stops = [ZERO] * x.rank, list(x.shape)
    starts[axis], stops[axis] = lo, hi
    return x.one("slice", starts=tuple(starts), stops=tuple(stops))


def _stack(s: Step) -> Cotangents:
    axis = s.axis(s.attrs.axis, s.g.rank)
    parts = [_part(s.g, axis, expr(k), expr(k + 1)) for k in range(len(s.operands))]
    return [p.reshape(s[k].shape) for k, p in enumerate(parts)]


def _split(s: Step) -> Cotangents:
    parts = [s.cotangent(k) for k in range(len(s.results))]
    return [s.graph.one("concat", *parts, axis=s.axis(s.attrs.axis, s[0].rank))]


def _fold(s: Step) -> Cotangents:
    a = s.attrs
    return [s.g.one("unfold", kernel=a.kernel, stride=a.stride, dilation=a.dilation, groups=a.groups)]


def _unfold(s: Step) -> Cotangents | None:
    a = s.attrs
    return [s.g.one("fold", size=s[0].shape, kernel=a.kernel, stride=a.stride, dilation=a.dilation, groups=a.groups)]


def _view(s: Step) -> Cotangents | None:
    """The sum over all elements that read the same one: as windows that are added up if the map is such, else by a scatter."""
    if s.attrs.map is None:
        return None
    windows = added_windows(s.g, s[0].shape, s.attrs.map)
    return [windows if windows is not None else _scattered(s)]


def added_windows(g: Tensor, shape: Shape, entries: Sequence[Expr]) -> Tensor | None:
    """The cotangent of a view whose map has plain axes, then windows ``o*stride + k*dilation``; None for other maps."""
    lead: list[int] = []
    pairs: list[tuple[int, int, int, int]] = []
    used: set[int] = set()
    for e in entries:
        terms = _axes(e)
        if terms is None or not used.isdisjoint(terms):
            return None
        used |= set(terms)
        steps = sorted(terms.items())
        if len(steps) == 1 and steps[0][1] == 1 and not pairs and g.shape[steps[0][0]] == shape[len(lead)]:
            lead.append(steps[0][0])
        elif len(steps) == 2 and (tap := next((j for j in (1, 0) if g.shape[steps[j][0]].as_int()), None)) is not None:
            (o, by), (k, apart) = steps[1 - tap], steps[tap]
            pairs.append((o, by, k, apart))
        else:
            return None
    if not pairs:
        return None
    rest = [k for k in range(g.rank) if k not in used]
    order = [*lead, *(p[2] for p in pairs), *(p[0] for p in pairs)]
    g = g.permute([*order, *rest])
    if rest:
        g = g.sum(list(range(len(order), g.rank)))
    kernel = tuple(g.shape[len(lead) + j].as_int() or 1 for j in range(len(pairs)))
    stride, dilation = tuple(p[1] for p in pairs), tuple(p[3] for p in pairs)
    sides = zip(g.shape[len(lead) + len(pairs) :], stride, kernel, dilation, strict=True)
    reached = [(count - 1) * step + (taps - 1) * gap + 1 for count, step, taps, gap in sides]
    # Windows that end before the axis does leave its last elements unread.
    out = g.one("fold", size=(*g.shape[: len(lead)], *reached), kernel=kernel, stride=stride, dilation=dilation)
    return padded(out, [(ZERO, to - have) for to, have in zip(shape, out.shape, strict=True)])


def _axes(e: Expr) -> dict[int, int] | None:
    """Axis -> its coefficient for a sum of axes with positive numbers; None for other expressions."""
    out: dict[int, int] = {}
    for mono, coef in e.terms:
        atom = mono[0] if len(mono) == 1 else None
        if not isinstance(atom, Var) or not atom.name[1:].isdigit() or atom.name[0] != "i" or coef < 1:
            return None
        out[int(atom.name[1:])] = coef
    return out or None


def _scattered(s: Step) -> Tensor:
    x, g = s[0], s.g
    total = product(x.shape)
    index = linear_index(s.graph, [computed(s.graph, e, g.shape) for e in s.attrs.map], x.shape)
    zero = s.graph.one("full", shape=(total,), value=0.0, dtype=x.dtype)
    updates = g.reshape((product(g.shape),))
    return zero.one("scatter_nd", index.reshape((product(g.shape), 1)), updates, op="add").reshape(x.shape)


def linear_index(graph: Graph, coordinates: Sequence[Tensor], shape: Shape) -> Tensor:
    """The row-major position of elements at these coordinates of a tensor of `shape`."""
    out = coordinates[0]
    for i, size in zip(coordinates[1:], shape[1:], strict=True):
        out = out * graph.one("size", value=size) + i
    return out


def computed(graph: Graph, e: Expr, shape: Shape) -> Tensor:
    """The value (i64) of an expression over axes i0, i1, … at every element of `shape`."""
    total: Tensor | None = None
    for mono, coef in e.terms:
        term: Tensor | None = None
        for atom in mono:
            factor = _atom(graph, atom, shape)
            term = factor if term is None else term * factor
        if term is None:
            term = graph.number(coef, DType.i64)
        elif coef != 1:
            term = term * coef
        total = term if total is None else total + term
    total = graph.number(0, DType.i64) if total is None else total
    return total if total.shape == shape else total.expand(shape)


def _atom(graph: Graph, atom: Var | Floor | Extreme, shape: Shape) -> Tensor:
    match atom:
        case Var(name=name) if name[0] == "i" and name[1:].isdigit():
            return graph.one("iota", shape=shape, axis=int(name[1:]))
        case Var():
            return graph.one("size", value=Expr((((atom,), 1),)))
        case Floor(num=num, den=den):
            return computed(graph, num, shape).one("floordiv", computed(graph, den, shape))
        case Extreme(kind=kind, args=args):
            first, *rest = (computed(graph, a, shape) for a in args)
            for value in rest:
                first = first.one(kind, value)
            return first


MOVEMENT: dict[str, Rule] = {
    "reshape": _reshaped,
    "unsqueeze": _reshaped,
    "squeeze": _reshaped,
    "flatten": _reshaped,
    "permute": _permute,
    "expand": _expand,
    "repeat": _repeat,
    "flip": lambda s: [s.g.one("flip", axes=s.attrs.axes)],
    "pad": _pad,
    "slice": _slice,
    "roll": lambda s: [s.g.one("roll", shifts=tuple(-k for k in s.attrs.shifts), axes=s.attrs.axes)],
    "trilu": lambda s: [s.g.one("trilu", upper=s.attrs.upper, k=s.attrs.k)],
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "fold": _fold,
    "unfold": _unfold,
    "view": _view,
}
"""Rules of this family by operation. A rule that gives None leaves the node to its lowering."""
