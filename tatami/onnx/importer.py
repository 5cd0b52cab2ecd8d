"""State of one import: values by ONNX name, the frontend nodes made before, and how to make one more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tatami.core.algebra.order import is_always_less
from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, expr, shape_text
from tatami.core.files.data_files import DataFiles
from tatami.core.signature import Equation, Input
from tatami.core.tensor import Tensor, dtype_of, numpy_dtype
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Operation, Site, UnequalSizes, attributes, simplicity
from tatami.frontend.ops import OPS
from tatami.onnx.files.definitions import Stored
from tatami.onnx.files.tensors import array_of
from tatami.onnx.node import OnnxNode as OnnxNode
from tatami.onnx.strings.words import Joined, Table
from tatami.onnx.values import Strung, Value, is_text_array

MODEL_WORDS: frozenset[str] = frozenset([""])
"""The source of words that come from the model's own constants."""

FROM_ONNX: dict[int, DType] = {
    onnx.TensorProto.BOOL: DType.bool,
    onnx.TensorProto.INT8: DType.i8,
    onnx.TensorProto.UINT8: DType.u8,
    onnx.TensorProto.INT16: DType.i16,
    onnx.TensorProto.UINT16: DType.u16,
    onnx.TensorProto.INT32: DType.i32,
    onnx.TensorProto.UINT32: DType.u32,
    onnx.TensorProto.INT64: DType.i64,
    onnx.TensorProto.UINT64: DType.u64,
    onnx.TensorProto.FLOAT16: DType.fp16,
    onnx.TensorProto.BFLOAT16: DType.bf16,
    onnx.TensorProto.FLOAT: DType.fp32,
    onnx.TensorProto.DOUBLE: DType.fp64,
    onnx.TensorProto.FLOAT8E4M3FN: DType.f8e4m3fn,
    onnx.TensorProto.FLOAT8E4M3FNUZ: DType.f8e4m3fnuz,
    onnx.TensorProto.FLOAT8E5M2: DType.f8e5m2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: DType.f8e5m2fnuz,
    onnx.TensorProto.FLOAT8E8M0: DType.f8e8m0,
    onnx.TensorProto.FLOAT4E2M1: DType.f4e2m1,
    onnx.TensorProto.INT4: DType.i4,
    onnx.TensorProto.UINT4: DType.u4,
    onnx.TensorProto.INT2: DType.i2,
    onnx.TensorProto.UINT2: DType.u2,
}
"""Dtype of each ONNX element type."""


def element_dtype(code: int, site: str) -> DType:
    """Dtype of an ONNX element type. Raises E1007."""
    if code not in FROM_ONNX:
        known = {v: k for k, v in onnx.TensorProto.DataType.items()}
        raise fail(
            "UnsupportedDType",
            site,
            f"the element type {known.get(code, code)}",
            f"use one of {', '.join(map(str, FROM_ONNX.values()))}",
        )
    return FROM_ONNX[code]


