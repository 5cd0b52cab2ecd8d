"""From tiny to IndexBook: axes, domain and access maps of every value (spec 3 §4.4, spec 5 §1).

    n2 = PERMUTE(x[K, M]); n3 = EXP2(n2)   ->   n3: i0:M i1:K   x[i1, i0]

Movement is composed away step by step (spec 3 §4.3(7)): a *view* is the effect of a chain of movement on its base value,
independent of that value, so that equal chains are composed once. Cost: linear in nodes times rank, plus one composition per
distinct movement step.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, shape_text, sizes_text, var
from tatami.core.module import Module
from tatami.indexbook.compose import MOST_TERMS, View, ViewPiece, axis_name, compose, identity, rename, terms_of
from tatami.indexbook.ir import Access, Axis, Gathered, IndexBook, IndexInfo, Operand, Piece
from tatami.tiny import ir as tiny_ir


def analyse(tiny: Module[tiny_ir.Program]) -> Module[IndexBook]:
    """The book of every program. `tiny` must be normalised; operands of unequal shapes are E1001."""
    books = {name: _Analysis().program(program) for name, program in tiny.programs.items()}
    origins = {name: {node.id: (node.id,) for node in program.nodes} for name, program in tiny.programs.items()}
    return Module(books, tiny.constants, origins)


class _Source(NamedTuple):
    """A value as its readers see it: a view of a base value, and the operand that reads it over the value's axes."""

    view: View
    base: str
    operand: Operand


Pieces: TypeAlias = tuple[ViewPiece, ...]
Flags: TypeAlias = tuple[Literal["non_scop"], ...]


