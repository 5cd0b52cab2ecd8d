"""Lowering of frontend operations to movement, elementwise and reduce (spec 3 §10(1)). Form `tiny@imported`.

A node becomes the few UOps of its rule in `lower_<family>.py`, independently of its neighbours. A graph becomes a program of
the same name; origins name the frontend node.

    y = gemm(A, B)   ->   RESHAPE [M,1,K], PERMUTE, RESHAPE [1,N,K], EXPAND, EXPAND, MUL, REDUCE(SUM), CAST   (spec 5 §0)
"""

from __future__ import annotations

from typing import Any

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.expr import expr
from tatami.core.module import Module, Origins
from tatami.core.signature import Input, Storage
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.ops import operation
from tatami.tiny.build import Builder, Value
from tatami.tiny.infer import Type
from tatami.tiny.ir import InputOp, Program
from tatami.tiny.lowering.branches import separate_branches
from tatami.tiny.lowering.collectives import COLLECTIVE
from tatami.tiny.lowering.contraction import CONTRACTION
from tatami.tiny.lowering.control import CONTROL
from tatami.tiny.lowering.elementwise import ELEMENTWISE
from tatami.tiny.lowering.indexing import INDEXING
from tatami.tiny.lowering.kernel import KERNEL
from tatami.tiny.lowering.movement import MOVEMENT
from tatami.tiny.lowering.pooling import POOLING
from tatami.tiny.lowering.recurrent import RECURRENT
from tatami.tiny.lowering.reduction import REDUCTION
from tatami.tiny.lowering.rule import Rule, Use
from tatami.tiny.lowering.small_dtypes import as_bytes, carrier
from tatami.tiny.lowering.transposed import conv_transpose
from tatami.tiny.lowering.trees import TREES

RULES: dict[str, Rule] = {
    **ELEMENTWISE,
    **MOVEMENT,
    **CONTRACTION,
    "conv_transpose": conv_transpose,
    **REDUCTION,
    **POOLING,
    **INDEXING,
    **RECURRENT,
    **TREES,
    **KERNEL,
    **COLLECTIVE,
    **CONTROL,
}
"""The lowering rule of each frontend operation."""


def lower(frontend: Module[Graph]) -> Module[Program]:
    """Every graph of the module as a program. Raises TatamiError naming the node."""
    frontend = separate_branches(frontend)
    module = as_bytes(frontend)
    constants = _hoisted(module)
    programs: dict[str, Program] = {}
    origins: dict[str, Origins] = {}
    for name, graph in frontend.programs.items():
        lowering = _Lowering(name == "main", graph, module, constants, constants.get(name, ()), set(programs))
        programs[name], origins[name] = lowering.program()
        for made, (program, program_origins) in lowering.made.items():
            programs[made], origins[made] = program, program_origins
    return Module(programs, frontend.constants, origins)


def _hoisted(module: Module[Graph]) -> dict[str, tuple[str, ...]]:
    """Graph other than main -> the module constants that its callers, if it has any, pass as last arguments.

    A called program has no pool of its own; constants that it or its own callees read are handed down. Branches of one `if`
    take the same list.
    """
    reads: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = {}
    together: list[tuple[str, ...]] = []
    for name, graph in module.programs.items():
        ports = graph.signature.inputs
        reads[name] = {p.tensor for p in ports if p.storage == "const_pool" and p.tensor in module.constants and p.shape}
        calls[name] = set()
        for node in graph.graph:
            names = tuple(node.attrs[k] for k in CALLEES.get(node.op, ()))
            calls[name] |= set(names)
            together.append(names)
    changed = True
    while changed:
        changed = False
        for name, callees in calls.items():
            more = set().union(*(reads.get(n, set()) for n in callees)) - reads[name]
            reads[name] |= more
            changed = changed or bool(more)
        for names in together:
            both = set().union(*(reads.get(n, set()) for n in names))
            for n in names:
                if n in reads and reads[n] != both:
                    reads[n] = both
                    changed = True
    return {name: tuple(sorted(constants)) for name, constants in reads.items() if name != "main"}


