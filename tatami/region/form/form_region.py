"""From one group of values to one Region in explicit form: axes, lets, yields.

Axes come first: axes that reads map straight onto each other are one axis of the Region. A value that sees a shared result
through a reshape (``[M, N]`` read as ``[B, S, N]``) takes over the result's axes; its own coordinates are then expressions of
them. Axes of size 1 are dropped. Then one let per value, in order, and a yield per value used outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import msgspec

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.inverse import invert
from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.simplify import linearize, simplify
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, var
from tatami.core.layout import ROW_MAJOR, Layout, MemRef
from tatami.core.ops import joining, neutral
from tatami.core.scalar import scalar
from tatami.indexbook.ir import Guard, IndexBook, Operand
from tatami.poly_view.ir import ContractionPattern, Edge, Statement
from tatami.region.checks.guards import is_proved_inside
from tatami.region.form.axis_classes import AxisClasses
from tatami.region.form.axis_names import name_axes
from tatami.region.form.stored_values import Stored
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Iter,
    Let,
    Param,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Target,
    Transpose,
    Unary,
    Within,
    Yield,
)
from tatami.region.walk import nodes
from tatami.tiny.ir import (
    MOVEMENT,
    BitcastOp,
    Bounds,
    CallOp,
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    FlipOp,
    GatherOp,
    InputOp,
    IotaOp,
    Node,
    PadOp,
    PermuteOp,
    Program,
    RandOp,
    ReduceOp,
    ReshapeOp,
    ResultOp,
    ScanOp,
    ScatterOp,
    ShrinkOp,
    SizeOp,
    ViewOp,
)


class ProgramFacts(msgspec.Struct, frozen=True):
    """Look-up tables that forming any Region of a program needs."""

    program: Program
    nodes: dict[str, Node]
    book: IndexBook
    statements: dict[str, Statement]
    edges: dict[tuple[str, str], Edge]
    patterns: dict[str, ContractionPattern]
    readers: dict[str, set[str]]
    writer: dict[str, str]
    """Value → the Region that writes it to memory, for every value that some reader needs there."""
    layouts: dict[str, Layout]
    symbols: frozenset[str]
    stored: dict[str, Stored]
    """Values that are stored between Regions as one of their movements."""
    assumed: Assumed
    """Sizes that the program's signature declares equal."""


class Frame(msgspec.Struct, frozen=True):
    """Position of a value in the Region. `axes`: axes of its let; `own`: its tiny axes (i…, r…) as expressions of Region axes;
    `back`: each let axis as an expression of the tiny axes i…; `reshaped`: True if the value took over another value's
    axes."""

    axes: tuple[str, ...]
    own: dict[str, Expr]
    back: dict[str, Expr]
    reshaped: bool = False


def form_region(facts: ProgramFacts, name: str, values: Sequence[str]) -> tuple[Region, dict[str, tuple[str, ...]]]:
    """The Region of one group, and the tiny ids from which its name and lets come."""
    return _Former(facts, name, values).region()


