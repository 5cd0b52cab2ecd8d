"""The unfused plan of a graph: one instruction per node, run by the reference (spec 4 §3).

    n0: matmul(x, w) -> h        becomes     b3 = matmul(b0, b1)    # n0
    n1: relu(h) -> y                         b4 = relu(b3)          # n1

Buffers are numbered; dtypes and shapes come from the graph. Inputs have a buffer and no instruction; an output that is
an input, or stands twice, is a copy. The plan owns its operations: later edits of the graph do not reach it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tatami.core.algebra.visit import free_vars
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, product
from tatami.core.module import Module
from tatami.core.signature import Output
from tatami.execution.ir import BufferInfo, Call, Copy, ExecutionPlan, If, Instruction, Loop, Op, Operation
from tatami.execution.waves import order
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operations.control import bound_sizes, call_inputs


def from_graph(frontend: Module[Graph]) -> Module[ExecutionPlan]:
    """The plan of every graph. Raises UnknownValue and CyclicGraph for nodes that do not form a graph."""
    programs: dict[str, ExecutionPlan] = {}
    origins: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, graph in frontend.programs.items():
        programs[name] = order(_Planner(frontend, graph).plan())
        origins[name] = {node.name: (node.name,) for node in graph.graph}
    return Module(programs, frontend.constants, origins)


def _meaning_alone(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes without the code of a custom kernel: the reference runs its numpy meaning."""
    return copy.deepcopy({k: v for k, v in attrs.items() if not isinstance(v, VerbatimCode)})


class _Planner:
    def __init__(self, module: Module[Graph], graph: Graph) -> None:
        self.module = module
        self.graph = graph
        self.buffers: list[BufferInfo] = []
        self.of_tensor: dict[str, str] = {}
        self.instructions: list[Instruction] = []
        self.known = set(graph.signature.defaults) | {n for i in graph.signature.inputs for s in i.shape for n in free_vars(s)}

    def plan(self) -> ExecutionPlan:
        signature = self.graph.signature
        for port in signature.inputs:
            pooled = port.storage == "const_pool" and port.tensor in self.module.constants
            kind = "constant" if pooled else "input"
            self.of_tensor[port.tensor] = self._buffer(TensorType(port.dtype, port.shape), kind)
        made = {t: node for node in self.graph.graph for t in node.outputs}
        direct: dict[str, int] = {}
        for i, out in enumerate(signature.outputs):
            if out.updates is None and out.tensor in made:
                direct.setdefault(out.tensor, i)
        for node in self.graph.graph:
            for t in node.outputs:
                if t in self.of_tensor:
                    raise fail("DuplicateId", node.name, f"the tensor {t!r} is defined twice", "give one another name")
                self.of_tensor[t] = self._buffer(self._type(node, t), "output" if t in direct else "arena")
        for node in self.graph.graph:
            for t in node.inputs:
                if t and t not in self.of_tensor:
                    raise fail("UnknownValue", node.name, f"operand {t!r} is not defined", "define it before this node")
            inputs = tuple(self.of_tensor[t] if t else "" for t in node.inputs)
            outputs = tuple(self.of_tensor[t] for t in node.outputs)
            self.instructions.append(Instruction(self._operation(node), inputs, outputs, node.name))
        outputs = tuple(self._output(i, out, direct) for i, out in enumerate(signature.outputs))
        return ExecutionPlan(
            signature=signature,
            instructions=tuple(self.instructions),
            buffers=tuple(self.buffers),
            input_buffers=tuple(self.of_tensor[p.tensor] for p in signature.inputs),
            output_buffers=outputs,
        )

    def _type(self, node: Node, tensor: str) -> TensorType:
        if tensor not in self.graph.tensors:
            raise fail("UnknownValue", node.name, f"the tensor {tensor!r} has no type", "list it in `tensors`")
        return self.graph.tensors[tensor]

    def _buffer(self, type: TensorType, kind: str) -> str:
        id = f"b{len(self.buffers)}"
        self.buffers.append(BufferInfo(id, type.dtype, type.shape, product(type.shape), kind))  # type: ignore[arg-type]
        return id

    def _output(self, i: int, out: Output, direct: dict[str, int]) -> str:
        if out.tensor not in self.of_tensor:
            raise fail("UnknownValue", out.tensor, "the output is never computed", "name a tensor of the graph")
        source = self.of_tensor[out.tensor]
        if out.updates is None:
            if direct.get(out.tensor) == i:
                return source
            id = self._buffer(TensorType(out.dtype, out.shape), "output")
            self.instructions.append(Instruction(Copy(), (source,), (id,), f"output {i}"))
            return id
        target = self.of_tensor[out.updates]
        if target == source:
            return target
        mutable = {self.of_tensor[o.updates] for o in self.graph.signature.outputs if o.updates is not None}
        if source in mutable:  # two states that swap
            aside = self._buffer(TensorType(out.dtype, out.shape), "arena")
            self.instructions.append(Instruction(Copy(), (source,), (aside,), f"keep {i}"))
            source = aside
        self.instructions.append(Instruction(Copy(), (source,), (target,), f"update {i}"))
        return target

    # -- operations ------------------------------------------------------------------------------

    def _operation(self, node: Node) -> Operation:
        new = self._new_symbols(node)
        match node.op:
            case "call":
                return Call(node.attrs["graph"], self._sizes(node, (node.attrs["graph"],)), new)
            case "if":
                then, otherwise = node.attrs["then"], node.attrs["otherwise"]
                return If(then, otherwise, self._sizes(node, (then, otherwise)), new)
            case "loop":
                body, carried = node.attrs["body"], int(node.attrs["carried"])
                sizes = self._sizes(node, (body,))
                varying = self._varying(node, body)
                return Loop(body, carried, len(node.outputs) - carried, sizes, new, varying)
            case _:
                return Op(node.op, _meaning_alone(node.attrs), new)

    def _new_symbols(self, node: Node) -> tuple[str, ...]:
        """Size symbols that the node's results decide."""
        out: dict[str, None] = {}
        for t in node.outputs:
            for size in self._type(node, t).shape:
                name = size.as_name()
                if name is not None and name not in self.known:
                    out[name] = None
        self.known |= out.keys()
        return tuple(out)

    def _sizes(self, node: Node, graphs: tuple[str, ...]) -> dict[str, Expr]:
        """The callees' size symbols: as given, else from operand shapes, else their defaults."""
        sizes: dict[str, Expr] = {}
        for name in graphs:
            sizes = {**bound_sizes(node, name, self._type_of, self.module), **sizes}
        return sizes

    def _varying(self, node: Node, body: str) -> tuple[str, ...]:
        """The body's symbols that the shapes of its operands decide again in every turn."""
        ports = call_inputs(self.module.programs[body], self.module.constants)
        decided = {n for p in ports for s in p.shape for n in free_vars(s)}
        return tuple(sorted(decided - self._sizes(node, (body,)).keys()))

    def _type_of(self, tensor: str) -> TensorType:
        port = self.graph.signature.input(tensor)
        return TensorType(port.dtype, port.shape) if port is not None else self.graph.tensors[tensor]
