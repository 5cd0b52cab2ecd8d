"""A node's lowering read back as operations of the frontend, each of which has a derivative.

    y = group_norm(x, w)   ->   lowered to UOps   ->   reshape, reduce_mean's sum and product, sub, mul, rsqrt, …

Every UOp but a routine is one operation of the frontend or a few, and their lowering is that UOp again: `normalize` finds what
the forward node computes already, and computes it once.
"""

from __future__ import annotations

from typing import NoReturn, assert_never

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.core.module import Module, Origins
from tatami.core.scalar import Scalar
from tatami.derivative.rules.movement import computed
from tatami.derivative.step import Step
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import TensorType
from tatami.tiny import ir
from tatami.tiny.build import Builder, Value
from tatami.tiny.infer import Type
from tatami.tiny.lower import RULES
from tatami.tiny.lowering.rule import Use
from tatami.tiny.lowering.small_dtypes import carrier


def lifted(s: Step) -> tuple[Tensor, ...]:
    """The results of the node, made again of small operations. Raises TatamiError for a node that is a routine of its own."""
    if s.node.op not in RULES:
        raise _refused(s)
    b = Builder()
    b.at = s.node.name
    programs: dict[str, ir.Program] = {}

    def add_program(program: ir.Program, origins: Origins) -> str:
        programs[f"step{len(programs)}"] = program
        return f"step{len(programs) - 1}"

    operands: list[Value | None] = []
    known: dict[str, Tensor] = {}
    for k, x in enumerate(s.operands):
        if x is None:
            operands.append(None)
            continue
        value = b.add(ir.InputOp(f"operand{k}"), own=Type(carrier(x.dtype), x.shape))
        known[value.id] = x
        operands.append(value)
    kinds = [None if x is None else TensorType(x.dtype, x.shape) for x in s.operands]
    types = [TensorType(carrier(r.dtype), r.shape) for r in s.results]
    module: Module[object] = Module({})
    out = RULES[s.node.op](Use(b, s.attrs, operands, kinds, types, module, _no_constant, _no_names, add_program))  # type: ignore[arg-type]
    results = out if isinstance(out, tuple) else (out,)
    found = _Lifting(s, s.graph, programs).nodes(b.nodes, known)
    return tuple(found[r.id] for r in results)


def _no_constant(name: str) -> NoReturn:
    raise KeyError(name)


def _no_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return ()


def _refused(s: Step) -> Exception:
    return fail(
        "UnsupportedModel",
        s.node.name,
        f"{s.node.op} has no derivative",
        "differentiate only what does not depend on the variables through it, or write it as operations that have one",
    )


