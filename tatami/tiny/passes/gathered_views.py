"""A gather along an axis that a view moved reads below the view: the index goes through the view, and nothing is copied.

    GATHER(FLIP(x), j)     ->  GATHER(x, n - 1 - j)          GATHER(x tiled, j)   ->  GATHER(x, j mod n)
    GATHER(x rolled, j)    ->  GATHER(x, j < c ? j + n - c : j - c)
    GATHER(VIEW(x), j)     ->  GATHER(x, m(j))               where the view's map along the axis depends on that axis alone

An index outside the view stays one outside of x: it becomes the size of x's axis, which every policy that reports refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Atom, Expr, Floor, Shape, Var, expr, floordiv, maximum, var
from tatami.core.scalar import number
from tatami.tiny import ir
from tatami.tiny.passes.rewrite import Answer, Nodes, Rewrite, uniform_constant


def gather_of_view(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """The gather of the view's operand, for gathers along one axis that report indices outside, or need not."""
    assert isinstance(op, ir.GatherOp)
    if op.bounds not in ("wrap", "error", "assume") or len(src) != 2 or op.map.count(None) != 1:
        return None
    axis = op.map.index(None)
    found = _below(src[0], axis, nodes)
    if found is None:
        return None
    below, entries, place = found
    at = {f"i{k}": e for k, e in enumerate(op.map) if e is not None}
    others = tuple(None if k == axis else substitute(e, at) for k, e in enumerate(entries))
    index = _Index(nodes[src[1]].shape)
    moved = index.through(src[1], nodes[src[0]].shape[axis], nodes[below].shape[axis], op.bounds, place)
    return Rewrite(ir.GatherOp(op.result_shape, others, op.bounds), (below, moved), dtype, shape)


class _Index:
    """Arithmetic on indices: i64 values of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def through(self, index: str, size: Expr, below: Expr, bounds: ir.Bounds, place: Place) -> Rewrite:
        """The index in the operand of a view whose axis has `size` elements, where the operand's has `below`."""
        given = Rewrite(ir.CastOp(DType.i64), (index,), DType.i64, self.shape)
        if bounds == "assume":
            return place(self, given)
        negative = self.compare("lt", given, self.size(ZERO))
        counted = self.where(negative, self.apply("add", given, self.size(size)), given) if bounds == "wrap" else given
        inside = self.compare("and", self.compare("ge", counted, self.size(ZERO)), self.compare("lt", counted, self.size(size)))
        return self.where(inside, place(self, counted), self.size(below))

    def size(self, e: Expr) -> Rewrite:
        """The value of a size, at every element of the index."""
        return Rewrite(ir.ExpandOp(self.shape, ()), (Rewrite(ir.SizeOp(e), (), DType.i64, ()),), DType.i64, self.shape)

    def apply(self, fn: str, a: Rewrite, b: Rewrite) -> Rewrite:
        """A binary operation on indices."""
        return Rewrite(ir.Elementwise(fn), (a, b), DType.i64, self.shape)

    def compare(self, fn: str, a: Rewrite, b: Rewrite) -> Rewrite:
        """A comparison of indices, or of truths."""
        return Rewrite(ir.Elementwise(fn), (a, b), DType.bool, self.shape)

    def where(self, test: Rewrite, a: Rewrite, b: Rewrite) -> Rewrite:
        """`a` where the test is true, else `b`."""
        return Rewrite(ir.Elementwise("where"), (test, a, b), DType.i64, self.shape)

    def value(self, e: Expr, name: str, at: Rewrite) -> Rewrite:
        """The value of an expression in which `name` is the index `at`: sums of products with floor quotients."""
        fixed = Expr(tuple(t for t in e.terms if not any(_has(a, name) for a in t[0])))
        total = self.size(fixed) if fixed.terms else None
        for mono, count in e.terms:
            moving = [self.atom(a, name, at) for a in mono if _has(a, name)]
            if not moving:
                continue
            scale = Expr(((tuple(a for a in mono if not _has(a, name)), count),))
            term = moving[0] if scale == ONE else self.apply("mul", moving[0], self.size(scale))
            for other in moving[1:]:
                term = self.apply("mul", term, other)
            total = term if total is None else self.apply("add", term, total)
        return self.size(ZERO) if total is None else total

    def atom(self, atom: Atom, name: str, at: Rewrite) -> Rewrite:
        """The value of a factor that `name` occurs in: the index, or a floor quotient by a size, which is exact without what
        is left."""
        if not isinstance(atom, Floor):
            return at
        above, by = self.value(atom.num, name, at), self.size(maximum(atom.den, 1))
        return self.apply("idiv", self.apply("sub", above, self.apply("mod", above, by)), by)


Place: TypeAlias = Callable[[_Index, Rewrite], Rewrite]
"""The place in a view's operand, along the gathered axis, for a place in the view."""


def _has(atom: Atom, name: str) -> bool:
    return name in free_vars(Expr((((atom,), 1),)))


def _is_computed(e: Expr, name: str) -> bool:
    """True if `_Index.value` can compute the expression: `name` stands in no extreme and in no divisor."""
    atoms = [a for mono, _ in e.terms for a in mono if _has(a, name) and not isinstance(a, Var)]
    return all(isinstance(a, Floor) and name not in free_vars(a.den) and _is_computed(a.num, name) for a in atoms)