class _Former:
    def __init__(self, facts: ProgramFacts, name: str, values: Sequence[str]) -> None:
        self.facts = facts
        self.name = name
        self.values = list(values)
        self.inside = set(values)
        self.lets: list[Let] = []
        self.dtypes: dict[str, DType] = {}
        self.params: dict[str, None] = {}
        self.yields: list[Yield] = []
        self.targets: list[Target] = []
        self.moved: dict[tuple[str, tuple[str, ...]], str] = {}
        self.origins: dict[str, tuple[str, ...]] = {name: tuple(values)}
        self.frames: dict[str, Frame] = {}
        self.extents: dict[str, Expr] = {}
        self.taken: set[str] = set()

    # -- axes ----------------------------------------------------------------------------------

    def region(self) -> tuple[Region, dict[str, tuple[str, ...]]]:
        self.place()
        for v in self.values:
            if self.facts.statements[v].kind == "scatter":
                self.scatter(v)
            else:
                self.let(v, self.frames[v].axes, self.facts.nodes[v].dtype, self.expression(v), (v,))
        self.write_outputs()
        used: dict[str, None] = {}
        for t in self.targets:
            used.update(dict.fromkeys(a for y in self.yields if y.to == t.name for a in self.axes_of(y.source)))
        for let in self.lets:
            used.update(dict.fromkeys(let.axes))
        reduced: dict[str, None] = {}
        for v in self.values:
            for a in self.facts.statements[v].reduced:
                e = self.frames[v].own.get(a.name)
                reduced.update(dict.fromkeys(sorted(free_vars(e) - used.keys() - self.facts.symbols)) if e is not None else {})
        region = Region(
            name=self.name,
            iters=tuple(Iter(a, self.extents[a]) for a in used),
            reduce_axes=tuple(Iter(a, self.extents[a]) for a in reduced),
            inputs=tuple(Param(t, self.memref(t)) for t in self.params),
            outputs=tuple(self.targets),
            lets=tuple(self.lets),
            yields=tuple(self.yields),
        )
        return region, self.origins

    def axes_of(self, let: str) -> tuple[str, ...]:
        """Axes of the let called `let`."""
        return next(x.axes for x in self.lets if x.name == let)

    def place(self) -> None:
        """Decide the frame of every value."""
        statements = self.facts.statements
        classes = AxisClasses(statements)
        reshaped: dict[str, tuple[str, tuple[Expr, ...], tuple[Expr, ...]]] = {}
        rigid: set[str] = set()
        for v in self.values:
            s = statements[v]
            inner = [a for a in s.reads if a.tensor in self.inside and not a.may]
            source = self.reshape_source(v, rigid, reshaped)
            if source is not None:
                reshaped[v] = source
                rigid.add(v)
                continue
            classes.add(v)
            classes.unify_reads(v, lambda p: p in self.inside and p not in reshaped)
            if s.kind in ("reduce", "scan") or any(a.tensor in rigid for a in inner):
                rigid.add(v)
        self.join_common_reads(classes, [v for v in self.values if v not in reshaped])
        patterns = [self.facts.patterns[v] for v in self.values if v in self.facts.patterns]
        anchors = [p for p in patterns if p.pattern != "dot"]
        outputs = [v for v in self.values if self.is_output(v)]
        plain = [v for v in self.values if v not in reshaped]
        names = name_axes(classes, statements, plain, outputs, anchors, self.facts.symbols)
        self.extents = {name: classes.size[root] for root, name in names.items()}
        for v in self.values:
            s = statements[v]
            if v in reshaped:
                self.frames[v] = self.reshaped_frame(v, *reshaped[v])
                continue
            own: dict[str, Expr] = {}
            for axis in (*s.axes, *s.reduced):
                own[axis.name] = ZERO if axis.size == ONE else var(names[classes.find((v, axis.name))])
            axes = tuple(names[classes.find((v, a.name))] for a in s.axes if a.size != ONE)
            back = {names[classes.find((v, a.name))]: var(a.name) for a in s.axes if a.size != ONE}
            self.frames[v] = Frame(axes, own, back)

    def join_common_reads(self, classes: AxisClasses, values: Sequence[str]) -> None:
        """Let values that read the same dimension of the same tensor share the axis, if no contraction gives roles: ``max over
        i1 of x[i0, i1]`` and ``exp(x[i0, i1] - ..)``."""
        if any(self.facts.patterns[v].pattern != "dot" for v in values if v in self.facts.patterns):
            return
        first: dict[tuple[str, int], tuple[str, str]] = {}
        for v in values:
            for access in self.facts.statements[v].reads:
                if access.tensor in self.inside or access.may:
                    continue
                for d, entry in enumerate(access.map):
                    slot = (v, (entry.as_name() if entry is not None else None) or "")
                    if slot in classes.parent:
                        classes.union(first.setdefault((access.tensor, d), slot), slot)

    def reshape_source(
        self, v: str, rigid: set[str], reshaped: Mapping[str, object]
    ) -> tuple[str, tuple[Expr, ...], tuple[Expr, ...]] | None:
        """(value, map onto it, inverse) of the shared result that `v` reads through a reshape; None if there is none."""
        s = self.facts.statements[v]
        if s.kind not in ("elementwise", "copy"):
            return None
        for access in s.reads:
            p = access.tensor
            if p not in rigid or access.guards or access.may:
                continue
            edge = self.facts.edges[p, v]
            if edge.rule != "reshape" and not (p in reshaped and edge.rule == "pointwise"):
                continue
            index_map = tuple(e for e in access.map if e is not None)
            producer = self.facts.statements[p]
            target = tuple(f"@{a.name}" for a in producer.axes)
            inverse = invert(index_map, {a.name: a.size for a in s.axes}, target, tuple(a.size for a in producer.axes))
            if inverse is not None:
                return p, index_map, inverse
        return None

    def reshaped_frame(self, v: str, p: str, index_map: tuple[Expr, ...], inverse: tuple[Expr, ...]) -> Frame:
        """The frame of `v`, a reshape of `p` by `index_map`: the axes of `p`, and coordinates by `inverse`."""
        base = self.frames[p]
        axes = self.facts.statements[p].axes
        into = {f"@{a.name}": base.own[a.name] for a in axes}
        own = {
            a.name: simplify(substitute(e, into), self.extents)
            for a, e in zip(self.facts.statements[v].axes, inverse, strict=True)
        }
        forward = {a.name: e for a, e in zip(axes, index_map, strict=True)}
        back = {name: substitute(e, forward) for name, e in base.back.items()}
        return Frame(base.axes, own, back, reshaped=True)

    # -- expressions ---------------------------------------------------------------------------

    def let(self, name: str, axes: tuple[str, ...], dtype: DType, e: RegionExpr, origin: tuple[str, ...]) -> str:
        """Append a let and return its name."""
        self.lets.append(Let(name, axes, dtype, e))
        self.dtypes[name] = dtype
        self.taken.add(name)
        self.origins[name] = origin
        return name

    def expression(self, v: str) -> RegionExpr:
        """The expression of value `v` over the axes of its frame."""
        node = self.facts.nodes[v]
        own = self.frames[v].own
        match node.op:
            case Elementwise(fn=fn):
                args = [self.operand(v, k) for k in range(len(node.src))]
                if fn == "where":
                    return Select(*args)
                return Unary(fn, args[0]) if len(args) == 1 else Binary(fn, args[0], args[1])
            case CastOp(to=to):
                return Cast(self.operand(v, 0), to)
            case BitcastOp(to=to):
                return Cast(self.operand(v, 0), to, bits=True)
            case ReduceOp():
                return self.reduce(v, node.op)
            case ScanOp():
                return self.scan(v, node.op)
            case GatherOp(bounds=policy):
                return self.gather(v, own, policy)
            case IotaOp(axis=axis):
                return Index(own[f"i{axis}"], node.dtype)
            case SizeOp(value=value):
                return Index(value, node.dtype)
            case ConstOp(value=value):
                return Const(value, node.dtype)
            case RandOp():
                coordinates = tuple(own[a.name] for a in self.facts.statements[v].axes)
                return Random(self.operand(v, 0), linearize(coordinates, node.shape))
            case ReshapeOp() | PermuteOp() | ExpandOp() | PadOp() | ShrinkOp() | FlipOp() | ViewOp():
                return self.direct(v, self.facts.book.values[v].operands[0], own, node.dtype)
            case InputOp() | CallOp() | ResultOp() | ScatterOp():
                raise fail(
                    "InvalidPlan",
                    v,
                    "the value does not belong to a Region",
                    "give calls and inputs no group with other values",
                )
            case _:
                assert_never(node.op)

    def gather(self, v: str, at: Mapping[str, Expr | RegionExpr], policy: Bounds) -> RegionExpr:
        """Element `at` of gather `v`; a coordinate is an index expression or, below another gather, a computed one."""
        info = self.facts.book.values[v]
        assert info.gathered is not None
        fixed = {a: e for a, e in at.items() if isinstance(e, Expr)}
        waiting = iter(range(len(info.operands)))
        coordinates: list[Expr | RegionExpr] = []
        for entry in info.gathered.map:
            if entry is None:
                k = next(waiting)
                straight = fixed == self.frames[v].own and len(info.operands) == 1
                base = next((p.read.value for p in info.operands[k].pieces if p.read is not None), None)
                dtype = self.facts.nodes[base].dtype if base is not None else DType.i64
                coordinates.append(
                    self.operand(v, k)
                    if straight
                    else self.index_at(info.operands[k], at, policy) or self.direct(v, info.operands[k], fixed, dtype)
                )
            elif free_vars(entry) <= fixed.keys() | self.facts.symbols:
                coordinates.append(substitute(entry, fixed))
            else:
                coordinates.append(at[entry.as_name() or ""])
        data = info.gathered.value
        if data in self.inside:
            return self.gather(data, {f"i{k}": e for k, e in enumerate(coordinates)}, policy)
        self.params.setdefault(data)
        indices = tuple(e for e in coordinates if not isinstance(e, Expr))
        return ReadAt(data, tuple(e if isinstance(e, Expr) else None for e in coordinates), indices, policy)

    def index_at(self, operand: Operand, at: Mapping[str, Expr | RegionExpr], policy: Bounds) -> RegionExpr | None:
        """The index of an inner gather if some of its coordinates are computed; None if all are index expressions."""
        read = operand.pieces[0].read
        if read is None:
            return None
        entries = [at.get(e.as_name() or "", e) if isinstance(e, Expr) else e for e in read.map]
        computed = tuple(e for e in entries if not isinstance(e, Expr))
        if not computed:
            return None
        fixed = {a: e for a, e in at.items() if isinstance(e, Expr)}
        places = tuple(substitute(m, fixed) if isinstance(e, Expr) else None for m, e in zip(read.map, entries, strict=True))
        self.params.setdefault(read.value)
        return ReadAt(read.value, places, computed, policy)

    def reduce(self, v: str, op: ReduceOp) -> RegionExpr:
        """The reduce `v`; without reduced axes larger than 1, its only element combined with `init`."""
        body = self.operand(v, 0)
        own = self.frames[v].own
        axes = tuple(n for a in self.facts.statements[v].reduced if (n := own[a.name].as_name()) is not None)
        fn = op.op.lower()
        if axes:
            return Reduce(fn, axes, op.init, op.dtype, body)
        if fn in ("argmax", "argmin"):
            return Const(0, op.dtype)
        source = self.facts.nodes[self.facts.nodes[v].src[0]].dtype
        alone = body if source == op.dtype else Cast(body, op.dtype)
        if op.init is None:
            return alone
        return Binary(joining(fn), Const(op.init, op.dtype), alone)

    def scan(self, v: str, op: ScanOp) -> RegionExpr:
        """The scan `v`; along an axis of size 1, its only element or the neutral one."""
        body = self.operand(v, 0)
        axis = self.frames[v].own[f"i{op.axis}"].as_name()
        if axis is not None:
            return Scan(op.op.lower(), axis, op.dtype, body, op.exclusive, op.reverse)
        if op.exclusive:
            return Const(scalar(neutral(op.op.lower(), op.dtype)), op.dtype)
        return body if self.facts.nodes[self.facts.nodes[v].src[0]].dtype == op.dtype else Cast(body, op.dtype)

    def operand(self, v: str, k: int) -> RegionExpr:
        """Operand k of `v`, its movement spelled out as lets of the explicit form."""
        node = self.facts.nodes[v]
        operand = self.facts.book.values[v].operands[k]
        source = node.src[k] if not isinstance(node.op, GatherOp) else node.src[1:][k]
        frame = self.frames[v]
        scope = self.scope(v)
        dtype = self.facts.nodes[source].dtype
        if isinstance(node.op, GatherOp) and len(node.src) > 2:
            return self.direct(v, operand, frame.own, dtype)
        if frame.reshaped or not isinstance(self.facts.nodes[source].op, MOVEMENT) or self.is_constant(operand):
            return self.direct(v, operand, frame.own, dtype)
        return self.moved_operand(v, source, operand, frame.own, scope, dtype)

    def scope(self, v: str) -> tuple[str, ...]:
        """Axes in scope of the operands of `v`, in the order of the operands' shape."""
        node, frame = self.facts.nodes[v], self.frames[v]
        if not isinstance(node.op, ReduceOp) or frame.reshaped:
            return frame.axes
        rank = len(self.facts.nodes[node.src[0]].shape)
        removed = sorted(node.op.axes)
        kept = [p for p in range(rank) if p not in removed]
        order = [f"r{removed.index(p)}" if p in removed else f"i{kept.index(p)}" for p in range(rank)]
        return tuple(n for a in order if (n := frame.own[a].as_name()) is not None)

    def is_constant(self, operand: Operand) -> bool:
        """True if every piece of the operand is a constant."""
        return all(p.read is None or isinstance(self.facts.nodes[p.read.value].op, ConstOp) for p in operand.pieces)

    def moved_operand(
        self, v: str, source: str, operand: Operand, own: Mapping[str, Expr], scope: tuple[str, ...], dtype: DType
    ) -> RegionExpr:
        """Reference to the let of movement `source` over `scope`: read, transpose, broadcast; or one general let."""
        known = self.moved.get((source, scope))
        if known is not None:
            return Ref(known)
        direct = self.direct(v, operand, own, dtype)
        name = source if source not in self.taken else f"{source}_{v}"
        origin = (source,)
        steps = self.named_steps(operand, own)
        if isinstance(direct, Ref) and len(self.frames[direct.let].axes) == len(scope):
            return direct
        if steps is None:
            self.moved[source, scope] = self.let(name, scope, dtype, direct, origin)
            return Ref(name)
        base, axes = steps
        order = tuple(a for a in scope if a in axes)
        if isinstance(base, Read) and axes != scope:
            base = Ref(self.let(f"{name}_r", axes, dtype, base, origin)) if axes else base
        if order != axes:
            last = name if len(order) == len(scope) else f"{name}_t"
            base = Ref(self.let(last, order, dtype, Transpose(base, tuple(axes.index(a) for a in order)), origin))
        if len(order) < len(scope):
            shape: Shape = tuple(self.extents[a] for a in scope)
            self.let(name, scope, dtype, BroadcastInDim(base, shape, tuple(scope.index(a) for a in order)), origin)
        elif order == axes:
            self.let(name, scope, dtype, direct, origin)
        self.moved[source, scope] = name
        return Ref(name)

    def named_steps(self, operand: Operand, own: Mapping[str, Expr]) -> tuple[RegionExpr, tuple[str, ...]] | None:
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
            return (Ref(tensor), axes) if whole else None
        if any(n is None and e.as_int() is None for n, e in zip(names, entries)):
            return None
        read = Read(tensor, entries)
        return (read, axes) if tensor not in self.facts.stored and not self.unproved(read, ()) else None

    def let_coordinates(self, p: str, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Coordinates of let `p` from coordinates of value `p`."""
        frame = self.frames[p]
        into = {a.name: e for a, e in zip(self.facts.statements[p].axes, coordinates)}
        out = tuple(substitute(frame.back[name], into) for name in frame.axes)
        return tuple(simplify(e, self.extents) for e in out) if frame.reshaped else out

    def direct(self, v: str, operand: Operand, own: Mapping[str, Expr], dtype: DType) -> RegionExpr:
        """The operand as one expression: reads under guards, the first piece outermost."""
        out: RegionExpr | None = None
        for piece in reversed(operand.pieces):
            if piece.read is None:
                e: RegionExpr = Const(piece.fill if piece.fill is not None else 0, dtype)
            else:
                e = self.read(v, piece.read.value, piece.read.map, own)
            guards = tuple(Guard(self.at(v, g.index, own), g.size) for g in piece.guards)
            beyond = self.unproved(e, guards) if isinstance(e, Read) else ()
            if beyond:
                e = Select(Within(beyond), e, Const(False if dtype == DType.bool else 0, dtype))
            guards = tuple(g for g in guards if not is_within(g.index, g.size, self.extents))
            out = e if not guards or out is None else Select(Within(guards), e, out)
        assert out is not None
        return out

    def unproved(self, read: Read, guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
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

    def read(self, v: str, tensor: str, index_map: tuple[Expr, ...], own: Mapping[str, Expr]) -> RegionExpr:
        node = self.facts.nodes[tensor]
        if isinstance(node.op, ConstOp) and tensor not in self.facts.statements:
            return Const(node.op.value, node.dtype)
        entries = tuple(self.at(v, e, own) for e in index_map)
        if tensor not in self.inside:
            tensor, entries = self.stored_at(tensor, entries)
            self.params.setdefault(tensor)
            return Read(tensor, entries)
        coordinates = self.let_coordinates(tensor, entries)
        axes = self.frames[tensor].axes
        if self.frames[v].reshaped:
            coordinates = tuple(self.settled(simplify(e, self.extents), a) for e, a in zip(coordinates, axes, strict=True))
        return Ref(tensor) if coordinates == tuple(var(a) for a in axes) else At(tensor, coordinates)

    def settled(self, e: Expr, axis: str) -> Expr:
        """The axis itself if `e` is proved equal to it; else `e`."""
        return var(axis) if e != var(axis) and is_inside(e - var(axis), ONE, self.extents) else e

    # -- outputs -------------------------------------------------------------------------------

    def is_output(self, v: str) -> bool:
        """True if this Region writes `v` to memory."""
        return self.facts.writer.get(v) == self.name

    def memref(self, tensor: str) -> MemRef:
        """Shape, dtype and layout of a tensor of the program."""
        node = self.facts.nodes[tensor]
        return MemRef(node.dtype, node.shape, layout=self.facts.layouts.get(tensor, ROW_MAJOR))

    def write_outputs(self) -> None:
        """Add a target and a yield for every value that this Region writes; scatters have added theirs."""
        for v in self.values:
            if not self.is_output(v) or self.facts.statements[v].kind == "scatter":
                continue
            frame = self.frames[v]
            coordinates = tuple(frame.own[a.name] for a in self.facts.statements[v].axes)
            name, coordinates = self.stored_at(v, coordinates)
            straight = coordinates == tuple(var(a) for a in frame.axes)
            updates = self.overwritten(v, coordinates)
            if updates:  # even if the new values do not come from it, as in a fill
                self.params.setdefault(updates)
            self.targets.append(Target(name, self.memref(name), updates=updates))
            self.yields.append(Yield(v, name, map=None if straight else coordinates))

    def overwritten(self, v: str, coordinates: tuple[Expr, ...]) -> str:
        """The mutable input that output `v` may overwrite in place, or "": only this Region reads it, each element exactly
        where `v` writes it, and no value of the Region is read anywhere but at its own point."""
        target = self.update_target(v)
        if not target or not self.facts.readers.get(target, set()) <= self.inside:
            return ""
        inner = [n for let in self.lets for n in nodes(let.expr)]
        if any(isinstance(n, At | Transpose | Reduce | Scan) or (isinstance(n, ReadAt) and n.tensor == target) for n in inner):
            return ""
        return target if all(n.map == coordinates for n in inner if isinstance(n, Read) and n.tensor == target) else ""

    def update_target(self, v: str) -> str:
        """The mutable input that `v` updates, if `v` is exactly one output of the program and that output updates an input;
        else ""."""
        program = self.facts.program
        ports = [p for p, value in zip(program.signature.outputs, program.outputs) if value == v]
        if len(ports) != 1 or ports[0].updates is None:
            return ""
        return next((n.id for n in program.nodes if isinstance(n.op, InputOp) and n.op.tensor_id == ports[0].updates), "")

    def stored_at(self, tensor: str, coordinates: tuple[Expr, ...]) -> tuple[str, tuple[Expr, ...]]:
        """The tensor in memory that holds an element of `tensor`, and the element's coordinates in it."""
        stored = self.facts.stored.get(tensor)
        if stored is None:
            return tensor, coordinates
        into = {f"i{k}": e for k, e in enumerate(coordinates)}
        return stored.name, tuple(simplify(substitute(e, into), self.extents) for e in stored.coordinates)

    def scatter(self, v: str) -> None:
        """Add the yields of scatter `v`: a copy of its target first (unless it is overwritten in place), then the updates at
        their indices."""
        node, info, frame = self.facts.nodes[v], self.facts.book.values[v], self.frames[v]
        op = node.op
        assert isinstance(op, ScatterOp) and info.scattered is not None
        update_axes = tuple(n for a in info.reduced if (n := frame.own[a.name].as_name()) is not None)
        updates = self.updated_input(v)
        if not updates:
            copied = self.let(f"{v}_t", frame.axes, node.dtype, self.direct(v, info.operands[0], frame.own, node.dtype), (v,))
            coordinates = tuple(frame.own[a.name] for a in info.axes)
            straight = coordinates == tuple(var(a) for a in frame.axes)
            self.yields.append(Yield(copied, v, map=None if straight else coordinates))
        else:
            self.params.setdefault(updates)
        source = self.let(f"{v}_u", update_axes, node.dtype, self.direct(v, info.operands[1], frame.own, node.dtype), (v,))
        indices = []
        for k, operand in enumerate(info.operands[2:]):
            dtype = self.facts.nodes[node.src[2 + k]].dtype
            indices.append(self.let(f"{v}_x{k}", update_axes, dtype, self.direct(v, operand, frame.own, dtype), (v,)))
        entries = tuple(None if e is None else substitute(e, frame.own) for e in info.scattered)
        self.yields.append(Yield(source, v, map=entries, indices=tuple(indices), combine=op.op, bounds=op.bounds))
        self.targets.append(Target(v, self.memref(v), updates=updates))

    def updated_input(self, v: str) -> str:
        """The mutable input that scatter `v` may overwrite in place, or "": it is the scatter's plain target, its output
        updates it, and no other node reads it."""
        target = self.facts.nodes[v].src[0]
        if self.update_target(v) != target or self.facts.readers.get(target) != {v}:
            return ""
        return target if sum(a.tensor == target for a in self.facts.statements[v].reads) == 1 else ""
