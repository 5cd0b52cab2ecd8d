"""Import of an ONNX model as a frontend module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from tatami.core.codec import dump_text, parse_text
from tatami.core.diagnostic import TatamiError, diagnostic, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, var
from tatami.core.files.data_files import DataFiles, ModelFile
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.sizes.binding import PartialShape
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import is_legal_symbol
from tatami.frontend.operations.size_conditions import with_conditions
from tatami.onnx.declared import declared
from tatami.onnx.files.repair import Repaired, repaired
from tatami.onnx.files.tensors import array_of
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.nodes.import_node import import_nodes
from tatami.onnx.sequences.map_input import map_input
from tatami.onnx.sequences.ports import Absent, Form, Imported, InOne, Many, Maps, One, Pairs, Printed, Text
from tatami.onnx.support import unsupported_nodes
from tatami.onnx.values import Strung, Value

MAX_DECISIVE = 64
"""Maximum elements of an input on whose value a program may be specialised."""
MAX_SYMBOL = 40
"""Maximum letters of a size symbol."""
_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def load_file(file: ModelFile, example_inputs: Any = None) -> Module[Graph]:
    """A module from the bytes of an .onnx file. External data is read from inside the model's folder only."""
    try:
        return load_model(read_proto(file), example_inputs, beside=file.beside)
    except FormsError as error:
        error.file = file
        raise


