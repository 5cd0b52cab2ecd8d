"""The operators of random ONNX models, each with inputs and attributes that fit, and how often they are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from tests.fuzz.onnx_models import BOOL, FLOAT, INT, Maker, Unfit


def random_model(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The model of a seed, and the arrays of its calls."""
    return Maker(seed).made(STEPS)


UNARY = (
    "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round", "Erf", "Softplus", "Softsign",
    "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "Sign", "Reciprocal", "Sin", "Cos", "Tan", "Atan", "Asinh",
    "Sinh", "Cosh", "Identity", "Mish", "ThresholdedRelu", "Celu",
)  # fmt: skip


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
    m.add("MatMul", [a.name, m.constant(m.weights(a.array.dtype, (k, 3)), a.array.dtype)])


def convolution(m: Maker) -> None:
    a = m.pick(FLOAT, rank=3)
    if a.array.dtype != np.float32 or a.array.ndim > 4:
        raise Unfit
    n, c = a.array.ndim - 2, a.array.shape[1]
    if m.r.random() < 0.5:
        kernel = [
            m.r.randint(1, 2 if m.is_special else 3) for _ in range(n)
        ]  # kernels of 3 are computed by tiles, where an infinity may become nan
        m.add(
            "Conv",
            [a.name, m.constant(m.weights(np.float32, (4, c, *kernel)), np.float32)],
            pads=[1] * (2 * n),
            strides=[m.r.randint(1, 2)] * n,
        )
    else:
        m.add(
            "AveragePool" if m.is_special else m.r.choice(("MaxPool", "AveragePool")),  # oracles may skip nan in a maximum
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
    unary, unary, unary, whole, binary, binary, binary, compare, logic, where, reduce, reduce, extreme, along,
    transpose, reshape, squeeze, cut, cut, pad, concat, split, tile, gather, convert, clip, product, product,
    convolution, convolution, normalise, largest, shape_of, triangle,
)  # fmt: skip