class _Analysis:
    """Analysis of one program: the next axis id, the views composed before, and the source of each value."""

    def __init__(self) -> None:
        self.next_id = 0
        self.nodes: dict[str, tiny_ir.Node] = {}
        self.sources: dict[str, _Source] = {}
        self.infos: dict[str, IndexInfo] = {}
        self.identities: dict[Shape, View] = {}
        self.composed: Final[dict[tuple[int, tiny_ir.Movement], View]] = {}
        self.renamed: Final[dict[tuple[int, tuple[int, ...]], Pieces]] = {}
        self.kept: Final[list[View]] = []  # keeps keys of `composed` and `renamed` alive

    def program(self, program: tiny_ir.Program) -> IndexBook:
        self.nodes = {node.id: node for node in program.nodes}
        for node in program.nodes:
            self.infos[node.id] = self.node(node)
        return IndexBook(self.infos)

    def node(self, node: tiny_ir.Node) -> IndexInfo:
        op = node.op
        if isinstance(op, tiny_ir.MOVEMENT):
            return self.movement(node, op)
        self.sources[node.id] = self.base(node)
        match op:
            case tiny_ir.InputOp() | tiny_ir.ConstOp() | tiny_ir.SizeOp() | tiny_ir.IotaOp() | tiny_ir.ResultOp():
                return IndexInfo(self.fresh(node.shape))
            case tiny_ir.CallOp():
                return IndexInfo((), flags=("non_scop",))
            case tiny_ir.CastOp() | tiny_ir.BitcastOp() | tiny_ir.ScanOp():
                return self.unary(node)
            case tiny_ir.Elementwise():
                return self.unary(node) if len(node.src) == 1 else self.elementwise(node)
            case tiny_ir.ReduceOp(axes=axes, dtype=dtype):
                return self.reduce(node, axes, dtype)
            case tiny_ir.RandOp():
                return IndexInfo(self.fresh(node.shape), (self.sources[node.src[0]].operand,))
            case tiny_ir.GatherOp():
                return self.gather(node, op)
            case tiny_ir.ScatterOp():
                return self.scatter(node, op)
            case _:
                assert_never(op)

    # -- axes ------------------------------------------------------------------------------------
    def fresh(self, shape: Shape, prefix: str = "i") -> tuple[Axis, ...]:
        start = self.next_id
        self.next_id += len(shape)
        return tuple(
            Axis(start + k, axis_name(prefix, k), size, "broadcast" if size == ONE else "iter") for k, size in enumerate(shape)
        )

    def base(self, node: tiny_ir.Node) -> _Source:
        shape = () if isinstance(node.op, tiny_ir.CallOp) else node.shape
        view = self.identities.get(shape)
        if view is None:
            view = self.identities[shape] = identity(shape)
        return _Source(view, node.id, instantiate(view.pieces, node.id))

    # -- the rules of spec 3 §4.4 ----------------------------------------------------------------
    def movement(self, node: tiny_ir.Node, op: tiny_ir.Movement) -> IndexInfo:
        source = self.sources[node.src[0]]
        view = self.compose(source.view, op, node.shape, node.id)
        if source.base != node.src[0] and terms_of(view.pieces) > MOST_TERMS:
            source = self.sources[node.src[0]] = self.base(self.nodes[node.src[0]])
            view = self.compose(source.view, op, node.shape, node.id)
        operand = instantiate(view.pieces, source.base)
        self.sources[node.id] = _Source(view, source.base, operand)
        parent = self.infos[node.src[0]].axes
        start = self.next_id
        axes = list(self.fresh(node.shape))
        kept = view.parent_axes
        if kept is not None:  # permute and its like: axes keep their ids
            self.next_id = start
            for k, j in enumerate(kept):
                ident = parent[j].id if j is not None else self.take_id()
                axes[k] = Axis(ident, axes[k].name, axes[k].size, axes[k].kind)
        for k, axis in enumerate(axes):
            if axis.kind == "iter" and axis.name not in view.used:
                axes[k] = Axis(axis.id, axis.name, axis.size, "broadcast")
        return IndexInfo(tuple(axes), (operand,), flags=_flags(view), is_movement=True)

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def compose(self, view: View, op: tiny_ir.Movement, shape: Shape, at: str) -> View:
        key = (id(view), op)
        found = self.composed.get(key)
        if found is None:
            found = self.composed[key] = compose(view, op, shape, at)
            self.kept.append(found)
        return found

    def unary(self, node: tiny_ir.Node) -> IndexInfo:
        source = self.sources[node.src[0]]
        inherited = self.infos[node.src[0]].axes
        return IndexInfo(_as_iter(inherited), (source.operand,), flags=_flags(source.view))

    def elementwise(self, node: tiny_ir.Node) -> IndexInfo:
        operands: list[Operand] = []
        flags: Flags = ()
        for s in node.src:
            source = self.sources[s]
            if source.view.shape != node.shape:
                source = self.broadcast(source, node)
            operands.append(source.operand)
            flags = flags or _flags(source.view)
        return IndexInfo(self.fresh(node.shape), tuple(operands), flags=flags)

    def broadcast(self, source: _Source, node: tiny_ir.Node) -> _Source:
        """The source expanded right-aligned, for operands that were not made explicit (spec 5 §1.3(D))."""
        have, want = source.view.shape, node.shape
        offset = len(want) - len(have)
        if offset < 0 or any(s not in (ONE, want[offset + j]) for j, s in enumerate(have)):
            raise fail(
                "BroadcastMismatch",
                node.id,
                f"an operand of shape {shape_text(have)} does not spread over {shape_text(want)}",
                f'insert EXPAND with "result_shape": {shape_text(want)} on the operand, or correct its shape',
                lhs_shape=sizes_text(want),
                rhs_shape=sizes_text(have),
            )
        op = tiny_ir.ExpandOp(want, tuple(range(offset, len(want))))
        view = self.compose(source.view, op, want, node.id)
        return _Source(view, source.base, instantiate(view.pieces, source.base))

    def reduce(self, node: tiny_ir.Node, axes: tuple[int, ...], dtype: DType) -> IndexInfo:
        source = self.sources[node.src[0]]
        parent = self.infos[node.src[0]].axes
        key = (id(source.view), axes)
        pieces = self.renamed.get(key)
        if pieces is None:
            names = _names_after_reduce(len(parent), axes)
            pieces = self.renamed[key] = rename(source.view.pieces, {axis_name("i", k): var(n) for k, n in enumerate(names)})
        kept = [k for k in range(len(parent)) if k not in axes]
        info_axes = tuple(
            Axis(parent[k].id, axis_name("i", position), parent[k].size, "broadcast" if parent[k].size == ONE else "iter")
            for position, k in enumerate(kept)
        )
        ordered = sorted(axes)
        reduced = tuple(
            Axis(parent[k].id, axis_name("r", position), parent[k].size, "reduce") for position, k in enumerate(ordered)
        )
        return IndexInfo(
            info_axes,
            (instantiate(pieces, source.base),),
            reduced=reduced,
            reduce_axes=tuple(a.id for a in reduced),
            acc_dtype=dtype,
            flags=_flags(source.view),
        )

    def gather(self, node: tiny_ir.Node, op: tiny_ir.GatherOp) -> IndexInfo:
        data = self.sources[node.src[0]]
        order = list(range(1, len(node.src)))
        gathered = Gathered(node.src[0], op.map)
        composed = compose_gather(data.view, op.map, self.sources[data.base].view.shape)
        if composed is not None:
            entries, positions = composed
            gathered = Gathered(data.base, entries)
            order = [1 + p for p in positions]
        operands = tuple(self.sources[node.src[k]].operand for k in order)
        return IndexInfo(self.fresh(node.shape), operands, flags=("non_scop",), gathered=gathered)

    def scatter(self, node: tiny_ir.Node, op: tiny_ir.ScatterOp) -> IndexInfo:
        shape = self.sources[node.src[1]].view.shape
        names = {axis_name("i", k): var(axis_name("r", k)) for k in range(len(shape))}
        updates = []
        for s in node.src[1:]:
            source = self.sources[s]
            updates.append(instantiate(rename(source.view.pieces, names), source.base))
        entries = tuple(None if e is None else substitute(e, names) for e in op.map)
        reduced = tuple(Axis(a.id, a.name, a.size, "reduce") for a in self.fresh(shape, "r"))
        axes = self.fresh(node.shape)
        target = self.sources[node.src[0]].operand
        return IndexInfo(axes, (target, *updates), reduced=reduced, flags=("non_scop",), scattered=entries)


