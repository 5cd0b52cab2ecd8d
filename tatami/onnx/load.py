"""Read an ONNX model and make it a frontend module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tatami.core.codec import dump_text, parse_text
from tatami.core.data_files import DataFiles, ModelFile
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, var
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.onnx.external import external_array, refuse_external_attributes, without_external_data
from tatami.onnx.import_node import import_nodes
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.map_input import map_input
from tatami.onnx.ports import Absent, Form, Imported, Many, Maps, One, Printed, Text
from tatami.onnx.support import unsupported_nodes
from tatami.onnx.values import Value

MAX_DECISIVE = 64
"""Elements of an input on whose value a program may be specialised."""
_SYMBOL = re.compile(r"[A-Z][A-Za-z0-9_]*")


def load_file(file: ModelFile, example_inputs: Any = None) -> Module[Graph]:
    """A module from the bytes of an .onnx file. External data is read from inside the model's folder only."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(file.data)
    except Exception as error:  # the parser's own error types are private
        reason = str(error).split("\n")[0][:200]
        raise fail(
            "ParseError", file.name, f"not an ONNX model: {reason or type(error).__name__}", "export the model again"
        ) from None
    return load_model(model, example_inputs, beside=file.beside)


def load_model(model: onnx.ModelProto, example_inputs: Any = None, *, beside: DataFiles | None = None) -> Module[Graph]:
    """A module from a ModelProto. Raises TatamiError; one diagnostic lists all unsupported operators.

    Sizes that integers of the data decide are read by Host steps. example_inputs: arrays by input name. Where an input
    decides axes, sizes or counts, the program is specialised on its value instead and no longer takes it; the values of
    the others are not looked at. A list stands for a sequence,
    None for an empty optional value.
    """
    examples = example_inputs if isinstance(example_inputs, Mapping) else {}
    if not examples:
        try:
            return import_model(model, {}, beside=beside, reads_sizes=True).module
        except TatamiError:  # what is said of the model as it stands is of more use
            return import_model(model, {}, beside=beside).module
    fixed: dict[str, Any] = {}
    while True:
        try:
            return import_model(model, fixed, beside=beside).module
        except TatamiError as error:
            more = decisive_inputs(error) - set(fixed)
            if not more or not more <= set(examples):
                raise
            fixed |= {name: examples[name] for name in more}


def decisive_inputs(error: TatamiError) -> set[str]:
    """The inputs on whose content the import that failed could be specialised; none when it fails for another reason."""
    return {n for d in error.diagnostics for n in parse_text(d.details.get("inputs", "[]"), d.at)}


def import_model(
    model: onnx.ModelProto,
    fixed: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    beside: DataFiles | None = None,
    reads_sizes: bool = False,
) -> Imported:
    """A module from a ModelProto, specialised on the inputs in `fixed`, and on the shapes of others where they are
    given. `reads_sizes`: integers of the data may decide sizes, each read by a Host step. Raises TatamiError."""
    if not model.graph.output:
        raise fail("UnsupportedModel", "model", "it has no graph with outputs", "export the model again")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = Importer(opset, {(f.domain, f.name): f for f in model.functions}, reads_sizes=reads_sizes)
    missing = unsupported_nodes(importer, model.graph)
    if missing is not None:
        raise missing
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
        importer.values[init.name] = Value(array=array_of(init, beside))
    inputs: dict[str, Form] = {}
    for port in model.graph.input:
        if port.name not in importer.values:
            port = _shaped(port, (shapes or {}).get(port.name))
            inputs[port.name] = _add_input(importer, port, symbols, fixed)
    import_nodes(importer, model.graph.node)
    ports: list[Output] = []
    outputs = tuple(_output(importer, port.name, importer.value(port.name), ports) for port in model.graph.output)
    if not ports:
        raise fail("UnsupportedModel", "model", "none of its outputs holds a tensor", "give the model a tensor as output")
    graph = Graph(Signature(tuple(importer.inputs), tuple(ports)), dict(importer.tensors), tuple(importer.nodes))
    module = Module({"main": graph, **importer.graphs}, importer.constants, {"main": importer.origins})
    return Imported(module, inputs, outputs, dict(fixed), importer.vocabulary, tuple(importer.word_steps))


def array_of(init: onnx.TensorProto, beside: DataFiles | None) -> Any:
    if init.data_location == onnx.TensorProto.EXTERNAL:
        return external_array(init, beside)
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