def read_proto(file: ModelFile) -> onnx.ModelProto:
    """The bytes of an .onnx file as its message. Raises ParseError."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(file.data)
    except Exception as error:  # the parser's own error types are private
        reason = str(error).split("\n")[0][:200]
        raise fail(
            "ParseError", file.name, f"not an ONNX model: {reason or type(error).__name__}", "export the model again"
        ) from None
    return model


def load_model(proto: onnx.ModelProto, example_inputs: Any = None, *, beside: DataFiles | None = None) -> Module[Graph]:
    """A module from a ModelProto. Raises TatamiError; one diagnostic lists all unsupported operators.

    Sizes that integers of the data decide are read by Host steps. `example_inputs`: arrays by input name. An input that
    decides axes, sizes or counts becomes a constant with its example's value instead of an input of the program; the values
    of other examples are ignored. A list stands for a sequence, None for an empty optional value.
    """
    model = repaired(proto)
    examples = example_inputs if isinstance(example_inputs, Mapping) else {}
    if not examples:
        _refuse_forms(model, beside)
        try:
            return _flat(import_model(model, {}, beside=beside, reads_sizes=True))
        except TatamiError as first:  # the fault of the attempt that goes furthest is reported
            try:
                return _flat(import_model(model, {}, beside=beside))
            except TatamiError as second:
                raise (second if decisive_inputs(second) else first) from None
    fixed: dict[str, Any] = {}
    while True:
        try:
            return import_model(model, fixed, beside=beside).module
        except TatamiError as error:
            more = decisive_inputs(error) - set(fixed)
            if not more or not more <= set(examples):
                raise
            fixed |= {name: examples[name] for name in more}


def _flat(imported: Imported) -> Module[Graph]:
    """The module, if its inputs and outputs are plain arrays. Raises UnsupportedModel for words and maps, with the detail
    `forms`: they become arrays at each call (ports.py), which a module alone does not describe."""
    for name, form in (*imported.inputs.items(), *((f"output {k}", f) for k, f in enumerate(imported.outputs))):
        if isinstance(form, Text | Printed | Pairs | Maps):
            raise _of_forms(name)
    return imported.module


class FormsError(TatamiError):
    """A module alone cannot describe the model: its inputs or outputs are words or maps. `file` and `repaired` hold what was
    read, so that `OnnxSource.resume` need not read it again."""

    file: ModelFile | None = None
    repaired: Repaired | None = None


def _of_forms(name: str) -> FormsError:
    """The error for a module alone with an input or output of words or maps."""
    why = "strings and maps become numbers at each call, which a document does not hold"
    how = "call it by tt.compile(model)(...) or tatami.onnx.InferenceSession"
    return FormsError(diagnostic("UnsupportedModel", name, why, how, forms="1"))


def _refuse_forms(door: Repaired, beside: DataFiles | None) -> None:
    """Raise the error of `_flat` before the import if the declared types show it."""
    if (name := next((p.name for p in (*door.inputs, *door.outputs) if _has_forms(p.type)), None)) is not None:
        _importer(door, beside=beside)
        error = _of_forms(name)
        error.repaired = door
        raise error


def _has_forms(kind: onnx.TypeProto) -> bool:
    """True if values of the type are words or maps, or sequences of them."""
    match kind.WhichOneof("value"):
        case "map_type":
            return True
        case "tensor_type":
            return kind.tensor_type.elem_type == onnx.TensorProto.STRING
        case "sequence_type":
            return _has_forms(kind.sequence_type.elem_type)
    return False


def decisive_inputs(error: TatamiError) -> set[str]:
    """The inputs on whose content the failed import could be specialised; empty if it failed for another reason."""
    return {n for d in error.diagnostics for n in parse_text(d.details.get("inputs", "[]"), d.at)}


def import_model(
    model: onnx.ModelProto | Repaired,
    fixed: Mapping[str, Any],
    shapes: Mapping[str, PartialShape] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    beside: DataFiles | None = None,
    reads_sizes: bool = False,
    overrides: frozenset[str] = frozenset(),
) -> Imported:
    """A module from a ModelProto, specialised on the inputs in `fixed`, on the `shapes` of others that are given (None:
    a size stays open), and on the size symbols in `sizes`. `reads_sizes`: integers of the data may decide sizes, each read by a Host step. `overrides`:
    initialisers that the caller passes as inputs. Raises TatamiError."""
    door = model if isinstance(model, Repaired) else repaired(model)
    importer = _importer(door, reads_sizes=reads_sizes, beside=beside)
    symbols = _Symbols(sizes)
    for name, tensor in door.tensors.items():
        if name not in overrides:
            importer.values[name] = Value(array=array_of(tensor, beside, name))
    inputs: dict[str, Form] = {}
    for port in (*door.inputs, *(door.overridable[n] for n in sorted(overrides))):
        if port.name not in importer.values:
            port = _shaped(port, (shapes or {}).get(port.name))
            inputs[port.name] = _add_input(importer, port, symbols, fixed)
    import_nodes(importer, door.nodes)
    is_open = not fixed and not shapes and not sizes  # with them, sizes may be those of one call
    ports: list[Output] = []
    outputs = tuple(_output(importer, port.name, declared(importer, port, sizes=is_open), ports) for port in door.outputs)
    if not ports:
        raise fail("UnsupportedModel", "model", "none of its outputs holds a tensor", "give the model a tensor as output")
    signature = Signature(tuple(importer.inputs), tuple(ports), tuple(importer.equations))
    main = with_conditions(Graph(signature, dict(importer.tensors), tuple(importer.nodes)))
    module = Module(
        {"main": main, **importer.graphs},
        importer.constants,
        {"main": importer.origins},
        (*door.warnings, *importer.warnings),
        tuple(door.overridable),
    )
    return Imported(module, inputs, outputs, dict(fixed), importer.vocabulary, tuple(importer.word_steps))


def _importer(door: Repaired, *, reads_sizes: bool = False, beside: DataFiles | None = None) -> Importer:
    """The importer of the model's nodes. Raises UnsupportedModel with a list of the operators that it does not have."""
    functions = {(f.domain, f.name): f for f in door.functions}
    names = frozenset(p.name for p in (*door.inputs, *door.outputs, *door.overridable.values()))
    importer = Importer(import_nodes, door.opset, functions, reads_sizes=reads_sizes, beside=beside, reserved=names)
    missing = unsupported_nodes(importer, door.nodes)
    if missing is not None:
        raise missing
    return importer


class _Symbols:
    """Dimension names of the model as size symbols: the names themselves if legal, else a similar legal name; an axis without
    a name is named by its input and position. `values`: numbers for some of the symbols."""

    def __init__(self, values: Mapping[str, int] | None = None) -> None:
        self._by_name: dict[object, str] = {}
        self._values = values or {}

    def size(self, dim: onnx.TensorShapeProto.Dimension, port: str, axis: int) -> Expr:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise fail("InvalidSymbol", port, f"axis {axis} has the size {dim.dim_value}", "sizes are not negative")
            return expr(dim.dim_value)
        symbol = self.symbol(dim.dim_param) if dim.dim_param else self.symbol(f"{port}_{axis}", (port, axis))
        return expr(self._values[symbol]) if symbol in self._values else var(symbol)

    def symbol(self, name: str, key: object = None) -> str:
        """The symbol of an axis named `name`. `key`: identity of an axis without a name, which is equal to no other."""
        key = key or name
        if key not in self._by_name:
            legal = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:MAX_SYMBOL]
            if not _SYMBOL.fullmatch(legal) or not is_legal_symbol(legal):
                legal = f"D_{legal}" if legal else f"D{len(self._by_name)}"
            stem, count = legal, 1
            while legal in self._by_name.values():
                count += 1
                legal = f"{stem}_{count}"
            self._by_name[key] = legal
        return self._by_name[key]


