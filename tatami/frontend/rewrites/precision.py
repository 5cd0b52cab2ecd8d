"""The `precision=` option: contractions of fp32 operands multiply in a narrower type and still accumulate in fp32.

    y = matmul(a, b)   ->   y = matmul(cast(a, bf16), cast(b, bf16)) acc_dtype=fp32 out_dtype=fp32

tf32 keeps fp32 and rounds the operands to 10 fraction bits (ties away from zero).
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.ops import OPS

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
"""Values of the option `precision=`; fp32 changes nothing."""


def lower_precision(module: Module[Graph], precision: str) -> Module[Graph]:
    """The module with every fp32 contraction at `precision`. Raises E1009 for an unknown word."""
    if precision not in PRECISIONS:
        raise fail("InvalidAttribute", "precision", f"{precision!r} is not a precision", f"use one of {', '.join(PRECISIONS)}")
    if precision == "fp32":
        return module
    programs = {name: _lowered(graph, precision) for name, graph in module.programs.items()}
    return replace(module, programs=programs)


def _lowered(graph: Graph, precision: str) -> Graph:
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    narrowed: dict[str, str] = {}
    names = {n.name for n in graph.graph} | set(tensors)
    for node in graph.graph:
        rows = node.inputs[:3] if node.op == "attention" else node.inputs if node.op == "einsum" else node.inputs[:2]
        if not OPS[node.op].is_contraction or any(tensors[i].dtype != DType.fp32 for i in rows):
            nodes.append(node)
            continue
        for i in rows:
            if i not in narrowed:
                narrowed[i] = _narrow(i, precision, tensors, nodes, names)
        inputs = tuple(narrowed[i] if i in rows else i for i in node.inputs)
        if node.op == "gemm" or node.op in ("linear", "conv", "conv_transpose"):
            inputs = (*inputs[:2], *node.inputs[2:])
        attrs = {**node.attrs, "acc_dtype": "fp32", "out_dtype": "fp32"}
        nodes.append(msgspec.structs.replace(node, inputs=inputs, attrs=attrs))
    return msgspec.structs.replace(graph, tensors=tensors, graph=tuple(nodes))


def _narrow(tensor: str, precision: str, tensors: dict[str, TensorType], nodes: list[Node], names: set[str]) -> str:
    """Append the node that rounds `tensor`; the name of its result."""
    op, result = ("tf32", DType.fp32) if precision == "tf32" else ("cast", DType(precision))
    stem = f"{tensor}.{precision}"
    name, k = stem, 0
    while name in names:
        k += 1
        name = f"{stem}.{k}"
    names.add(name)
    tensors[name] = TensorType(result, tensors[tensor].shape)
    nodes.append(Node(op, name, (tensor,), (name,), {} if precision == "tf32" else {"to": precision}))
    return name
