"""The definition of each value of a graph: its inputs, its tensors (initialisers, dense and sparse, and Constant nodes) and
its other nodes; each name once. An inner graph may use a name again for another value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import onnx

from tatami.core.diagnostic import fail
from tatami.onnx.files.order import words_of
from tatami.onnx.files.schemas import DEFAULT

Stored: TypeAlias = onnx.TensorProto | onnx.SparseTensorProto
Holder: TypeAlias = onnx.TensorProto | onnx.SparseTensorProto | onnx.NodeProto


def name_of(stored: Stored) -> str:
    """Name of a stored tensor, dense or sparse."""
    return stored.values.name if isinstance(stored, onnx.SparseTensorProto) else stored.name


def stored_in(graph: onnx.GraphProto) -> Iterator[Stored]:
    """The initialisers of a graph, dense and sparse."""
    yield from graph.initializer
    yield from graph.sparse_initializer


def is_constant(node: onnx.NodeProto) -> bool:
    """True if the node is an ONNX Constant."""
    return node.op_type == "Constant" and node.domain in DEFAULT and len(node.output) == 1


def tensor_of(node: onnx.NodeProto) -> Stored | None:
    """The tensor of a Constant node; None if it holds another kind of value."""
    if not is_constant(node) or len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    a = node.attribute[0]
    if a.name == "value" and a.HasField("t"):
        return a.t
    return a.sparse_tensor if a.name == "sparse_value" and a.HasField("sparse_tensor") else None


def holders(graph: onnx.GraphProto, note: Callable[[str, str, bool], None]) -> dict[str, Holder]:
    """The initialiser or Constant node of each constant. The last definition of a name is used, Constant nodes after
    initialisers, as in ONNX Runtime."""
    out: dict[str, Holder] = {}
    every: list[tuple[str, Holder]] = [(name_of(t), t) for t in stored_in(graph)]
    every += [(n.output[0], n) for n in graph.node if is_constant(n)]
    for name, holder in every:
        if name in out:
            note(name, "the constant is defined twice: the last one is taken", True)
        out[name] = holder
    return out


def check_definitions(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], around: set[str], constants: set[str], overridable: set[str]
) -> None:
    """Raise DuplicateId for a name with two definitions, UnknownValue for one that is read and never defined. `around`: names
    of the graphs outside; `overridable`: constants that may be inputs too."""
    made: set[str] = set(constants)
    for port in graph.input:
        if port.name in made and port.name not in overridable:
            raise _twice(port.name, "an input", "model")
        overridable = overridable - {port.name}
        made.add(port.name)
    for i, node in enumerate(nodes):
        for name in node.output:
            if name in made and not (is_constant(node) and name in constants):
                raise _twice(name, f"a result of {words_of(node, i)}", words_of(node, i))
            made |= {name} if name else set()
    seen = made | around
    for i, node in enumerate(nodes):
        for name in node.input:
            if name and name not in seen:
                raise _unknown(words_of(node, i), f"it reads {name!r}, which nothing defines")
    for port in graph.output:
        if port.name not in seen:
            raise _unknown(port.name, "nothing defines this output")


def check_default(port: onnx.ValueInfoProto, tensor: Stored | None) -> None:
    """Raise for an initialiser whose dtype or shape differs from the input of its name."""
    if not isinstance(tensor, onnx.TensorProto) or not port.type.HasField("tensor_type"):
        return
    said = port.type.tensor_type
    how = "correct the input or the initialiser"
    if said.elem_type != tensor.data_type:
        why = f"the initialiser has the element type {tensor.data_type}, the input of its name {said.elem_type}"
        raise fail("DTypeMismatch", port.name, why, how)
    sizes = [d.dim_value if d.dim_value > 0 else None for d in said.shape.dim]
    fits = len(sizes) == len(tensor.dims) and all(s in (None, d) for s, d in zip(sizes, tensor.dims, strict=True))
    if said.HasField("shape") and not fits:
        why = f"the initialiser has the shape {list(tensor.dims)}, the input of its name {['?' if s is None else s for s in sizes]}"
        raise fail("AxisSizeMismatch", port.name, why, how)


def _twice(name: str, what: str, at: str) -> Exception:
    return fail("DuplicateId", at, f"the name {name!r} is taken when {what} has it again", "rename one of the two values")


def _unknown(at: str, why: str) -> Exception:
    return fail("UnknownValue", at, why, "repair the model; `tatami check` tells more of it")