def _shaped(port: onnx.ValueInfoProto, shape: PartialShape | None) -> onnx.ValueInfoProto:
    """The port with numbers for its sizes, where they are known and do not contradict it."""
    dims = port.type.tensor_type.shape.dim
    if shape is None or not port.type.HasField("tensor_type") or len(shape) != len(dims):
        return port
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(port)
    for dim, size in zip(copy.type.tensor_type.shape.dim, shape, strict=True):
        if size is not None and not dim.HasField("dim_value"):
            dim.dim_value = size
    return copy


def has_symbolic_sizes(inputs: Iterable[onnx.ValueInfoProto]) -> bool:
    """True if some input has an axis whose size the model leaves open."""
    return any(
        not dim.HasField("dim_value")
        for port in inputs
        if port.type.HasField("tensor_type")
        for dim in port.type.tensor_type.shape.dim
    )


def _add_input(importer: Importer, port: onnx.ValueInfoProto, symbols: _Symbols, fixed: Mapping[str, Any]) -> Form:
    """Add one input of the model as ports of the graph; as a constant, a sequence or nothing if `fixed` gives its content."""
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
        codes = {v: k for k, v in onnx.TensorProto.DataType.items()}
        what = what if what != "tensor_type" else codes.get(kind.elem_type, str(kind.elem_type))
        raise fail(
            "UnsupportedModel", port.name, f"an input of type {what}", "inputs are tensors of numbers or strings, or maps"
        )
    if not kind.HasField("shape"):
        raise fail("UnsupportedModel", port.name, "an input of unknown rank", "export the model with the ranks of its inputs")
    shape = tuple(symbols.size(d, port.name, i) for i, d in enumerate(kind.shape.dim))
    if kind.elem_type == onnx.TensorProto.STRING:
        importer.values[port.name] = value = _add_port(importer, port.name, DType.i64, shape)
        value.text = frozenset([port.name])
        return Text(port.name)
    value = _add_port(importer, port.name, FROM_ONNX[kind.elem_type], shape)
    if len(shape) == 1 and shape[0] == 0:
        value.array = np.zeros(0, numpy_dtype(value_dtype(value)))  # an empty tensor's content is known
    elif len(shape) <= 1 and all((s.as_int() or MAX_DECISIVE + 1) <= MAX_DECISIVE for s in shape):
        value.ports = frozenset((port.name,))
    importer.values[port.name] = value
    return One(port.name)


def _add_port(importer: Importer, name: str, dtype: DType, shape: Shape) -> Value:
    importer.tensors[name] = TensorType(dtype, shape)
    importer.inputs.append(Input(name, dtype, shape))
    return importer.result(name)


def _fixed(importer: Importer, name: str, given: Any, *, is_constant: bool) -> tuple[Value, Form]:
    """A value whose structure is known: with `is_constant` an array's content too, else only its shape."""
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
    """Dtype of a value that is a tensor."""
    assert value.type is not None
    return value.type.dtype


def _output(importer: Importer, name: str, value: Value, ports: list[Output]) -> Form:
    """Add the outputs of a named value to `ports` and return their form."""
    importer.site = name
    if value.absent:
        return Absent()
    if value.items is not None:
        return Many(tuple(_output(importer, f"{name}.{i}", item, ports) for i, item in enumerate(value.items)))
    if value.strung is not None:
        s = value.strung
        whole = _port(importer, name, importer.result(s.tensor), ports)
        return InOne(whole, s.axis, _port(importer, f"{name}.lengths", importer.result(s.lengths), ports) if s.lengths else "")
    if value.pairs is not None:
        raise fail("UnsupportedModel", name, "an output that is the map that went in", "take it from the input")
    made = _port(importer, name, value, ports)
    if value.keys is not None:
        return Maps(made, value.keys)
    return Printed(made) if value.printed else Text(made) if value.text is not None else One(made)


def _port(importer: Importer, name: str, value: Value, ports: list[Output]) -> str:
    """Add a tensor as an output to `ports` and return its name there."""
    kind = importer.tensors[importer.data(value)]
    while name in {p.tensor for p in ports}:
        name += "_"
    ports.append(Output(_named(importer, name, value, ports), kind.dtype, kind.shape))
    return name


def _named(importer: Importer, name: str, value: Value, ports: list[Output]) -> str:
    """A tensor of exactly that name, so that the signature uses the model's names."""
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
        if value.strung is not None:
            whole, lengths = swap((value.strung.tensor, value.strung.lengths))
            value.strung = Strung(whole, value.strung.axis, lengths)
