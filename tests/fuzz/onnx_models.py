"""Random ONNX models: a few nodes over fixed or open axes, of several dtypes, with values where operators differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT, BOOL = "float", "int", "bool"
KINDS = {FLOAT: (np.float32, np.float64), INT: (np.int32, np.int64), BOOL: (np.bool_,)}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


class Value:
    """A tensor of the model: its name, and what it is for the arrays that the model was drawn for."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    @property
    def kind(self) -> str:
        return BOOL if self.array.dtype == np.bool_ else FLOAT if self.array.dtype.kind == "f" else INT


class Maker:
    """One model as it grows. Every node is tried in numpy by the reference evaluator before it is kept."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.is_special = self.r.random() < 0.2
        self.is_open = self.r.random() < 0.5
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        for k in range(self.r.randint(1, 3)):
            self.inputs.append(Value(f"x{k}", self.drawn(self.kind(), self.shape())))
        self.values += self.inputs

    # -- what is drawn ------------------------------------------------------------------------------
    def kind(self) -> Any:
        return self.r.choice((np.float32, np.float32, np.float32, np.float64, np.int64, np.int32, np.bool_))

    def shape(self) -> tuple[int, ...]:
        if self.inputs and self.r.random() < 0.6:
            return self.inputs[0].array.shape
        return tuple(self.r.choice((1, 2, 3, 4, 5, 7)) for _ in range(self.r.randint(1, 4)))

    def drawn(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        if dtype == np.bool_:
            return self.numbers.random(shape) < 0.5
        if np.dtype(dtype).kind == "i":
            return self.numbers.integers(-5, 9, shape).astype(dtype)
        out = self.numbers.standard_normal(shape).astype(dtype)
        if self.is_special and out.size:
            flat = out.reshape(-1)
            for at in self.numbers.integers(0, flat.size, max(1, flat.size // 6)):
                flat[at] = self.r.choice(SPECIAL)
        return out

    def pick(self, *kinds: str, rank: int = 0) -> Value:
        fitting = [v for v in self.values if (not kinds or v.kind in kinds) and v.array.ndim >= rank]
        if not fitting:
            raise Unfit
        return self.r.choice(fitting[-4:])

    def want_numbers(self) -> None:
        """Operators whose answer for nan and inf differs between ONNX Runtime and the reference evaluator stay with numbers."""
        if self.is_special:
            raise Unfit

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    # -- the model ----------------------------------------------------------------------------------
    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        self.nodes.append(node)
        for array in self.run(names):
            if not isinstance(array, np.ndarray) or array.size > 4096 or array.ndim > 5:
                self.nodes.pop()
                raise Unfit
        self.values += [Value(n, a) for n, a in zip(names, self.run(names), strict=True)]

    def run(self, names: list[str]) -> list[Any]:
        """What the reference evaluator says of the newest node."""
        from onnx.reference import ReferenceEvaluator

        node = self.nodes[-1]
        given = {v.name: v.array for v in self.values} | {c.name: numpy_helper.to_array(c) for c in self.constants}
        used = {n: given[n] for n in node.input if n}
        graph = helper.make_graph(
            [node],
            "one",
            [_info(n, a, a.shape) for n, a in used.items()],
            [helper.make_empty_tensor_value_info(n) for n in names],
        )
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(a) for a in ReferenceEvaluator(_model(graph)).run(names, used)]
        except Exception:
            self.nodes.pop()
            raise Unfit from None

    def made(self) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
        """The model, and the arrays of two calls: with open axes the second has other sizes where those are free."""
        for _ in range(self.r.randint(2, 7)):
            try:
                self.r.choice(STEPS)(self)
            except Unfit:
                continue
        read = {n for node in self.nodes for n in node.input}
        leaves = [v for v in self.values[len(self.inputs) :] if v.name not in read][-3:] or self.values[-1:]
        nodes = list(self.nodes)
        if leaves[0] in self.inputs:
            nodes.append(helper.make_node("Identity", [leaves[0].name], ["same"]))
            leaves = [Value("same", leaves[0].array)]
        ports = [_info(v.name, v.array, self.open_shape(v)) for v in self.inputs]
        outputs = [_info(v.name, v.array, [None] * v.array.ndim) for v in leaves]
        graph = helper.make_graph(nodes, "fuzz", ports, outputs, self.constants)
        calls = [{v.name: v.array for v in self.inputs}]
        if self.is_open:
            more = {v.name: v.array.shape[0] + 1 for v in self.inputs if v.array.shape[0] == self.inputs[0].array.shape[0]}
            calls.append(
                {
                    v.name: self.drawn(v.array.dtype, (more.get(v.name, v.array.shape[0]), *v.array.shape[1:]))
                    for v in self.inputs
                }
            )
        return _model(graph), calls

    def open_shape(self, v: Value) -> list[Any]:
        if not self.is_open:
            return list(v.array.shape)
        same = v.array.shape[0] == self.inputs[0].array.shape[0]
        return ["N" if same else f"M_{v.name}", *v.array.shape[1:]]


class Unfit(Exception):
    """No value fits the operator that was drawn."""


def _info(name: str, array: np.ndarray, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


# -- steps: an operator each, with attributes that fit --------------------------------------------------

UNARY = [
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Log",
    "Sqrt",
    "Floor",
    "Ceil",
    "Round",
    "Erf",
    "Softplus",
    "Softsign",
    "Elu",
    "Selu",
    "LeakyRelu",
    "HardSigmoid",
    "HardSwish",
    "Sign",
    "Reciprocal",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Asinh",
    "Sinh",
    "Cosh",
    "Identity",
    "Mish",
    "ThresholdedRelu",
    "Celu",
]


def unary(m: Maker) -> None:
    m.add(m.r.choice(UNARY), [m.pick(FLOAT).name])


def whole(m: Maker) -> None:
    m.add(m.r.choice(("Abs", "Neg", "Sign", "Identity")), [m.pick(INT).name])


def binary(m: Maker) -> None:
    a = m.pick(FLOAT, INT)
    others = [v for v in m.values if v.array.dtype == a.array.dtype]
    op = m.r.choice(
        ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod") if a.kind == FLOAT else ("Add", "Sub", "Mul", "Max", "Min")
    )
    other = m.r.choice(others).name if m.r.random() < 0.6 else m.constant(m.drawn(a.array.dtype, (1,)), a.array.dtype)
    m.add(op, [a.name, other], **({"fmod": 1} if op == "Mod" else {}))


def compare(m: Maker) -> None:
    a = m.pick(FLOAT, INT)
    m.add(
        m.r.choice(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")),
        [a.name, m.r.choice([v for v in m.values if v.array.dtype == a.array.dtype]).name],
    )


def logic(m: Maker) -> None:
    a = m.pick(BOOL)
    if m.r.random() < 0.3:
        m.add("Not", [a.name])
    else:
        m.add(m.r.choice(("And", "Or", "Xor")), [a.name, m.pick(BOOL).name])


def where(m: Maker) -> None:
    a = m.pick(FLOAT, INT)
    m.add("Where", [m.pick(BOOL).name, a.name, m.r.choice([v for v in m.values if v.array.dtype == a.array.dtype]).name])


def reduce(m: Maker) -> None:
    a = m.pick(FLOAT, rank=1)
    axes = sorted(m.r.sample(range(a.array.ndim), m.r.randint(1, a.array.ndim)))
    op = m.r.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"))
    m.add(
        f"Reduce{op}",
        [a.name, m.constant([x - a.array.ndim if m.r.random() < 0.3 else x for x in axes])]
        if op == "Sum"
        else [a.name, m.constant(axes)],
        keepdims=m.r.randint(0, 1),
    )


def extreme(m: Maker) -> None:
    m.want_numbers()  # runtimes differ on the position of nan
    a = m.pick(FLOAT, INT, rank=1)
    m.add(m.r.choice(("ArgMax", "ArgMin")), [a.name], axis=m.r.randrange(a.array.ndim), keepdims=m.r.randint(0, 1))


def along(m: Maker) -> None:
    m.want_numbers()  # inf - inf
    a = m.pick(FLOAT, rank=1)
    axis = m.r.randrange(-a.array.ndim, a.array.ndim)
    if m.r.random() < 0.7:
        m.add(m.r.choice(("Softmax", "LogSoftmax")), [a.name], axis=axis)
    else:
        m.add("CumSum", [a.name, m.constant(axis)], exclusive=m.r.randint(0, 1), reverse=m.r.randint(0, 1))


def transpose(m: Maker) -> None:
    a = m.pick(rank=1)
    perm = list(range(a.array.ndim))
    m.r.shuffle(perm)
    m.add("Transpose", [a.name], perm=perm)


def reshape(m: Maker) -> None:
    a = m.pick(rank=1)
    shape = list(a.array.shape)
    to = m.r.choice(([-1], [0, -1], [shape[0], -1], [-1, *shape[1:]], [1, *shape], [*shape[:-1], 1, -1]))
    m.add("Reshape", [a.name, m.constant(to)])


def squeeze(m: Maker) -> None:
    a = m.pick(rank=1)
    ones = [k for k, s in enumerate(a.array.shape) if s == 1]
    if ones and m.r.random() < 0.5:
        m.add("Squeeze", [a.name, m.constant([m.r.choice(ones)])])
    else:
        m.add("Unsqueeze", [a.name, m.constant([m.r.randint(0, a.array.ndim)])])


def cut(m: Maker) -> None:
    a = m.pick(rank=1)
    axis = m.r.randrange(a.array.ndim)
    start, end, step = m.r.choice(
        ((0, 2, 1), (1, 2**31 - 1, 1), (-2, 2**63 - 1, 1), (-1, -(2**63), -1), (0, 9, 2), (3, 0, -2), (0, -1, 1))
    )
    m.add("Slice", [a.name, *(m.constant([v]) for v in (start, end, axis, step))])


def pad(m: Maker) -> None:
    a = m.pick(FLOAT, INT, rank=1)
    widths = [m.r.choice((0, 0, 1, 2)) for _ in range(2 * a.array.ndim)]
    mode = m.r.choice(("constant", "edge", "reflect", "wrap")) if m.r.random() < 0.5 else "constant"
    m.add("Pad", [a.name, m.constant(widths)], mode=mode)


def concat(m: Maker) -> None:
    a = m.pick(rank=1)
    b = m.r.choice([v for v in m.values if v.array.dtype == a.array.dtype and v.array.ndim == a.array.ndim])
    m.add("Concat", [a.name, b.name], axis=m.r.randrange(a.array.ndim))


def split(m: Maker) -> None:
    a = m.pick(rank=1)
    axis = m.r.randrange(a.array.ndim)
    if a.array.shape[axis] < 2 or (axis == 0 and m.is_open):
        raise Unfit
    m.add("Split", [a.name, m.constant([1, a.array.shape[axis] - 1])], 2, axis=axis)


def tile(m: Maker) -> None:
    a = m.pick(rank=1)
    if m.r.random() < 0.5:
        m.add("Tile", [a.name, m.constant([m.r.choice((1, 1, 2)) for _ in a.array.shape])])
    else:
        m.add("Expand", [a.name, m.constant([2, *([1] * a.array.ndim)])])


def gather(m: Maker) -> None:
    a = m.pick(rank=1)
    axis = m.r.randrange(a.array.ndim)
    size = a.array.shape[axis]
    if not size:
        raise Unfit
    at = [m.r.randrange(-size, size) for _ in range(3)]
    m.add("Gather", [a.name, m.constant(at if m.r.random() < 0.7 else at[0])], axis=axis)


def convert(m: Maker) -> None:
    a = m.pick(FLOAT, INT, BOOL)
    to = m.r.choice((TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.INT64, TensorProto.INT32))
    if a.kind == FLOAT and to in (TensorProto.INT64, TensorProto.INT32):
        m.want_numbers()  # nan, inf and what the type does not hold: defined here alone
        if not (np.abs(a.array) < 2**20).all():
            raise Unfit
    m.add("Cast", [a.name], to=to)


def clip(m: Maker) -> None:
    a = m.pick(FLOAT)
    m.add("Clip", [a.name, m.constant(-0.5, a.array.dtype), m.constant(1.5, a.array.dtype)])


def product(m: Maker) -> None:
    a = m.pick(FLOAT, rank=2)
    k = a.array.shape[-1]
    if k == 0:
        raise Unfit
    m.add("MatMul", [a.name, m.constant(m.drawn(a.array.dtype, (k, 3)), a.array.dtype)])


def convolution(m: Maker) -> None:
    m.want_numbers()  # inf times the zeros of a border, nan in an average
    a = m.pick(FLOAT, rank=3)
    if a.array.dtype != np.float32 or a.array.ndim > 4:
        raise Unfit
    n, c = a.array.ndim - 2, a.array.shape[1]
    if m.r.random() < 0.5:
        kernel = [m.r.randint(1, 3) for _ in range(n)]
        m.add(
            "Conv",
            [a.name, m.constant(m.drawn(np.float32, (4, c, *kernel)), np.float32)],
            pads=[1] * (2 * n),
            strides=[m.r.randint(1, 2)] * n,
        )
    else:
        m.add(
            m.r.choice(("MaxPool", "AveragePool")),
            [a.name],
            kernel_shape=[2] * n,
            strides=[m.r.randint(1, 2)] * n,
            pads=[m.r.randint(0, 1)] * (2 * n),
        )


def normalise(m: Maker) -> None:
    a = m.pick(FLOAT, rank=2)
    c = a.array.shape[-1]
    scale, bias = (m.constant(m.drawn(a.array.dtype, (c,)), a.array.dtype) for _ in range(2))
    m.add("LayerNormalization", [a.name, scale, bias], axis=-1)


def largest(m: Maker) -> None:
    a = m.pick(FLOAT, rank=1)
    axis = m.r.randrange(a.array.ndim)
    if (
        a.array.shape[axis] < 2
        or (axis == 0 and m.is_open)
        or len(np.unique(a.array)) < a.array.size
        or np.isnan(a.array).any()
    ):
        raise Unfit
    m.add("TopK", [a.name, m.constant([2])], 2, axis=axis, largest=m.r.randint(0, 1))


def shape_of(m: Maker) -> None:
    m.add("Shape", [m.pick().name])


def triangle(m: Maker) -> None:
    m.add("Trilu", [m.pick(FLOAT, rank=2).name, m.constant(m.r.randint(-1, 1))], upper=m.r.randint(0, 1))


STEPS: tuple[Callable[[Maker], None], ...] = (
    *(
        unary,
        unary,
        unary,
        whole,
        binary,
        binary,
        binary,
        compare,
        logic,
        where,
        reduce,
        reduce,
        extreme,
        along,
        transpose,
        reshape,
    ),
    *(
        squeeze,
        cut,
        cut,
        pad,
        concat,
        split,
        tile,
        gather,
        convert,
        clip,
        product,
        product,
        convolution,
        convolution,
        normalise,
    ),
    *(largest, shape_of, triangle),
)
