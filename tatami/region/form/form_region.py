"""From one group of values to one Region in explicit form: axes, lets, yields.

Axes come first (`frames`), then one let per value, in order, with lets for the movements of its operands (`operands`), and a
yield per value used outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.core.layout import ROW_MAJOR, MemRef
from tatami.core.ops import joining, neutral
from tatami.core.scalar import scalar
from tatami.indexbook.ir import Operand
from tatami.region import ir
from tatami.region.form.operands import Operands
from tatami.region.form.program_facts import ProgramFacts
from tatami.region.walk import nodes
from tatami.tiny import ir as tiny


def form_region(facts: ProgramFacts, name: str, values: Sequence[str]) -> tuple[ir.Region, dict[str, tuple[str, ...]]]:
    """The Region of one group, and the tiny ids from which its name and lets come."""
    return _Former(facts, name, values).region()


class _Former(Operands):
    def __init__(self, facts: ProgramFacts, name: str, values: Sequence[str]) -> None:
        super().__init__(facts, name, values)
        self.name = name
        self.values = list(values)
        self.yields: list[ir.Yield] = []
        self.targets: list[ir.Target] = []

    def region(self) -> tuple[ir.Region, dict[str, tuple[str, ...]]]:
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
        region = ir.Region(
            name=self.name,
            iters=tuple(ir.Iter(a, self.extents[a]) for a in used),
            reduce_axes=tuple(ir.Iter(a, self.extents[a]) for a in reduced),
            inputs=tuple(ir.Param(t, self.memref(t)) for t in self.params),
            outputs=tuple(self.targets),
            lets=tuple(self.lets),
            yields=tuple(self.yields),
        )
        return region, self.origins

    def axes_of(self, let: str) -> tuple[str, ...]:
        """Axes of the let called `let`."""
        return next(x.axes for x in self.lets if x.name == let)

    # -- expressions ---------------------------------------------------------------------------

    def expression(self, v: str) -> ir.RegionExpr:
        """The expression of value `v` over the axes of its frame."""
        node = self.facts.nodes[v]
        own = self.frames[v].own
        match node.op:
            case tiny.Elementwise(fn=fn):
                args = [self.operand(v, k) for k in range(len(node.src))]
                if fn == "where":
                    return ir.Select(*args)
                return ir.Unary(fn, args[0]) if len(args) == 1 else ir.Binary(fn, args[0], args[1])
            case tiny.CastOp(to=to):
                return ir.Cast(self.operand(v, 0), to)
            case tiny.BitcastOp(to=to):
                return ir.Cast(self.operand(v, 0), to, bits=True)
            case tiny.ReduceOp():
                return self.reduce(v, node.op)
            case tiny.ScanOp():
                return self.scan(v, node.op)
            case tiny.GatherOp(bounds=policy):
                return self.gather(v, own, policy)
            case tiny.IotaOp(axis=axis):
                return ir.Index(own[f"i{axis}"], node.dtype)
            case tiny.SizeOp(value=value):
                return ir.Index(value, node.dtype)
            case tiny.ConstOp(value=value):
                return ir.Const(value, node.dtype)
            case tiny.RandOp():
                coordinates = tuple(own[a.name] for a in self.facts.statements[v].axes)
                return ir.Random(self.operand(v, 0), linearize(coordinates, node.shape))
            case (
                tiny.ReshapeOp()
                | tiny.PermuteOp()
                | tiny.ExpandOp()
                | tiny.PadOp()
                | tiny.ShrinkOp()
                | tiny.FlipOp()
                | tiny.ViewOp()
            ):
                return self.direct(v, self.facts.book.values[v].operands[0], own, node.dtype)
            case tiny.InputOp() | tiny.CallOp() | tiny.ResultOp() | tiny.ScatterOp():
                raise fail(
                    "InvalidPlan",
                    v,
                    "the value does not belong to a Region",
                    "give calls and inputs no group with other values",
                )
            case _:
                assert_never(node.op)

    def gather(self, v: str, at: Mapping[str, Expr | ir.RegionExpr], policy: tiny.Bounds) -> ir.RegionExpr:
        """Element `at` of gather `v`; a coordinate is an index expression or, below another gather, a computed one."""
        info = self.facts.book.values[v]
        assert info.gathered is not None
        fixed = {a: e for a, e in at.items() if isinstance(e, Expr)}
        waiting = iter(range(len(info.operands)))
        coordinates: list[Expr | ir.RegionExpr] = []
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
        return ir.ReadAt(data, tuple(e if isinstance(e, Expr) else None for e in coordinates), indices, policy)

    def index_at(self, operand: Operand, at: Mapping[str, Expr | ir.RegionExpr], policy: tiny.Bounds) -> ir.RegionExpr | None:
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
        return ir.ReadAt(read.value, places, computed, policy)

    def reduce(self, v: str, op: tiny.ReduceOp) -> ir.RegionExpr:
        """The reduce `v`; without reduced axes larger than 1, its only element combined with `init`."""
        body = self.operand(v, 0)
        own = self.frames[v].own
        axes = tuple(n for a in self.facts.statements[v].reduced if (n := own[a.name].as_name()) is not None)
        fn = op.op.lower()
        if axes:
            return ir.Reduce(fn, axes, op.init, op.dtype, body)
        if fn in ("argmax", "argmin"):
            return ir.Const(0, op.dtype)
        source = self.facts.nodes[self.facts.nodes[v].src[0]].dtype
        alone = body if source == op.dtype else ir.Cast(body, op.dtype)
        if op.init is None:
            return alone
        return ir.Binary(joining(fn), ir.Const(op.init, op.dtype), alone)

    def scan(self, v: str, op: tiny.ScanOp) -> ir.RegionExpr:
        """The scan `v`; along an axis of size 1, its only element or the neutral one."""
        body = self.operand(v, 0)
        axis = self.frames[v].own[f"i{op.axis}"].as_name()
        if axis is not None:
            return ir.Scan(op.op.lower(), axis, op.dtype, body, op.exclusive, op.reverse)
        if op.exclusive:
            return ir.Const(scalar(neutral(op.op.lower(), op.dtype)), op.dtype)
        return body if self.facts.nodes[self.facts.nodes[v].src[0]].dtype == op.dtype else ir.Cast(body, op.dtype)

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
            self.targets.append(ir.Target(name, self.memref(name), updates=updates))
            self.yields.append(ir.Yield(v, name, map=None if straight else coordinates))

    def overwritten(self, v: str, coordinates: tuple[Expr, ...]) -> str:
        """The mutable input that output `v` may overwrite in place, or "": only this Region reads it, each element exactly
        where `v` writes it, and no value of the Region is read anywhere but at its own point."""
        target = self.update_target(v)
        if not target or not self.facts.readers.get(target, set()) <= self.inside:
            return ""
        inner = [n for let in self.lets for n in nodes(let.expr)]
        if any(
            isinstance(n, ir.At | ir.Transpose | ir.Reduce | ir.Scan) or (isinstance(n, ir.ReadAt) and n.tensor == target)
            for n in inner
        ):
            return ""
        return target if all(n.map == coordinates for n in inner if isinstance(n, ir.Read) and n.tensor == target) else ""

    def update_target(self, v: str) -> str:
        """The mutable input that `v` updates, if `v` is exactly one output of the program and that output updates an input;
        else ""."""
        program = self.facts.program
        ports = [p for p, value in zip(program.signature.outputs, program.outputs) if value == v]
        if len(ports) != 1 or ports[0].updates is None:
            return ""
        return next((n.id for n in program.nodes if isinstance(n.op, tiny.InputOp) and n.op.tensor_id == ports[0].updates), "")

    def scatter(self, v: str) -> None:
        """Add the yields of scatter `v`: a copy of its target first (unless it is overwritten in place), then the updates at
        their indices."""
        node, info, frame = self.facts.nodes[v], self.facts.book.values[v], self.frames[v]
        op = node.op
        assert isinstance(op, tiny.ScatterOp) and info.scattered is not None
        update_axes = tuple(n for a in info.reduced if (n := frame.own[a.name].as_name()) is not None)
        updates = self.updated_input(v)
        if not updates:
            copied = self.let(f"{v}_t", frame.axes, node.dtype, self.direct(v, info.operands[0], frame.own, node.dtype), (v,))
            coordinates = tuple(frame.own[a.name] for a in info.axes)
            straight = coordinates == tuple(var(a) for a in frame.axes)
            self.yields.append(ir.Yield(copied, v, map=None if straight else coordinates))
        else:
            self.params.setdefault(updates)
        source = self.let(f"{v}_u", update_axes, node.dtype, self.direct(v, info.operands[1], frame.own, node.dtype), (v,))
        indices = []
        for k, operand in enumerate(info.operands[2:]):
            dtype = self.facts.nodes[node.src[2 + k]].dtype
            indices.append(self.let(f"{v}_x{k}", update_axes, dtype, self.direct(v, operand, frame.own, dtype), (v,)))
        entries = tuple(None if e is None else substitute(e, frame.own) for e in info.scattered)
        self.yields.append(ir.Yield(source, v, map=entries, indices=tuple(indices), combine=op.op, bounds=op.bounds))
        self.targets.append(ir.Target(v, self.memref(v), updates=updates))

    def updated_input(self, v: str) -> str:
        """The mutable input that scatter `v` may overwrite in place, or "": it is the scatter's plain target, its output
        updates it, and no other node reads it."""
        target = self.facts.nodes[v].src[0]
        if self.update_target(v) != target or self.facts.readers.get(target) != {v}:
            return ""
        return target if sum(a.tensor == target for a in self.facts.statements[v].reads) == 1 else ""