class _Lowering:
    """One graph while it is lowered to a program."""

    def __init__(
        self,
        is_main: bool,
        graph: Graph,
        module: Module[Graph],
        hoisted: dict[str, tuple[str, ...]],
        last_inputs: tuple[str, ...],
        taken: set[str],
    ) -> None:
        self.graph = graph
        self.module = module
        self.all_hoisted = hoisted
        self.last_inputs = last_inputs
        self.made: dict[str, tuple[Program, Origins]] = {}
        """Loop bodies that rules made, by name."""
        self.taken = taken | set(module.programs)
        self.is_main = is_main
        self.builder = Builder()
        self.builder.assumptions.extend(graph.signature.assumptions)
        self.values: dict[str, Value] = {}
        self.ports: list[Input] = []

    def program(self) -> tuple[Program, Origins]:
        graph, b = self.graph, self.builder
        later = []
        for port in graph.signature.inputs:
            constant = self.module.constants.get(port.tensor) if port.storage == "const_pool" else None
            if constant is not None and not port.shape:
                bits = constant.array.view("u1") if port.dtype.is_small else constant.array
                self.values[port.tensor] = b.const(bits.item(), carrier(port.dtype))
            elif constant is not None and not self.is_main:
                later.append(port)
            elif constant is not None and (line := constant.progression()) is not None:
                self.values[port.tensor] = self.indices(port, *line)
            else:
                self.add_input(port)
        for name in () if self.is_main else self.last_inputs:
            self.add_input(next((p for p in later if p.tensor == name), None) or self.constant_port(name), "argument")
        for node in graph.graph:
            b.at = node.name
            operands = [self.values[i] if i else None for i in node.inputs]
            kinds = [graph.tensors[i] if i else None for i in node.inputs]
            results = self.node(node, operands, kinds, [_carried(graph.tensors[o]) for o in node.outputs])
            self.values.update(zip(node.outputs, results, strict=True))
        ports = graph.signature.outputs
        if self.is_main:
            outputs = tuple(self.values[o.tensor].bitcast(o.dtype).id for o in ports)
        else:
            outputs = tuple(self.values[o.tensor].id for o in ports)
            ports = tuple(msgspec.structs.replace(o, dtype=carrier(o.dtype)) for o in ports)
        assumptions = tuple(b.assumptions)
        signature = msgspec.structs.replace(graph.signature, inputs=tuple(self.ports), outputs=ports, assumptions=assumptions)
        return Program(signature, tuple(b.nodes), outputs), b.origins

    def indices(self, port: Input, axis: int, start: int, step: int) -> Value:
        """A constant that counts, as IOTA: like a range that a model computes, so that a mask made of it is known by
        indices."""
        out = self.builder.iota(port.shape, axis, port.dtype)
        out = out * step if step != 1 else out
        return out + start if start else out

    def add_input(self, port: Input, storage: Storage | None = None) -> Value:
        if not self.is_main:
            port = msgspec.structs.replace(port, dtype=carrier(port.dtype))
        value = self.builder.add(InputOp(port.tensor), own=Type(port.dtype, port.shape))
        self.values[port.tensor] = value.bitcast(carrier(port.dtype))
        self.ports.append(port if storage is None else msgspec.structs.replace(port, storage=storage))
        self.builder.origins[value.id] = (port.tensor,)
        return self.values[port.tensor]

    def constant_port(self, name: str) -> Input:
        payload = self.module.constants[name]
        return Input(name, payload.dtype, tuple(expr(s) for s in payload.shape), "const", "immutable", "const_pool")

    def constant(self, name: str) -> Value:
        return self.values[name] if name in self.values else self.add_input(self.constant_port(name))

    def add_program(self, program: Program, origins: Origins) -> str:
        count = 0
        while f"step{count}" in self.taken:
            count += 1
        self.taken.add(f"step{count}")
        self.made[f"step{count}"] = (program, origins)
        return f"step{count}"

    def hoisted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return self.all_hoisted.get(names[0], ())

    def node(
        self, node: Node, operands: list[Value | None], kinds: list[TensorType | None], types: list[TensorType]
    ) -> tuple[Value, ...]:
        op = operation(node)
        rule = RULES.get(node.op)
        if rule is None:
            raise fail("UnsupportedModel", node.name, f"{node.op} has no lowering", "compute it outside the graph")
        use: Use[Any] = Use(
            self.builder,
            attributes(op, node),
            operands,
            kinds,
            types,
            self.module,
            self.constant,
            self.hoisted,
            self.add_program,
        )
        out = rule(use)
        results = out if isinstance(out, tuple) else (out,)
        for value, type, name in zip(results, types, node.outputs, strict=True):
            if (value.dtype, value.shape) != (type.dtype, type.shape):
                raise fail(
                    "InvalidDocument",
                    node.name,
                    f"{name} is declared {type.dtype}[{_text(type)}], {node.op} gives {value.dtype}[{_text(value)}]",
                    "declare the inferred type (`tatami check`)",
                )
        return results


def _carried(kind: TensorType) -> TensorType:
    return TensorType(carrier(kind.dtype), kind.shape)


def _text(type: TensorType | Value) -> str:
    return ", ".join(map(str, type.shape))