@dataclass
class Importer:
    """The builder of one frontend Graph. `constants`, `graphs` and `functions` are shared by all graphs of the model."""

    import_nodes: Callable[[Importer, Iterable[onnx.NodeProto]], None]
    """Imports nodes of the model, those of a branch or body too (import_node.py)."""
    opset: int
    functions: dict[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    """Functions of the model, by domain and name."""
    parent: Importer | None = None
    """The graph around this branch or loop body; names that are not found here are captured from it. None for the main graph.
    """
    captures: dict[str, str] = field(default_factory=dict)
    """Tensor of the parent → its name in this graph. The branches of one If share it."""
    depth: int = 0
    """Number of functions that are being expanded."""
    constants: dict[str, Tensor] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    vocabulary: dict[str, int] = field(default_factory=dict)
    """Code of each word that the model itself holds (words.py)."""
    word_steps: list[Table | Joined] = field(default_factory=list)
    """Tables and joined texts made from the words of a call before the program runs, in order."""
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, TensorType] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    """Sizes that are assumed to be equal, each with the ONNX node that needs it."""
    warnings: list[Diagnostic] = field(default_factory=list)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reads_sizes: bool = False
    """True if integers of the data may decide sizes of the main graph (data_sizes.py); False by default."""
    name: str = ""
    """Name of the graph in size symbols; empty for the main graph."""
    beside: DataFiles | None = None
    """The folder of external data, or None."""
    reserved: frozenset[str] = frozenset()
    """Names of the model's inputs and outputs, which no other value may take."""
    channel_block: int = 0
    """Channels per block of the images of com.microsoft.nchwc; 0 without nodes of that domain."""
    site: str = ""
    """The ONNX node being imported: its name, or its operator and position."""

    # -- names ---------------------------------------------------------------------------------
    def fresh(self, stem: str = "t") -> str:
        """A new tensor name that begins with `stem`."""
        name = f"{stem}{len(self.tensors)}"
        while name in self.tensors or name in self.reserved:
            name += "_"
        return name

    def fresh_size(self, stem: str) -> str:
        """A new size symbol for a number of results that data decides."""
        root = self
        while root.parent is not None:
            root = root.parent
        name = f"{stem}_{self.name}{len(self.nodes)}"
        while any(name in free_vars(s) for i in root.inputs for s in i.shape):
            name += "_"
        return name

    def array(self, tensor: Stored) -> np.ndarray:
        """The content of a tensor of the model."""
        return array_of(tensor, self.beside, self.site)

    # -- reading values ------------------------------------------------------------------------
    def value(self, name: str) -> Value:
        """The value of an ONNX name, captured from the parent if it is defined there. Raises UnknownValue."""
        if name not in self.values and self.parent is not None:
            self.values[name] = self.captured(self.parent.value(name))
        if name not in self.values:
            raise fail(
                "UnknownValue",
                self.site,
                f"it reads {name!r}, which nothing defines",
                "repair the model; `tatami check` tells more of it",
            )
        return self.values[name]

    def captured(self, value: Value) -> Value:
        """A value of the parent graph as a value of this one."""
        if value.is_text or value.keys is not None or value.pairs is not None:
            self.refuse_words_inside()
        if value.array is not None or value.sizes is not None:
            return Value(array=value.array, sizes=value.sizes, rank=value.rank, dtype=value.dtype)
        if value.strung is not None:
            s = value.strung
            lengths = self.capture(s.lengths).tensor if s.lengths else ""
            return Value(strung=Strung(self.capture(s.tensor).tensor, s.axis, lengths))
        if value.items is not None or value.absent:
            items = None if value.items is None else tuple(self.captured(v) for v in value.items)
            return Value(items=items, absent=value.absent)
        inner = self.capture(value.tensor)
        inner.ports = value.ports
        return inner

    def capture(self, outer: str) -> Value:
        """A tensor of the parent as an operand of this graph."""
        assert self.parent is not None
        inner = self.captures.setdefault(outer, f"outer{len(self.captures)}")
        self.tensors[inner] = self.parent.tensors[outer]
        return self.result(inner)

    def data(self, value: Value) -> str:
        """The frontend tensor of a value; a constant enters the graph here, once."""
        if not value.is_tensor:
            raise fail(
                "UnsupportedModel",
                self.site,
                "a sequence, a map or an empty optional value where a tensor is needed",
                "use tensors for what goes in and out of the model and of its loops",
            )
        if not value.tensor:
            if value.array is not None:
                if is_text_array(value.array):
                    self.refuse_words_inside()
                    value.text = value.text or MODEL_WORDS
                value.tensor = self.add_constant(self.coded(value.array))
                value.type = self.tensors[value.tensor]
            elif value.sizes is not None:
                value.tensor = self._sizes_tensor(value)
                value.type = self.tensors[value.tensor]
            else:
                raise AssertionError("a value is a tensor, a constant or sizes")
        return value.tensor

    def coded(self, array: np.ndarray) -> np.ndarray:
        """A constant as the program holds it: words as codes, which are added to the model's vocabulary."""
        if not is_text_array(array):
            return array
        codes = [self.vocabulary.setdefault(str(w), len(self.vocabulary)) for w in array.flat]
        return np.array(codes, np.int64).reshape(array.shape)

    def refuse_words_inside(self) -> None:
        """Raise UnsupportedModel for strings in a branch or loop body, where nothing marks their tensors as codes."""
        if self.name:
            why = "strings in a branch or in the body of a loop"
            raise fail("UnsupportedModel", self.site, why, "move what computes with strings out of it")

    def words(self, tensor: str, sources: frozenset[str] = MODEL_WORDS) -> Value:
        """A tensor of codes as a value of strings; `sources`: the inputs and tables of its words (values.py)."""
        value = self.result(tensor)
        value.text = sources
        return value

    def type_of(self, value: Value) -> TensorType:
        """Dtype and shape of a value's tensor."""
        if value.type is None:
            self.data(value)
        assert value.type is not None
        return value.type

    def add_constant(self, array: np.ndarray) -> str:
        """Add an array as a constant of the module and return its name. Equal arrays are added once."""
        if dtype_of(array) is None:
            raise fail("UnsupportedDType", self.site, f"a constant of type {array.dtype}", "convert it to a supported dtype")
        tensor = Tensor(array)
        name = f"const_{tensor.sha256[:16]}"
        while name in self.reserved:
            name += "_"
        kind = TensorType(tensor.dtype, tuple(expr(s) for s in tensor.shape))
        if name not in self.tensors:
            self.constants[name] = tensor
            self.tensors[name] = kind
            self.inputs.append(Input(name, kind.dtype, kind.shape, role="const", storage="const_pool"))
        return name

    def _sizes_tensor(self, value: Value) -> str:
        assert value.sizes is not None
        if not value.sizes:
            return self.add_constant(np.zeros(0, numpy_dtype(value.dtype)))
        parts = [self.cast(self.emit("size", [], {"value": s})[0], value.dtype) for s in value.sizes]
        if value.rank == 0:
            return parts[0]
        rows = [self.emit("reshape", [p], {"shape": (expr(1),)})[0] for p in parts]
        return rows[0] if len(rows) == 1 else self.emit("concat", rows, {"axis": 0})[0]

    def known(self, value: Value) -> np.ndarray | None:
        """The constant content, also of sizes that are all numbers; else None."""
        if value.array is not None:
            return value.array
        if value.sizes is not None:
            numbers = [s.as_int() for s in value.sizes]
            if all(n is not None for n in numbers):
                array = np.array(numbers, np.int64).astype(numpy_dtype(value.dtype))
                return array.reshape(()) if value.rank == 0 else array
        return None

    def sizes(self, value: Value) -> tuple[Expr, ...] | None:
        """The content as size expressions, or None if it depends on data."""
        if value.sizes is not None:
            return value.sizes
        if value.array is not None and value.array.dtype.kind in "iu" and value.array.ndim <= 1:
            return tuple(expr(int(v)) for v in value.array.reshape(-1))
        return None

    def operands(self, n: OnnxNode) -> list[str]:
        """Tensors of all operands; an absent one in the middle is "", absent ones at the end are dropped."""
        names = list(n.inputs)
        while names and not names[-1]:
            names.pop()
        return [self.data(self.value(i)) if i else "" for i in names]

    def operand(self, n: OnnxNode, position: int) -> str:
        """The tensor of one operand, "" if it is absent."""
        return self.data(self.value(n.inputs[position])) if n.has(position) else ""

    def dtype(self, tensor: str) -> DType:
        """Dtype of a tensor's elements."""
        return self.tensors[tensor].dtype

    def shape(self, tensor: str) -> Shape:
        """Sizes of a tensor's axes."""
        return self.tensors[tensor].shape

    # -- making nodes --------------------------------------------------------------------------
    def emit(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Append one frontend node and return the names of its results. Raises TatamiError of the operation's type rule."""
        operation = OPS[op]
        name = f"{op}_{len(self.nodes)}"
        node = Node(op, name, tuple(inputs), (), to_builtins(dict(attrs or {})))
        try:
            inputs, results = self._inferred(operation, node)
        except TatamiError as error:
            raise TatamiError(*[_at(d, self.site) for d in error.diagnostics]) from None
        name = f"{op}_{len(self.nodes)}"
        outputs = []
        for kind in results:
            tensor = self.fresh()
            self.tensors[tensor] = kind
            outputs.append(tensor)
        self.nodes.append(Node(op, name, tuple(inputs), tuple(outputs), node.attrs))
        self.origins[name] = (self.site,)
        return tuple(outputs)

    def _inferred(self, operation: Operation, node: Node) -> tuple[Sequence[str], tuple[TensorType, ...]]:
        """Operands and result types of a node. Sizes that must be equal, and may be, are assumed equal: the operand with one
        of them is reshaped to the other (D2.6)."""
        attrs, inputs = attributes(operation, node), tuple(node.inputs)
        site = Site(self.site or node.name, self.graphs, self.constants)
        while True:
            try:
                return inputs, operation.infer(attrs, [self.tensors[i] if i else None for i in inputs], site)
            except UnequalSizes as refusal:
                assumed = self._with_equal_sizes(inputs, refusal.lhs, refusal.rhs)
                if assumed is None:
                    raise
                inputs = assumed

    def _with_equal_sizes(self, inputs: tuple[str, ...], lhs: Expr, rhs: Expr) -> tuple[str, ...] | None:
        """The operands with one of two sizes replaced by the other; None if the sizes always differ."""
        if (lhs - rhs).as_int() is not None or is_always_less(lhs, rhs) or is_always_less(rhs, lhs):
            return None
        simple, other = sorted((lhs, rhs), key=simplicity)
        for old, new in ((other, simple), (simple, other)):
            shapes = [tuple(new if s == old else s for s in self.shape(i)) if i else () for i in inputs]
            if any(i and shape != self.shape(i) for i, shape in zip(inputs, shapes, strict=True)):
                return tuple(self.reshaped(i, shape) if i else i for i, shape in zip(inputs, shapes, strict=True))
        return None

    def reshaped(self, tensor: str, shape: Shape) -> str:
        """`tensor` in a shape of the same rank; sizes that differ are assumed to be equal."""
        have = self.shape(tensor)
        if have == shape:
            return tensor
        for size, assumed in zip(have, shape, strict=True):
            self.assume(size, assumed)
        return self.one("reshape", [tensor], {"shape": shape})

    def assume(self, lhs: Expr, rhs: Expr) -> None:
        """Record that the node being imported needs two sizes to be equal; checked when sizes are bound (E1304)."""
        if lhs != rhs and not any((e.lhs, e.rhs) == (lhs, rhs) for e in self.equations):
            self.equations.append(Equation(lhs, rhs, self.site))

    def one(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None) -> str:
        """Append a node with one result and return the result's name."""
        return self.emit(op, inputs, attrs)[0]

    def rank_0(self, tensor: str) -> str:
        """A tensor of one element as one of rank 0."""
        return self.one("reshape", [tensor], {"shape": ()}) if self.shape(tensor) else tensor

    def number(self, value: bool | int | float, dtype: DType) -> str:
        """A rank-0 constant of `dtype`."""
        return self.add_constant(np.array(value).astype(numpy_dtype(dtype)))

    def joined(self, op: str, *tensors: str) -> str:
        """An elementwise operation after broadcasting."""
        return self.one(op, self.broadcast(tensors))

    def result(self, tensor: str) -> Value:
        """The value of a tensor of this graph."""
        return Value(tensor=tensor, type=self.tensors[tensor])

    def cast(self, tensor: str, to: DType) -> str:
        """`tensor` converted to dtype `to`."""
        return tensor if self.tensors[tensor].dtype == to else self.emit("cast", [tensor], {"to": to})[0]

    def broadcast(self, tensors: Sequence[str]) -> list[str]:
        """ONNX's right-aligned broadcasting, made explicit."""
        from tatami.frontend.operation import right_aligned

        shapes = [self.tensors[t].shape for t in tensors]
        full = [s for s in shapes if s]
        if len(set(full)) <= 1:
            return list(tensors)
        to = right_aligned(full, assume=True)
        if to is None:
            raise fail(
                "BroadcastMismatch", self.site, f"operands of shapes {' and '.join(map(shape_text, shapes))} do not broadcast",
                "give them equal sizes, or 1, from the last axis on",
            )  # fmt: skip
        return [self.expand(t, to) if s else t for t, s in zip(tensors, shapes, strict=True)]

    def expand(self, tensor: str, to: Shape) -> str:
        """`tensor` with axes of size 1 repeated to the shape `to`; other sizes that differ are assumed to be equal."""
        have = self.tensors[tensor].shape
        aligned = to[len(to) - len(have) :]
        same = tuple(s if s == ONE else t for s, t in zip(have, aligned, strict=True))
        tensor = self.reshaped(tensor, same)
        return tensor if same == to else self.emit("expand", [tensor], {"shape": to})[0]


def _at(d: Diagnostic, site: str) -> Diagnostic:
    return diagnostic(d.kind, site or d.at, d.why, d.suggestion, patch=d.patch, **d.details)
