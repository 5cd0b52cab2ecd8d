"""The `precision=` option: contractions of fp32 operands multiply in a narrower type and still accumulate in fp32.

    y = matmul(a, b)   ->   y = matmul(cast(a, bf16), cast(b, bf16)) acc_dtype=fp32 out_dtype=fp32

tf32 keeps fp32 and rounds the operands to 10 fraction bits (ties away from zero).

On a CPU bf16 is a permission to be faster: products with weights round their operands if the target multiplies pairs of bf16 by
one instruction, everything else stays fp32, and a target without the instruction keeps all of it and says so. ``bf16!`` rounds
the operands of every contraction wherever it runs.

int8 is the permission to round what narrow weights are multiplied with (frontend/rewrites/rounded_rows.py).
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tatami.core.diagnostic import diagnostic, fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rounded_rows import round_rows

PRECISIONS = ("fp32", "tf32", "bf16", "bf16!", "fp16", "int8")
"""Values of the option `precision=`; fp32 changes nothing."""


_LEAVE = "leave precision out"
_FORCE = 'leave precision out, or round operands in any case: "bf16!"'
_PRODUCTS = ("matmul", "linear", "gemm")
_MOVEMENT = ("permute", "reshape", "contiguous", "identity", "expand", "squeeze", "unsqueeze")


def lower_precision(module: Module[Graph], precision: str, target: Target | None = None) -> Module[Graph]:
    """The module with every fp32 contraction at `precision`; for bf16 on a CPU, those that `target` computes faster, with a
    warning if there is none. Raises E1009 for an unknown word."""
    if precision not in PRECISIONS:
        raise fail("InvalidAttribute", "precision", f"{precision!r} is not a precision", f"use one of {', '.join(PRECISIONS)}")
    if precision == "fp32":
        return module
    if precision == "int8":
        if target is None or target.kind != "cpu" or "vnni" not in target.features:
            name = "the target" if target is None else target.name
            return _kept(
                module, f"{name} is not a CPU that multiplies bytes in fours (VNNI): everything stays as it is", _LEAVE
            )
        rounded = round_rows(module)
        if rounded.programs == module.programs:
            return _kept(module, "the model has no product of fp32 values with weights of 4 or 8 bits in blocks", _LEAVE)
        return rounded
    on_cpu = target is not None and target.kind == "cpu" and precision == "bf16"
    if on_cpu and target is not None and "bf16" not in target.features:
        return _kept(module, f"{target.name} multiplies no pairs of bf16: everything stays fp32", _FORCE)
    programs = {name: _lowered(graph, precision.rstrip("!"), on_cpu) for name, graph in module.programs.items()}
    if programs == module.programs:
        if on_cpu:
            return _kept(module, "the model has no product of fp32 values with weights: everything stays fp32", _FORCE)
        return _kept(module, f"the model has no contraction of fp32 values, which {precision} is for", _LEAVE)
    return replace(module, programs=programs)


def _kept(module: Module[Graph], why: str, how: str) -> Module[Graph]:
    """The module as it is, with the warning that the precision changes nothing, the reason, and what to do."""
    return replace(module, warnings=(*module.warnings, diagnostic("PrecisionKept", "precision", why, how)))


def _lowered(graph: Graph, precision: str, only_weights: bool) -> Graph:
    """The graph at a precision. `only_weights`: products with weights alone."""
    held = {i.tensor for i in graph.signature.inputs if i.storage in ("const_pool", "held")}
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    narrowed: dict[str, str] = {}
    names = {n.name for n in graph.graph} | set(tensors)
    for node in graph.graph:
        rows = node.inputs[:3] if node.op == "attention" else node.inputs if node.op == "einsum" else node.inputs[:2]
        if node.op in _MOVEMENT and node.inputs[0] in held:
            held.update(node.outputs)
        if only_weights and (node.op not in _PRODUCTS or node.inputs[1] not in held):
            nodes.append(node)
            continue
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