def _shaped(port: onnx.ValueInfoProto, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    """The port with numbers for its sizes, where they are known and do not contradict it."""
    dims = port.type.tensor_type.shape.dim
    if shape is None or not port.type.HasField("tensor_type") or len(shape) != len(dims):
        return port
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(port)
    for dim, size in zip(copy.type.tensor_type.shape.dim, shape, strict=True):
        if not dim.HasField("dim_value"):
            dim.dim_value = size
    return copy


def has_symbolic_sizes(model: onnx.ModelProto) -> bool:
    """Whether some input has an axis whose size the model leaves open."""
    return any(
        not dim.HasField("dim_value")
        for port in model.graph.input
        if port.type.HasField("tensor_type")
        for dim in port.type.tensor_type.shape.dim
    )


def _add_input(importer: Importer, port: onnx.ValueInfoProto, symbols: _Symbols, fixed: Mapping[str, Any]) -> Form:
    """One input of the model as ports of the graph; as a constant, a sequence or nothing when `fixed` says what it holds."""
    if port.name in fixed:
        value, form = _fixed(importer, port.name, fixed[port.name], is_constant=port.type.HasField("tensor_type"))
        importer.values[port.name] = value
        return form
    kind = port.type.tensor_type
    what = port.type.WhichOneof("value")
    if what == "map_type":
        importer.values[port.name], pairs = map_input(importer, port)
        return pairs
    if what in ("sequence_type", "optional_type"):
        raise fail(
            "UnsupportedModel",
            port.name,
            f"the program depends on what an input of type {what} holds",
            "give it in example_inputs: a list for a sequence, None for an empty optional value",
            inputs=dump_text([port.name]).strip(),
        )
    if what != "tensor_type" or kind.elem_type not in (*FROM_ONNX, onnx.TensorProto.STRING):
        what = what if what != "tensor_type" else onnx.TensorProto.DataType.Name(kind.elem_type)
        raise fail("UnsupportedModel", port.name, f"an input of type {what}", "inputs are tensors of numbers or strings, or maps")
    if not kind.HasField("shape"):
        raise fail("UnsupportedModel", port.name, "an input of unknown rank", "export the model with the ranks of its inputs")
    shape = tuple(symbols.size(d, port.name, i) for i, d in enumerate(kind.shape.dim))
    if kind.elem_type == onnx.TensorProto.STRING:
        importer.values[port.name] = value = _add_port(importer, port.name, DType.i64, shape)
        value.text = frozenset([port.name])
        return Text(port.name)
    value = _add_port(importer, port.name, FROM_ONNX[kind.elem_type], shape)
    if len(shape) == 1 and shape[0] == 0:
        value.array = np.zeros(0, numpy_dtype(value_dtype(value)))  # nothing about it is unknown
    elif len(shape) <= 1 and all((s.as_int() or MAX_DECISIVE + 1) <= MAX_DECISIVE for s in shape):
        value.ports = frozenset((port.name,))
    importer.values[port.name] = value
    return One(port.name)


def _add_port(importer: Importer, name: str, dtype: DType, shape: Shape) -> Value:
    importer.tensors[name] = TensorType(dtype, shape)
    importer.inputs.append(Input(name, dtype, shape))
    return importer.result(name)


def _fixed(importer: Importer, name: str, given: Any, *, is_constant: bool) -> tuple[Value, Form]:
    """A value of which the structure is known: an array's content too where `is_constant`, else only its shape."""
    if given is None:
        return Value(absent=True), Absent()
    if isinstance(given, list | tuple):
        parts = [_fixed(importer, f"{name}.{i}", item, is_constant=False) for i, item in enumerate(given)]
        return Value(items=tuple(v for v, _ in parts)), Many(tuple(f for _, f in parts))
    array = np.asarray(given)
    if is_constant:
        return Value(array=array), One("")
    dtype = dtype_of(array)
    if dtype is None:
        raise fail("UnsupportedDType", name, f"an array of type {array.dtype}", "convert it to a supported dtype")
    while name in importer.tensors:
        name += "_"
    return _add_port(importer, name, dtype, tuple(expr(s) for s in array.shape)), One(name)


def value_dtype(value: Value) -> DType:
    assert value.type is not None
    return value.type.dtype


def _output(importer: Importer, name: str, value: Value, ports: list[Output]) -> Form:
    """The outputs of a named value, added to `ports`."""
    importer.site = name
    if value.absent:
        return Absent()
    if value.items is not None:
        return Many(tuple(_output(importer, f"{name}.{i}", item, ports) for i, item in enumerate(value.items)))
    if value.pairs is not None:
        raise fail("UnsupportedModel", name, "an output that is the map that went in", "take it from the input")
    kind = importer.tensors[importer.data(value)]
    while name in {p.tensor for p in ports}:
        name += "_"
    ports.append(Output(_named(importer, name, value, ports), kind.dtype, kind.shape))
    if value.keys is not None:
        return Maps(name, value.keys)
    return Printed(name) if value.printed else Text(name) if value.text is not None else One(name)


def _named(importer: Importer, name: str, value: Value, ports: list[Output]) -> str:
    """A tensor of exactly that name, so that the signature speaks the model's words."""
    tensor = importer.data(value)
    if tensor == name:
        return name
    is_port = tensor in {p.tensor for p in ports}
    if not is_port and name not in importer.tensors and any(tensor in node.outputs for node in importer.nodes):
        _rename(importer, tensor, name)
        return name
    importer.tensors[name] = importer.tensors[tensor]
    identity = f"identity_{len(importer.nodes)}"
    importer.nodes.append(Node("identity", identity, (tensor,), (name,)))
    importer.origins[identity] = (name,)
    return name


def _rename(importer: Importer, old: str, new: str) -> None:
    import msgspec

    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if n == old else n for n in names)

    importer.tensors[new] = importer.tensors.pop(old)
    importer.nodes = [msgspec.structs.replace(n, inputs=swap(n.inputs), outputs=swap(n.outputs)) for n in importer.nodes]
    pending = list(importer.values.values())
    while pending:
        value = pending.pop()
        pending += value.items or ()
        if value.tensor == old:
            value.tensor = new
