"""Comparison of two frontend modules up to the names of inner values, graphs and constants."""

from __future__ import annotations

import re
from typing import Any

from tatami.core.module import Module
from tatami.frontend.ir import Graph
from tatami.frontend.operation import attributes
from tatami.frontend.ops import OPS


def shape_of(module: Module[Graph]) -> dict[str, Any]:
    """Everything a module says, values by number. Two modules are structurally equal when this is equal.

    Left out: names that no caller sees, places in texts, and where among the inputs the constants stand. Numbers keep
    their kind and bits: attributes are compared as text, constants by hash.
    """
    others = sorted(repr(_graph(module, name)) for name in module.programs if name != "main")
    return {"main": _graph(module, "main"), "others": others}


def _graph(module: Module[Graph], name: str) -> Any:
    graph = module.programs[name]
    signature = graph.signature
    number: dict[str, str] = {"": "none"}
    inputs: list[Any] = []
    constants: list[Any] = []
    for port in signature.inputs:
        kind = (port.dtype.value, tuple(map(str, port.shape)), port.role, port.mutability, port.storage)
        if port.storage == "const_pool" and port.tensor in module.constants:
            number[port.tensor] = f"constant {module.constants[port.tensor].sha256} {port.role}"
            constants.append((number[port.tensor], kind))
        else:
            number[port.tensor] = f"input {len(inputs)}"
            inputs.append((_said(port.tensor), kind))
    nodes = []
    for node in graph.graph:
        for output in node.outputs:
            number[output] = f"value {len(number)}"
        struct = attributes(OPS[node.op], node)
        attrs = {f: _attribute(module, getattr(struct, f)) for f in struct.__struct_fields__}
        operands = [number[i] for i in node.inputs]
        while operands and operands[-1] == "none":
            operands.pop()
        types = [(graph.tensors[o].dtype.value, tuple(map(str, graph.tensors[o].shape))) for o in node.outputs]
        nodes.append((node.op, operands, [number[o] for o in node.outputs], types, attrs))
    outputs = [
        (_said(o.tensor), number[o.tensor], o.dtype.value, tuple(map(str, o.shape))) for o in signature.outputs if not o.updates
    ]
    updates = [(number[o.tensor], _said(o.updates)) for o in signature.outputs if o.updates]
    return {
        "inputs": inputs,
        "constants": sorted(constants),
        "nodes": nodes,
        "outputs": outputs,
        "updates": updates,
        "assumptions": sorted((str(e.lhs), str(e.rhs)) for e in signature.assumptions),
        "defaults": dict(sorted(signature.defaults.items())),
        "must_bind": signature.must_bind,
    }


def _said(name: str) -> str:
    """The name with what the language cannot say replaced."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)


def _attribute(module: Module[Graph], value: Any) -> Any:
    """A called graph stands for what it says."""
    return _graph(module, value) if isinstance(value, str) and value in module.programs else repr(value)


def assert_same(got: Module[Graph], wanted: Module[Graph]) -> None:
    """Assert that the modules are equal; the message has the first difference."""
    a, b = shape_of(got), shape_of(wanted)
    for key in a["main"]:
        assert a["main"][key] == b["main"][key], key
    assert a == b