def instantiate(pieces: Pieces, base: str) -> Operand:
    """The operand that reads `base` through `pieces`."""
    return Operand(tuple(Piece(g, None if m is None else Access(base, m), f) for g, m, f in pieces))


def _as_iter(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes with kind iter instead of broadcast for those larger than 1: a computed value iterates over axes that its
    operand only repeated."""
    if all(a.kind == "iter" or a.size == ONE for a in axes):
        return axes
    return tuple(a if a.kind == "iter" or a.size == ONE else Axis(a.id, a.name, a.size, "iter") for a in axes)


def _names_after_reduce(rank: int, axes: tuple[int, ...]) -> list[str]:
    ordered = sorted(axes)
    out, position = [], 0
    for k in range(rank):
        if k in axes:
            out.append(axis_name("r", ordered.index(k)))
        else:
            out.append(axis_name("i", position))
            position += 1
    return out


def compose_gather(
    view: View, entries: tuple[Expr | None, ...], base: Shape
) -> tuple[tuple[Expr | None, ...], tuple[int, ...]] | None:
    """(map entries over the base value, for each None the position of its index operand), or None if the data must be in
    memory unchanged: its view mixes indexed axes with others, or cuts one short (an index then counts in the part, not in
    the whole)."""
    if len(view.pieces) != 1 or view.pieces[0].map is None:
        return None
    indexed = [k for k, e in enumerate(entries) if e is None]
    position = {axis_name("i", k): p for p, k in enumerate(indexed)}
    known = {axis_name("i", k): e for k, e in enumerate(entries) if e is not None}
    out: list[Expr | None] = []
    order: list[int] = []
    for e, size in zip(view.pieces[0].map, base, strict=True):
        name = e.as_name()
        if name in position:
            if size != view.shape[indexed[position[name]]]:
                return None
            out.append(None)
            order.append(position[name])
        elif not free_vars(e).isdisjoint(position):
            return None
        else:
            out.append(substitute(e, known))
    # An indexed axis that the base does not have (broadcast, size 1) would lose its range check.
    if sorted(order) != list(range(len(indexed))):
        return None
    return tuple(out), tuple(order)


def _flags(view: View) -> Flags:
    return () if view.is_affine else ("non_scop",)