# -- views -----------------------------------------------------------------------------------------


def _below(view: str, axis: int, nodes: Nodes) -> tuple[str, tuple[Expr, ...], Place] | None:
    """(operand of the view, its coordinates over the view's, its place along `axis`); None unless the view moves `axis`
    alone, or apart from others."""
    node = nodes[view]
    own, coordinates = f"i{axis}", [var(f"i{k}") for k in range(len(node.shape))]
    match node.op:
        case ir.FlipOp(axes=axes):
            entries = [n - 1 - c if k in axes else c for k, (c, n) in enumerate(zip(coordinates, node.shape))]
        case ir.ViewOp(index_map=entries) if len(entries) == len(node.shape):
            pass
        case ir.ReshapeOp():
            if (x := _tiled(view, axis, nodes)) is None:
                return None
            n = nodes[x].shape[axis]
            coordinates[axis] -= n * floordiv(coordinates[axis], n)
            return x, tuple(coordinates), lambda i, at: i.apply("mod", at, i.size(maximum(n, 1)))
        case ir.Elementwise(fn="where"):
            return _rolled(view, axis, nodes)
        case _:
            return None
    along = entries[axis]
    apart = all(own not in free_vars(e) for k, e in enumerate(entries) if k != axis)
    if along == coordinates[axis] or not apart or not _is_computed(along, own):
        return None
    if {n for n in free_vars(along) if n != own and n[:1] == "i" and n[1:].isdigit()}:
        return None
    return node.src[0], tuple(entries), lambda i, at: i.value(along, own, at)


def _tiled(view: str, axis: int, nodes: Nodes) -> str | None:
    """The operand of RESHAPE(EXPAND(RESHAPE(x))) that repeats x along `axis`; None for another reshape."""
    expanded = nodes[nodes[view].src[0]]
    if not isinstance(expanded.op, ir.ExpandOp) or not isinstance(nodes[expanded.src[0]].op, ir.ReshapeOp):
        return None
    split = nodes[expanded.src[0]]
    x = nodes[split.src[0]]
    rank = len(x.shape)
    pairs = tuple(s for n in x.shape for s in (ONE, n))
    if split.shape != pairs or expanded.op.broadcast_dimensions != tuple(range(2 * rank)) or len(nodes[view].shape) != rank:
        return None
    times = expanded.shape[::2]
    whole = expanded.shape[1::2] == x.shape and nodes[view].shape == tuple(t * n for t, n in zip(times, x.shape))
    return split.src[0] if whole and all(t == ONE for k, t in enumerate(times) if k != axis) and times[axis] != ONE else None


def _rolled(view: str, axis: int, nodes: Nodes) -> tuple[str, tuple[Expr, ...], Place] | None:
    """Two parts of one tensor, end to end: WHERE(LT(IOTA, c), PAD(SHRINK(x)), PAD(SHRINK(x)))."""
    chosen = nodes[view]
    test = nodes[chosen.src[0]]
    if not isinstance(test.op, ir.Elementwise) or test.op.fn != "lt":
        return None
    coordinate, bound = nodes[test.src[0]], uniform_constant(test.src[1], nodes)
    if not isinstance(coordinate.op, ir.IotaOp) or (coordinate.op.axis, coordinate.dtype) != (axis, DType.i64) or bound is None:
        return None
    assert isinstance(bound.op, ir.ConstOp)
    cut = int(number(bound.op.value))
    parts = [_part(s, axis, nodes) for s in chosen.src[1:]]
    first, second = parts
    if first is None or second is None or first.of != second.of or chosen.shape != nodes[view].shape:
        return None
    inside = first.begin == 0 and first.end >= cut and second.begin <= cut and second.end >= (chosen.shape[axis].as_int() or 0)
    if not inside or chosen.shape[axis].as_int() is None:
        return None

    def place(i: _Index, at: Rewrite) -> Rewrite:
        moved = [i.apply("add", at, i.size(expr(p.shift))) for p in (first, second)]
        return i.where(i.compare("lt", at, i.size(expr(cut))), *moved)

    return first.of, tuple(var(f"i{k}") for k in range(len(chosen.shape))), place


class _Part(NamedTuple):
    """Elements [begin, end) of a joined axis: those of the tensor `of` at `shift` more."""

    of: str
    begin: int
    end: int
    shift: int


def _part(padded: str, axis: int, nodes: Nodes) -> _Part | None:
    pad = nodes[padded]
    cut = nodes[pad.src[0]] if isinstance(pad.op, ir.PadOp) else None
    if (
        not isinstance(pad.op, ir.PadOp)
        or cut is None
        or not isinstance(cut.op, ir.ShrinkOp)
        or any(s != 1 for s in cut.op.step)
    ):
        return None
    x = nodes[cut.src[0]]
    for k, (lo, hi) in enumerate(zip(cut.op.lo, cut.op.hi, strict=True)):
        if k != axis and (lo != ZERO or hi != x.shape[k] or pad.op.pad[k] != (ZERO, ZERO)):
            return None
    before, first, end = pad.op.pad[axis][0].as_int(), cut.op.lo[axis].as_int(), cut.op.hi[axis].as_int()
    if before is None or first is None or end is None:
        return None
    return _Part(cut.src[0], before, before + end - first, first - before)
