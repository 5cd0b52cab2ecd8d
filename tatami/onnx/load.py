"""Read an ONNX model and make it a frontend module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic, fail
from tatami.core.expr import Expr, expr, var
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.frontend.ir import Graph, TensorType
from tatami.onnx.external import external_array, refuse_external_attributes, without_external_data
from tatami.onnx.importer import FROM_ONNX, Importer, read_node
from tatami.onnx.registry import HANDLERS
from tatami.onnx.values import Value

MAX_FILE_BYTES = 2 << 30
_SYMBOL = re.compile(r"[A-Z][A-Za-z0-9_]*")


def load_file(path: Path) -> Module[Graph]:
    """A module from an .onnx file. External data is read from inside the model's folder only."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise fail("InputTooLarge", path.name, "an ONNX file holds at most 2 GiB", "keep large tensors as external data")
        data = path.read_bytes()
    except OSError as error:
        raise fail(
            "FileUnreadable", path.name, error.strerror or "it cannot be read", "check the path and its permissions"
        ) from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # the parser's own error types are private
        reason = str(error).split("\n")[0][:200]
        raise fail(
            "ParseError", path.name, f"not an ONNX model: {reason or type(error).__name__}", "export the model again"
        ) from None
    return load_model(model, folder=path.parent)


def load_model(model: onnx.ModelProto, example_inputs: Any = None, *, folder: Path | None = None) -> Module[Graph]:
    """A module from a ModelProto. Raises TatamiError; unsupported operators are all listed at once."""
    if not model.graph.output:
        raise fail("UnsupportedModel", "model", "it has no graph with outputs", "export the model again")
    _check_supported(model.graph)
    refuse_external_attributes(model.graph)
    try:
        onnx.checker.check_model(without_external_data(model))
    except onnx.checker.ValidationError as error:
        reason = str(error).split("\n")[0][:300]
        raise fail(
            "InvalidDocument", "model", f"onnx.checker refuses it: {reason}", "repair or export the model again"
        ) from None
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = Importer(opset)
    symbols = _Symbols()
    for init in model.graph.initializer:
        importer.values[init.name] = Value(array=_array(init, folder))
    for port in model.graph.input:
        if port.name not in importer.values:
            _add_input(importer, port, symbols)
    for position, proto in enumerate(model.graph.node):
        import_node(importer, proto, position)
    outputs = tuple(_output(importer, port.name) for port in model.graph.output)
    graph = Graph(
        Signature(tuple(importer.inputs), outputs),
        dict(importer.tensors),
        tuple(importer.nodes),
    )
    return Module({"main": graph, **importer.graphs}, importer.constants, {"main": importer.origins})


def _array(init: onnx.TensorProto, folder: Path | None) -> Any:
    if init.data_location == onnx.TensorProto.EXTERNAL:
        return external_array(init, folder)
    try:
        return numpy_helper.to_array(init)
    except (ValueError, TypeError, MemoryError, OverflowError) as error:
        raise fail("InvalidDocument", init.name, f"the initialiser cannot be read: {error}", "export the model again") from None


def _check_supported(graph: onnx.GraphProto) -> None:
    missing: list[Diagnostic] = []
    for position, node in enumerate(graph.node):
        if node.domain not in ("", "ai.onnx") or node.op_type not in HANDLERS:
            domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
            missing.append(
                diagnostic(
                    "UnsupportedModel",
                    node.name or f"node {position}",
                    f"the operator {domain}{node.op_type} is not supported",
                    f"rewrite {node.op_type} with supported operators, or export with another opset",
                )
            )
    if missing:
        raise TatamiError(*missing)


class _Symbols:
    """Dimension names as size symbols: legal names of our own, one per name of the model."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    def size(self, dim: onnx.TensorShapeProto.Dimension, port: str, axis: int) -> Expr:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise fail("InvalidSymbol", port, f"axis {axis} has the size {dim.dim_value}", "sizes are not negative")
            return expr(dim.dim_value)
        name = dim.dim_param or f"{port}:{axis}"
        if name not in self._by_name:
            legal = name if _SYMBOL.fullmatch(name) and len(name) <= 40 else f"D{len(self._by_name)}"
            while legal in self._by_name.values():
                legal = f"D{len(self._by_name)}_{legal[:8]}"
            self._by_name[name] = legal
        return var(self._by_name[name])


def _add_input(importer: Importer, port: onnx.ValueInfoProto, symbols: _Symbols) -> None:
    kind = port.type.tensor_type
    if not port.type.HasField("tensor_type") or kind.elem_type not in FROM_ONNX:
        what = (
            port.type.WhichOneof("value")
            if not port.type.HasField("tensor_type")
            else onnx.TensorProto.DataType.Name(kind.elem_type)
        )
        raise fail("UnsupportedModel", port.name, f"an input of type {what}", "inputs are tensors of a numeric dtype")
    if not kind.HasField("shape"):
        raise fail("UnsupportedModel", port.name, "an input of unknown rank", "export the model with the ranks of its inputs")
    shape = tuple(symbols.size(d, port.name, i) for i, d in enumerate(kind.shape.dim))
    dtype = FROM_ONNX[kind.elem_type]
    importer.tensors[port.name] = TensorType(dtype, shape)
    importer.inputs.append(Input(port.name, dtype, shape))
    importer.values[port.name] = importer.result(port.name)


def import_node(importer: Importer, proto: onnx.NodeProto, position: int) -> None:
    node = read_node(proto)
    importer.site = proto.name or f"{node.op}_{position}"
    results = HANDLERS[node.op](importer, node)
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            importer.values[name] = value


def _output(importer: Importer, name: str) -> Output:
    """The named output: a tensor of exactly that name, so that the signature speaks the model's words."""
    importer.site = name
    value = importer.value(name)
    tensor = importer.data(value)
    kind = importer.tensors[tensor]
    if tensor != name:
        for position in range(len(importer.nodes) - 1, -1, -1):
            node = importer.nodes[position]
            if tensor in node.outputs and name not in importer.tensors:
                _rename(importer, tensor, name)
                break
        else:
            importer.tensors[name] = kind
            identity = f"identity_{len(importer.nodes)}"
            from tatami.frontend.ir import Node

            importer.nodes.append(Node("identity", identity, (tensor,), (name,)))
            importer.origins[identity] = (name,)
    return Output(name, kind.dtype, kind.shape)


def _rename(importer: Importer, old: str, new: str) -> None:
    import msgspec

    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if n == old else n for n in names)

    importer.tensors[new] = importer.tensors.pop(old)
    importer.nodes = [msgspec.structs.replace(n, inputs=swap(n.inputs), outputs=swap(n.outputs)) for n in importer.nodes]
    for value in importer.values.values():
        if value.tensor == old:
            value.tensor = new
