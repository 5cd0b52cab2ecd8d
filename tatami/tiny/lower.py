"""Frontend operations to movement, elementwise and reduce (spec 3 §10 step 1). Form `tiny@imported`.

A node becomes the few UOps of its rule in `lower_<family>.py`; nothing looks at its neighbours. A graph becomes a
program of the same name; origins name the frontend node.

    y = gemm(A, B)   ->   RESHAPE [M,1,K], PERMUTE, RESHAPE [1,N,K], EXPAND, EXPAND, MUL, REDUCE(SUM), CAST   (spec 5 §0)
"""

from __future__ import annotations

from typing import Any

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.module import Module, Origins
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.ops import operation
from tatami.tiny.build import Builder, Value
from tatami.tiny.infer import Type
from tatami.tiny.ir import InputOp, Program
from tatami.tiny.lower_contraction import CONTRACTION
from tatami.tiny.lower_control import CONTROL
from tatami.tiny.lower_elementwise import ELEMENTWISE
from tatami.tiny.lower_indexing import INDEXING
from tatami.tiny.lower_movement import MOVEMENT
from tatami.tiny.lower_reduction import REDUCTION
from tatami.tiny.lower_rule import Rule, Use

RULES: dict[str, Rule] = {**ELEMENTWISE, **MOVEMENT, **CONTRACTION, **REDUCTION, **INDEXING, **CONTROL}


def lower(frontend: Module[Graph]) -> Module[Program]:
    """Every graph of the module as a program. Raises TatamiError naming the node."""
    programs: dict[str, Program] = {}
    origins: dict[str, Origins] = {}
    for name, graph in frontend.programs.items():
        programs[name], origins[name] = _lower_graph(graph, frontend)
    return Module(programs, frontend.constants, origins)


def _lower_graph(graph: Graph, module: Module[Graph]) -> tuple[Program, Origins]:
    b = Builder()
    b.assumptions.extend(graph.signature.assumptions)
    values: dict[str, Value] = {}
    for port in graph.signature.inputs:
        constant = module.constants.get(port.tensor) if port.storage == "const_pool" else None
        if constant is not None and not port.shape:
            values[port.tensor] = b.const(constant.array.item(), port.dtype)
        else:
            values[port.tensor] = b.add(InputOp(port.tensor), own=Type(port.dtype, port.shape))
            b.origins[values[port.tensor].id] = (port.tensor,)
    for node in graph.graph:
        b.at = node.name
        operands = [values[i] if i else None for i in node.inputs]
        results = _lower_node(b, node, operands, [graph.tensors[o] for o in node.outputs], module)
        values.update(zip(node.outputs, results, strict=True))
    outputs = tuple(values[o.tensor].id for o in graph.signature.outputs)
    signature = msgspec.structs.replace(graph.signature, assumptions=tuple(b.assumptions))
    return Program(signature, tuple(b.nodes), outputs), b.origins


def _lower_node(
    b: Builder, node: Node, operands: list[Value | None], types: list[TensorType], module: Module[Graph]
) -> tuple[Value, ...]:
    op = operation(node)
    rule = RULES.get(node.op)
    if rule is None:
        raise fail("UnsupportedModel", node.name, f"{node.op} has no lowering yet", "compute it outside the graph")
    use: Use[Any] = Use(b, attributes(op, node), operands, types, module)
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


def _text(type: TensorType | Value) -> str:
    return ", ".join(map(str, type.shape))