class _Lifting:
    """UOps as operations of `graph`. `programs`: bodies of loops that the lowering made."""

    def __init__(self, step: Step, graph: Graph, programs: dict[str, ir.Program]) -> None:
        self.step, self.graph, self.programs = step, graph, programs
        self.calls: dict[str, tuple[Tensor, ...]] = {}
        self.sizes: dict[str, Expr] = {}
        """SIZE nodes, and constants that are whole numbers: id -> its value."""

    def nodes(self, nodes: list[ir.Node] | tuple[ir.Node, ...], known: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensor of each node by id; `known` has those of the inputs."""
        for node in nodes:
            if node.id in known:
                continue
            src = [known[i] for i in node.src if i in known]
            if isinstance(node.op, ir.CallOp):
                self.calls[node.id] = self.call(node, node.op, src)
            elif isinstance(node.op, ir.ResultOp):
                known[node.id] = self.calls[node.src[0]][node.op.index]
            else:
                known[node.id] = self.one(node, src)
        return known

    def one(self, node: ir.Node, src: list[Tensor]) -> Tensor:
        g, op = self.graph, node.op
        match op:
            case ir.ConstOp(value=value):
                return g.one("constant", value=value, dtype=node.dtype)
            case ir.SizeOp(value=size):
                self.sizes[node.id] = size
                return g.one("size", value=size, dtype=node.dtype)
            case ir.IotaOp(axis=axis):
                return g.one("iota", shape=node.shape, axis=axis, dtype=node.dtype)
            case ir.ReshapeOp(result_shape=shape):
                return src[0].one("reshape", shape=shape)
            case ir.PermuteOp(perm=perm):
                return src[0].one("permute", perm=perm)
            case ir.ExpandOp(result_shape=shape, broadcast_dimensions=dims):
                return src[0].one("expand", shape=shape, dims=dims)
            case ir.PadOp(pad=pads, value=value):
                return src[0].one("pad", pads=pads, value=value)
            case ir.ShrinkOp(lo=lo, hi=hi, step=step):
                return src[0].one("slice", starts=lo, stops=hi, steps=step)
            case ir.FlipOp(axes=axes):
                return src[0].one("flip", axes=axes)
            case ir.ViewOp(result_shape=shape, index_map=entries):
                return src[0].one("view", shape=shape, map=entries)
            case ir.Elementwise(fn=fn):
                return src[0].one(fn, *src[1:]) if len(src) == 1 else g.one(fn, *(_wide(x, node.shape) for x in src))
            case ir.CastOp(to=to):
                return src[0].cast(to)
            case ir.BitcastOp(to=to):
                return src[0].bitcast(to)
            case ir.ReduceOp():
                return self.reduce(node, op, src[0])
            case ir.ScanOp(op=fn, axis=axis, dtype=dtype, exclusive=exclusive, reverse=reverse):
                return src[0].cast(dtype).one(f"cum{fn}", axis=axis, exclusive=exclusive, reverse=reverse)
            case ir.GatherOp(result_shape=shape, map=entries, bounds=bounds):
                index = self.index(entries, src[1:], shape)
                return src[0].one("gather_nd", index, bounds="wrap" if bounds == "assume" else bounds)
            case ir.ScatterOp(op=how, map=entries, bounds=bounds):
                index = self.index(entries, src[2:], src[1].shape)
                return src[0].one("scatter_nd", index, src[1], op=how, bounds="wrap" if bounds == "assume" else bounds)
            case ir.RandOp(result_shape=shape):
                return src[0].one("rand_u32", shape=shape)
            case ir.InputOp() | ir.CallOp() | ir.ResultOp():
                raise TypeError(f"{node.id} is not a value of its own")
            case _:
                assert_never(op)

    def reduce(self, node: ir.Node, op: ir.ReduceOp, x: Tensor) -> Tensor:
        if op.op in ("argmax", "argmin"):
            return x.one(op.op, axis=op.axes[0])
        assert op.init is None, "lowerings reduce from the neutral element"
        return x.cast(op.dtype).one(f"reduce_{op.op}", axes=op.axes)

    def index(self, entries: tuple[Expr | None, ...], given: list[Tensor], shape: Shape) -> Tensor:
        """The index tuples of a gather or scatter: [*shape, number of entries]."""
        rest = iter(given)
        parts = [next(rest).cast(DType.i64) if e is None else computed(self.graph, e, shape) for e in entries]
        return self.graph.one("stack", *parts, axis=len(shape))

    def call(self, node: ir.Node, op: ir.CallOp, src: list[Tensor]) -> tuple[Tensor, ...]:
        """A loop that the lowering of a recurrent layer made: its trip count is a size, and nothing ends it earlier."""
        if op.kind != "loop":
            raise _refused(self.step)
        body = self.programs[op.targets[0]]
        name = _unused(self.graph, f"{self.step.node.name}.step")
        inner = self.graph.subgraph(name)
        known = {}
        for n in body.nodes:
            if isinstance(n.op, ir.InputOp):
                known[n.id] = inner.input(n.op.tensor_id, n.shape, n.dtype)
        values = _Lifting(self.step, inner, self.programs).nodes(body.nodes, known)
        for port, ident in zip(body.signature.outputs, body.outputs, strict=True):
            inner.output(port.tensor, values[ident])
        carried: Scalar | list[Scalar] = op.attrs["carried"]
        assert isinstance(carried, int)
        trip = self.sizes.get(node.src[0])
        if trip is None:
            trip = next(t.shape[0] for t in op.results[carried:])
        state, invariants = src[2 : 2 + carried], src[2 + carried :]
        out = self.graph.loop(inner, state, invariants, trip=trip)
        return out if isinstance(out, tuple) else (out,)


def _unused(graph: Graph, stem: str) -> str:
    name, k = stem, 0
    while name in graph.root._graphs:
        k += 1
        name = f"{stem}.{k}"
    return name


def _wide(x: Tensor, shape: Shape) -> Tensor:
    """An operand in the shape of the result: broadcast is explicit in the frontend, but for rank 0."""
    return x if x.rank == 0 or x.shape == shape else x.expand(shape)
