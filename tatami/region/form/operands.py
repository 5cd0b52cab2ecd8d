"""Operands of a Region's values as expressions: reads of memory, references to lets, and lets for the movements between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, var
from tatami.indexbook.ir import Guard, Operand
from tatami.region import ir
from tatami.region.checks.guards import is_proved_inside
from tatami.region.form.frames import Frames
from tatami.region.form.program_facts import ProgramFacts
from tatami.tiny import ir as tiny


class Operands:
    """The expressions of operands, and the lets made on the way. `origins`: let -> ids of tiny nodes."""

    def __init__(self, facts: ProgramFacts, name: str, values: Sequence[str]) -> None:
        placed = Frames(facts, name, values)
        self.facts = facts
        self.inside = placed.inside
        self.frames = placed.frames
        self.extents = placed.extents
        self.lets: list[ir.Let] = []
        self.params: dict[str, None] = {}
        self.moved: dict[tuple[str, tuple[str, ...]], str] = {}
        self.origins: dict[str, tuple[str, ...]] = {name: tuple(values)}
        self.taken: set[str] = set()

    def let(self, name: str, axes: tuple[str, ...], dtype: DType, e: ir.RegionExpr, origin: tuple[str, ...]) -> str:
        """Append a let and return its name."""
        self.lets.append(ir.Let(name, axes, dtype, e))
        self.taken.add(name)
        self.origins[name] = origin
        return name

    def operand(self, v: str, k: int) -> ir.RegionExpr:
        """Operand k of `v`, its movement spelled out as lets of the explicit form."""
        node = self.facts.nodes[v]
        operand = self.facts.book.values[v].operands[k]
        source = node.src[k] if not isinstance(node.op, tiny.GatherOp) else node.src[1:][k]
        frame = self.frames[v]
        dtype = self.facts.nodes[source].dtype
        if isinstance(node.op, tiny.GatherOp) and len(node.src) > 2:
            return self.direct(v, operand, frame.own, dtype)
        if frame.reshaped or not isinstance(self.facts.nodes[source].op, tiny.MOVEMENT) or self.is_constant(operand):
            return self.direct(v, operand, frame.own, dtype)
        return self.moved_operand(v, source, operand)

    def scope(self, v: str) -> tuple[str, ...]:
        """Axes in scope of the operands of `v`, in the order of the operands' shape."""
        node, frame = self.facts.nodes[v], self.frames[v]
        if not isinstance(node.op, tiny.ReduceOp) or frame.reshaped:
            return frame.axes
        rank = len(self.facts.nodes[node.src[0]].shape)
        removed = sorted(node.op.axes)
        kept = [p for p in range(rank) if p not in removed]
        order = [f"r{removed.index(p)}" if p in removed else f"i{kept.index(p)}" for p in range(rank)]
        return tuple(n for a in order if (n := frame.own[a].as_name()) is not None)

    def is_constant(self, operand: Operand) -> bool:
        """True if every piece of the operand is a constant."""
        return all(p.read is None or isinstance(self.facts.nodes[p.read.value].op, tiny.ConstOp) for p in operand.pieces)

    def moved_operand(self, v: str, source: str, operand: Operand) -> ir.RegionExpr:
        """Reference to the let of movement `source` over the scope of `v`: read, transpose, broadcast; or one general let."""
        own, scope, dtype = self.frames[v].own, self.scope(v), self.facts.nodes[source].dtype
        known = self.moved.get((source, scope))
        if known is not None:
            return ir.Ref(known)
        direct = self.direct(v, operand, own, dtype)
        name = source if source not in self.taken else f"{source}_{v}"
        origin = (source,)
        steps = self.named_steps(operand, own)
        if isinstance(direct, ir.Ref) and len(self.frames[direct.let].axes) == len(scope):
            return direct
        if steps is None:
            self.moved[source, scope] = self.let(name, scope, dtype, direct, origin)
            return ir.Ref(name)
        base, axes = steps
        order = tuple(a for a in scope if a in axes)
        if isinstance(base, ir.Read) and axes != scope:
            base = ir.Ref(self.let(f"{name}_r", axes, dtype, base, origin)) if axes else base
        if order != axes:
            last = name if len(order) == len(scope) else f"{name}_t"
            base = ir.Ref(self.let(last, order, dtype, ir.Transpose(base, tuple(axes.index(a) for a in order)), origin))
        if len(order) < len(scope):
            shape: Shape = tuple(self.extents[a] for a in scope)
            self.let(name, scope, dtype, ir.BroadcastInDim(base, shape, tuple(scope.index(a) for a in order)), origin)
        elif order == axes:
            self.let(name, scope, dtype, direct, origin)
        self.moved[source, scope] = name
        return ir.Ref(name)

    def named_steps(self, operand: Operand, own: Mapping[str, Expr]) -> tuple[ir.RegionExpr, tuple[str, ...]] | None:
        """(operand, its axes by position) if the movement only permutes and repeats axes; else None."""
        if len(operand.pieces) != 1 or operand.pieces[0].guards or operand.pieces[0].read is None:
            return None
        tensor = operand.pieces[0].read.value
        entries = tuple(substitute(e, own) for e in operand.pieces[0].read.map)
        inner = tensor in self.inside
        if inner:
            entries = self.let_coordinates(tensor, entries)
        names = [e.as_name() for e in entries]
        axes = tuple(n for n in names if n is not None and n in self.extents)
        if len(set(axes)) != len(axes):
            return None
        if inner:
            whole = len(axes) == len(names) and all(
                self.extents[a] == self.extents[b] for a, b in zip(axes, self.frames[tensor].axes)
            )
            return (ir.Ref(tensor), axes) if whole else None
        if any(n is None and e.as_int() is None for n, e in zip(names, entries)):
            return None
        read = ir.Read(tensor, entries)
        return (read, axes) if tensor not in self.facts.stored and not self.unproved(read, ()) else None

    def let_coordinates(self, p: str, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Coordinates of let `p` from coordinates of value `p`."""
        frame = self.frames[p]
        into = {a.name: e for a, e in zip(self.facts.statements[p].axes, coordinates)}
        out = tuple(substitute(frame.back[name], into) for name in frame.axes)
        return tuple(simplify(e, self.extents) for e in out) if frame.reshaped else out

    def direct(self, v: str, operand: Operand, own: Mapping[str, Expr], dtype: DType) -> ir.RegionExpr:
        """The operand as one expression: reads under guards, the first piece outermost."""
        out: ir.RegionExpr | None = None
        for piece in reversed(operand.pieces):
            if piece.read is None:
                e: ir.RegionExpr = ir.Const(piece.fill if piece.fill is not None else 0, dtype)
            else:
                e = self.read(v, piece.read.value, piece.read.map, own)
            guards = tuple(Guard(self.at(v, g.index, own), g.size) for g in piece.guards)
            beyond = self.unproved(e, guards) if isinstance(e, ir.Read) else ()
            if beyond:
                e = ir.Select(ir.Within(beyond), e, ir.Const(False if dtype == DType.bool else 0, dtype))
            guards = tuple(g for g in guards if not is_within(g.index, g.size, self.extents))
            out = e if not guards or out is None else ir.Select(ir.Within(guards), e, out)
        assert out is not None
        return out

    def unproved(self, read: ir.Read, guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
        """Guards that keep a read inside its tensor where ranges alone do not prove that it is."""
        node = self.facts.nodes.get(read.tensor)
        if node is None or any(not n.terms for n in self.extents.values()):
            return ()
        pairs = zip(read.map, node.shape, strict=True)
        return tuple(Guard(i, n) for i, n in pairs if not is_proved_inside(i, n, self.extents, guards, self.facts.assumed))

    def at(self, v: str, e: Expr, own: Mapping[str, Expr]) -> Expr:
        """Expression `e` of the tiny axes of `v`, over Region axes."""
        moved = substitute(e, own)
        return simplify(moved, self.extents) if self.frames[v].reshaped else moved

    def read(self, v: str, tensor: str, index_map: tuple[Expr, ...], own: Mapping[str, Expr]) -> ir.RegionExpr:
        """Element `index_map` of `tensor`, read by `v`: of memory, of a let of this Region, or a constant."""
        node = self.facts.nodes[tensor]
        if isinstance(node.op, tiny.ConstOp) and tensor not in self.facts.statements:
            return ir.Const(node.op.value, node.dtype)
        entries = tuple(self.at(v, e, own) for e in index_map)
        if tensor not in self.inside:
            tensor, entries = self.stored_at(tensor, entries)
            self.params.setdefault(tensor)
            return ir.Read(tensor, entries)
        coordinates = self.let_coordinates(tensor, entries)
        axes = self.frames[tensor].axes
        if self.frames[v].reshaped:
            coordinates = tuple(self.settled(simplify(e, self.extents), a) for e, a in zip(coordinates, axes, strict=True))
        return ir.Ref(tensor) if coordinates == tuple(var(a) for a in axes) else ir.At(tensor, coordinates)

    def settled(self, e: Expr, axis: str) -> Expr:
        """The axis itself if `e` is proved equal to it; else `e`."""
        return var(axis) if e != var(axis) and is_inside(e - var(axis), ONE, self.extents) else e

    def stored_at(self, tensor: str, coordinates: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        """The tensor in memory that holds an element of `tensor`, and the element's coordinates in it."""
        stored = self.facts.stored.get(tensor)
        if stored is None:
            return tensor, coordinates
        into = {f"i{k}": e for k, e in enumerate(coordinates)}
        return stored.name, tuple(simplify(substitute(e, into), self.extents) for e in stored.coordinates)
