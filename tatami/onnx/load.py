"""Read an ONNX model and make it a frontend module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tatami.core.codec import parse_text
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import Expr, expr, var
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.tensor import numpy_dtype
from tatami.frontend.ir import Graph, TensorType
from tatami.onnx.external import external_array, refuse_external_attributes, without_external_data
from tatami.onnx.import_node import import_nodes, unsupported_nodes
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.values import Value

MAX_FILE_BYTES = 2 << 30
MAX_DECISIVE = 64
"""Elements of an input on whose value a program may be specialised."""
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
    """A module from a ModelProto. Raises TatamiError; unsupported operators are all listed at once.

    example_inputs: arrays by input name. Where an input decides axes, sizes or counts, the program is specialised on
    its value here and no longer takes it; the values of the others are not looked at.
    """
    examples = example_inputs if isinstance(example_inputs, Mapping) else {}
    fixed: dict[str, np.ndarray] = {}
    while True:
        try:
            return _load(model, folder, fixed)
        except TatamiError as error:
            named = {n for d in error.diagnostics for n in parse_text(d.details.get("inputs", "[]"), d.at)}
            decisive = named - set(fixed)
            if not decisive or not decisive <= set(examples):
                raise
            fixed |= {name: np.asarray(examples[name]) for name in decisive}


def _load(model: onnx.ModelProto, folder: Path | None, fixed: Mapping[str, np.ndarray]) -> Module[Graph]:
    if not model.graph.output:
        raise fail("UnsupportedModel", "model", "it has no graph with outputs", "export the model again")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = Importer(opset, {(f.domain, f.name): f for f in model.functions})
    missing = unsupported_nodes(importer, model.graph)
    if missing:
        raise TatamiError(*missing)
    refuse_external_attributes(model.graph)
    try:
        onnx.checker.check_model(without_external_data(model))
    except onnx.checker.ValidationError as error:
        reason = str(error).split("\n")[0][:300]
        raise fail(
            "InvalidDocument", "model", f"onnx.checker refuses it: {reason}", "repair or export the model again"
        ) from None
    symbols = _Symbols()
    for init in model.graph.initializer:
        importer.values[init.name] = Value(array=array_of(init, folder))
    for name, array in fixed.items():
        importer.values[name] = Value(array=np.asarray(array))
    for port in model.graph.input:
        if port.name not in importer.values:
            _add_input(importer, port, symbols)
    import_nodes(importer, model.graph.node)
    outputs = tuple(_output(importer, port.name) for port in model.graph.output)
    graph = Graph(
        Signature(tuple(importer.inputs), outputs),
        dict(importer.tensors),
        tuple(importer.nodes),
    )
    return Module({"main": graph, **importer.graphs}, importer.constants, {"main": importer.origins})


def array_of(init: onnx.TensorProto, folder: Path | None) -> Any:
    if init.data_location == onnx.TensorProto.EXTERNAL:
        return external_array(init, folder)
    try:
        return numpy_helper.to_array(init)
    except (ValueError, TypeError, MemoryError, OverflowError) as error:
        raise fail("InvalidDocument", init.name, f"the initialiser cannot be read: {error}", "export the model again") from None


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
    value = importer.values[port.name]
    if len(shape) == 1 and shape[0] == 0:
        value.array = np.zeros(0, numpy_dtype(dtype))  # nothing about it is unknown
    elif len(shape) <= 1 and all((s.as_int() or MAX_DECISIVE + 1) <= MAX_DECISIVE for s in shape):
        value.ports = frozenset((port.name,))


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
