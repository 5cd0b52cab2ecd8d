"""A node of every version of every operator: what it is given, and what it has to give.

A recipe says, for one version, operands, attributes and, where ONNX Runtime has no kernel of that version, the result by
numpy. `Fixed` operands are initialisers: axes, shapes and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray


@dataclass(frozen=True)
class Fixed:
    array: Array


@dataclass
class Case:
    operands: list[Any]
    """Arrays, Fixed ones, None for an absent one."""
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    want: list[Array] | None = None
    """None: what ONNX Runtime gives at this version, or at the first later one that it has a kernel of."""
    is_random: bool = False
    """Only shapes and dtypes are compared."""


def fixed(*values: Any, dtype: Any = np.int64) -> Fixed:
    return Fixed(np.array(values[0] if len(values) == 1 and not isinstance(values[0], int) else values, dtype))


def scalar(value: Any, dtype: Any = np.int64) -> Fixed:
    return Fixed(np.array(value, dtype))


RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(1.25)
UNIT = np.tanh(X).astype(np.float32)
Y = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
INTS = RNG.integers(-5, 6, (2, 3, 4)).astype(np.int64)
TRUTH = X > 0


def consumed(op: str, version: int, count: int = 1) -> dict[str, Any]:
    """`consumed_inputs` where this version has it."""
    schema = onnx.defs.get_schema(op, version)
    return {"consumed_inputs": [0] * count} if "consumed_inputs" in schema.attributes else {}


def _unary(op: str, version: int) -> Iterator[Case]:
    x = {"Acosh": POSITIVE, "Log": POSITIVE, "Sqrt": POSITIVE, "Asin": UNIT, "Acos": UNIT, "Atanh": UNIT * 0.9}.get(op, X)
    yield Case([x.astype(np.float32)], consumed(op, version))


def _limited(op: str, version: int) -> Iterator[Case]:
    """Arithmetic, logic and comparison: broadcasting by `axis` before opset 7."""
    logic = op in ("And", "Or", "Xor")
    a, b = (TRUTH, Y > 0) if logic else (POSITIVE, np.abs(Y) + 0.5)
    if op == "Equal" and version < 11:
        a, b = (v.astype(np.int32) for v in (a, b))
    numpy = {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power, "And": np.logical_and,
        "Or": np.logical_or, "Xor": np.logical_xor, "Equal": np.equal, "Less": np.less, "Greater": np.greater,
    }[op]  # fmt: skip
    more = consumed(op, version, 2)
    yield Case([a, b], more, want=[numpy(a, b)])
    if version >= 7:
        yield Case([a, b[0, :, :1]], want=[numpy(a, b[0, :, :1])])
        return
    yield Case([a, b[0, 0]], {"broadcast": 1, **more}, want=[numpy(a, b[0, 0])])
    yield Case([a, b[0, :, :, 0]], {"broadcast": 1, "axis": 1, **more}, want=[numpy(a, b[:1, :, :, :1])])
    yield Case([a, Fixed(b[:, 0, 0, 0])], {"broadcast": 1, "axis": 0}, want=[numpy(a, b[:, :1, :1, :1])])
    yield Case([a, b[0, 0, 0, 0].reshape(())], {"broadcast": 1, **more}, want=[numpy(a, b[0, 0, 0, 0])])


def _variadic(op: str, version: int) -> Iterator[Case]:
    yield Case([X, Y, POSITIVE], consumed(op, version, 3))
    if version >= 8:
        yield Case([X, Y[0, 0]])


def _reduce(op: str, version: int) -> Iterator[Case]:
    axes_are_operands = version >= (13 if op == "ReduceSum" else 18)
    for keep in (0, 1):
        if axes_are_operands:
            yield Case([POSITIVE, fixed(1, 2)], {"keepdims": keep})
        else:
            yield Case([POSITIVE], {"axes": [1, 2], "keepdims": keep})
    yield Case([POSITIVE], {})
    if axes_are_operands:  # no axes, and what is done to each element before and after the reduction is done all the same
        want = {"L1": np.abs, "L2": np.abs, "LogSum": np.log, "SumSquare": np.square}.get(op.removeprefix("Reduce"), np.copy)
        x = POSITIVE if op == "ReduceLogSum" else X
        yield Case([x], {"noop_with_empty_axes": 1}, want=[want(x)])


def _softmax(op: str, version: int) -> Iterator[Case]:
    yield Case([X])
    yield Case([X], {"axis": 2})


def _by_axes(op: str, version: int) -> Iterator[Case]:
    """Squeeze and Unsqueeze."""
    x = X[:1, :, :1] if op == "Squeeze" else X
    yield Case([x, fixed(0, 2)]) if version >= 13 else Case([x], {"axes": [0, 2]})
    if op == "Squeeze":
        yield Case([x])


def _pad(op: str, version: int) -> Iterator[Case]:
    pads = [0, 1, 0, 2, 1, 0, 0, 3]
    want = [np.pad(X, [(0, 1), (1, 0), (0, 0), (2, 3)], constant_values=1.5)]
    name = "paddings" if version == 1 else "pads"
    if version < 11:
        yield Case([X], {name: pads, "value": 1.5}, want=want)
        yield Case(
            [X],
            {name: [0, 0, 1, 2, 0, 0, 1, 2], "mode": "reflect"},
            want=[np.pad(X, [(0, 0), (0, 0), (1, 1), (2, 2)], "reflect")],
        )
        yield Case([X], {name: pads, "mode": "edge"}, want=[np.pad(X, [(0, 1), (1, 0), (0, 0), (2, 3)], "edge")])
        return
    yield Case([X, Fixed(np.array(pads)), scalar(1.5, np.float32)], want=want)
    if version >= 18:
        yield Case(
            [X, fixed(2, 3), scalar(1.5, np.float32), fixed([-1])],
            want=[np.pad(X, [(0, 0)] * 3 + [(2, 3)], constant_values=1.5)],
        )


def _slice(op: str, version: int) -> Iterator[Case]:
    if version < 10:
        yield Case([X], {"starts": [1, -3], "ends": [2, 100], "axes": [0, 3]})
        yield Case([X], {"starts": [0, 1], "ends": [1, 3]})
    else:
        yield Case([X, fixed(1, -3), fixed(2, 100), fixed(0, 3)])
        yield Case([X, fixed([-1]), fixed([-100]), fixed([3]), fixed([-2])])


def _split(op: str, version: int) -> Iterator[Case]:
    first, second = np.split(X, [2], 3)
    if version == 1:
        yield Case([X, fixed(2, 3)], {"axis": 3}, 2, want=[first, second])
    if version < 13:
        yield Case([X], {"axis": 3, "split": [2, 3]}, 2, want=[first, second])
        yield Case([X], {"axis": 2}, 2, want=np.split(X, 2, 2))
        yield Case([X], {}, 2, want=np.split(X, 2, 0))
    else:
        yield Case([X, fixed(2, 3)], {"axis": 3}, 2, want=[first, second])
        yield (
            Case([X], {"axis": 3, "num_outputs": 2}, 2, want=np.split(X, [3], 3))
            if version >= 18
            else Case([X], {"axis": 2}, 2)
        )


def _upsample(op: str, version: int) -> Iterator[Case]:
    want = [X.repeat(2, 2).repeat(3, 3)]
    if version == 1:
        yield Case([X], {"height_scale": 2.0, "width_scale": 3.0}, want=want)
        yield Case([X], {"height_scale": 2.0, "width_scale": 2.0, "mode": "bilinear"}, want=[_linear(X)])
    elif version == 7:
        yield Case([X], {"scales": [1.0, 1.0, 2.0, 3.0]}, want=want)
        yield Case([X], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, want=[_linear(X)])
    elif version == 9:
        yield Case([X, fixed(1, 1, 2, 3, dtype=np.float32)], want=want)
        yield Case([X, fixed(1, 1, 2, 2, dtype=np.float32)], {"mode": "linear"})


def _linear(x: Array) -> Array:
    """Twice as many rows and columns, each at half the place, between its neighbours."""
    for axis in (2, 3):
        at = np.arange(2 * x.shape[axis]) / 2
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        t = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(low, axis) * (1 - t) + x.take(high, axis) * t
    return x.astype(np.float32)


def _resize(op: str, version: int) -> Iterator[Case]:
    for mode in ("nearest", "linear"):
        for scales in ((1, 1, 2, 2), (1, 1, 0.5, 0.6), (1, 1, 2, 0.6)):
            s = Fixed(np.array(scales, np.float32))
            yield (
                Case([X, s], {"mode": mode}) if version == 10 else Case([X, Fixed(np.zeros(0, np.float32)), s], {"mode": mode})
            )


def _batch_norm(op: str, version: int) -> Iterator[Case]:
    scale, bias, mean, var = (RNG.standard_normal(3).astype(np.float32) for _ in range(4))
    var = np.abs(var) + np.float32(0.5)
    more = consumed(op, version, 5) | ({"is_test": 1} if version < 7 else {})

    def normal(mean: Array, var: Array, shape: Sequence[int] = (3, 1, 1)) -> Array:
        s, b, m, v = (t.reshape(shape) for t in (scale, bias, mean, var))
        return ((X - m) / np.sqrt(v + 1e-5) * s + b).astype(np.float32)

    yield Case([X, scale, bias, mean, var], more, want=[normal(mean, var)])
    if version < 9:
        wide = [
            np.broadcast_to(t[:, None, None], (3, 4, 5)) * (1 + np.arange(20).reshape(4, 5) / 20)
            for t in (scale, bias, mean, var)
        ]
        s, b, m, v = (t.astype(np.float32) for t in wide)
        yield Case([X, s, b, m, v], {"spatial": 0, **more}, want=[((X - m) / np.sqrt(v + 1e-5) * s + b).astype(np.float32)])
    own, spread = X.mean((0, 2, 3)), X.var((0, 2, 3))
    results = [normal(own, spread), mean * 0.8 + own * 0.2, var * 0.8 + spread * 0.2]
    if version < 14:
        yield Case([X, scale, bias, mean, var], consumed(op, version, 5) | {"momentum": 0.8}, 5, want=[*results, own, spread])
    else:
        yield Case([X, scale, bias, mean, var], {"momentum": 0.8, "training_mode": 1}, 3, want=results)


def _dropout(op: str, version: int) -> Iterator[Case]:
    more = consumed(op, version)
    if version < 12:
        test = {"is_test": 1} if version < 7 else {}
        yield Case([X], {"ratio": 0.3, **test, **more}, want=[X])
        yield Case([X], {**test, **more}, 2, want=[X, np.ones_like(X, bool if version >= 10 else np.float32)])
        if version < 7:
            yield Case([X], {"ratio": 0.3, **more}, 2, want=[X, X], is_random=True)
    else:
        yield Case([X, scalar(0.3, np.float32)], want=[X])
        yield Case([X], {}, 2, want=[X, np.ones_like(X, bool)])


def _cast(op: str, version: int) -> Iterator[Case]:
    yield Case([X * 3], {"to": "INT32" if version == 1 else TensorProto.INT32}, want=[(X * 3).astype(np.int32)])
    yield Case([X], {"to": "DOUBLE" if version == 1 else TensorProto.DOUBLE}, want=[X.astype(np.float64)])


def _clip(op: str, version: int) -> Iterator[Case]:
    wide = X.copy()
    wide[0, 0, 0, :2] = np.inf, -np.inf
    if version < 11:
        more = consumed(op, version)
        yield Case([X], {"min": -0.5, "max": 0.25, **more}, want=[X.clip(-0.5, 0.25)])
        greatest = np.float32(np.finfo(np.float32).max) if version >= 6 else np.float32(np.inf)
        yield Case([wide], {"min": -0.5, **more}, want=[wide.clip(-0.5, greatest)])
    else:
        yield Case([wide, scalar(-0.5, np.float32), scalar(0.25, np.float32)], want=[wide.clip(-0.5, 0.25)])
        yield Case([wide, None, scalar(0.25, np.float32)], want=[np.minimum(wide, np.float32(0.25))])


def _concat(op: str, version: int) -> Iterator[Case]:
    yield Case([X, Y[:, :2]], {"axis": 1})
    if version < 4:
        yield Case([X, Y[:, :2]], want=[np.concatenate([X, Y[:, :2]], 1)])


def _gemm(op: str, version: int) -> Iterator[Case]:
    a, b, c = X[0, 0], Y[0, 0].T.copy(), RNG.standard_normal((4, 4)).astype(np.float32)
    numbers = {"alpha": 0.5, "beta": 2.0}
    want = (0.5 * (a.astype("f8") @ b) + 2.0 * c).astype(np.float32)
    yield Case([a, b, c], numbers, want=[want])
    yield Case([a.T.copy(), b.T.copy(), c], {**numbers, "transA": 1, "transB": 1}, want=[want])
    more = {"broadcast": 1} if version < 7 else {}
    yield Case([a, b, c[0]], {**numbers, **more}, want=[(0.5 * (a.astype("f8") @ b) + 2.0 * c[0]).astype(np.float32)])
    if version >= 11:
        yield Case([a, b], {"alpha": 0.5}, want=[(0.5 * (a.astype("f8") @ b)).astype(np.float32)])


def _reshape(op: str, version: int) -> Iterator[Case]:
    if version < 5:
        yield Case([X], {"shape": [0, -1, 5], **consumed(op, version)}, want=[X.reshape(2, 12, 5)])
    else:
        yield Case([X, fixed(0, -1, 5)], want=[X.reshape(2, 12, 5)])


def _tile(op: str, version: int) -> Iterator[Case]:
    if version < 6:
        yield Case([X, scalar(3), scalar(1)], want=[np.tile(X, (1, 3, 1, 1))])
        yield Case([X, fixed([2]), fixed([3])], want=[np.tile(X, (1, 1, 1, 2))])
    else:
        yield Case([X, fixed(1, 3, 1, 2)], want=[np.tile(X, (1, 3, 1, 2))])


def _top_k(op: str, version: int) -> Iterator[Case]:
    yield Case([X], {"k": 2, "axis": 2}, 2) if version < 10 else Case([X, fixed([2])], {"axis": 2}, 2)
    if version >= 11:
        yield Case([X, fixed([2])], {"axis": 2, "largest": 0}, 2)


def _pool(op: str, version: int) -> Iterator[Case]:
    more: dict[str, Any] = {"p": 3.0 if version == 1 else 3} if op == "LpPool" else {}
    yield Case([IMAGE], {"kernel_shape": [3, 2], **more})
    yield Case([IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], **more})
    yield Case([IMAGE], {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER", **more})
    schema = onnx.defs.get_schema(op, version)
    for name, value in (("ceil_mode", 1), ("dilations", [2, 2]), ("count_include_pad", 1)):
        if name in schema.attributes:
            yield Case([IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0], name: value, **more})


def _global_pool(op: str, version: int) -> Iterator[Case]:
    if op == "GlobalLpPool":
        p = 3.0 if version == 1 else 3
        yield Case([X], {"p": p}, want=[((np.abs(X.astype("f8")) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)).astype("f4")])
    else:
        yield Case([X])


def _conv(op: str, version: int) -> Iterator[Case]:
    w = RNG.standard_normal((4, 2, 3, 3)).astype(np.float32)
    b = RNG.standard_normal(4).astype(np.float32)
    if op == "ConvTranspose":
        yield Case([IMAGE, w, b[:2]], {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]})
        yield Case([IMAGE, w], {"strides": [2, 2], "output_shape": [11, 12]})
        for auto in ("SAME_UPPER", "SAME_LOWER"):
            yield Case([IMAGE, w], {"strides": [2, 2], "auto_pad": auto})
        return
    yield Case([IMAGE, w, b], {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1], "kernel_shape": [3, 3]})
    yield Case([IMAGE, w], {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]})


def _recurrent(op: str, version: int) -> Iterator[Case]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    w, r = (RNG.standard_normal((1, gates * 5, n)).astype(np.float32) * 0.4 for n in (4, 5))
    b = RNG.standard_normal((1, gates * 10)).astype(np.float32) * 0.3
    more = {"output_sequence": 1} if version < 7 else {}
    if op == "GRU" and version == 1:
        more["direction"] = "forward"
    yield Case([x, w, r, b], {"hidden_size": 5, **more}, 2)
    yield Case([x, w, r], {"hidden_size": 5, "direction": "reverse"}, 2)


def _attribute_axis(*shapes: Any, **attrs: Any) -> Callable[[str, int], Iterator[Case]]:
    def recipe(op: str, version: int) -> Iterator[Case]:
        yield Case(list(shapes), attrs)

    return recipe


def _quantize(op: str, version: int) -> Iterator[Case]:
    scale, zero = scalar(0.05, np.float32), scalar(120, np.uint8)
    x = X if op == "QuantizeLinear" else RNG.integers(0, 256, X.shape).astype(np.uint8)
    yield Case([x, scale, zero])
    if version >= 13:
        yield Case([x, fixed(0.05, 0.1, 0.2, dtype=np.float32), fixed(1, 120, 255, dtype=np.uint8)], {"axis": 1})


def _scatter(op: str, version: int) -> Iterator[Case]:
    index = np.argsort(X, 2)[:, :, :2]
    yield Case([X, index, Y[:, :, :2]], {"axis": 2})
    if version >= 16:
        yield Case([X, index, Y[:, :, :2]], {"axis": 2, "reduction": "add"})


def _scatter_nd(op: str, version: int) -> Iterator[Case]:
    yield Case([X, np.array([[1, 0], [0, 2]]), Y[0, :2]])
    if version >= 16:
        yield Case([X, np.array([[1, 0], [0, 2]]), Y[0, :2]], {"reduction": "mul"})


def _shape(op: str, version: int) -> Iterator[Case]:
    yield Case([X])
    if op == "Shape" and version >= 15:
        yield Case([X], {"start": 1, "end": -1})


def _constant(op: str, version: int) -> Iterator[Case]:
    yield Case([], {"value": numpy_helper.from_array(X, "c")}, want=[X])
    if version >= 11:
        values, places = (
            helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, -2]),
            helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]),
        )
        want = np.array([[0, 1.5, 0], [0, 0, -2]], np.float32)
        yield Case([], {"sparse_value": helper.make_sparse_tensor(values, places, [2, 3])}, want=[want])
    if version >= 12:
        yield Case([], {"value_ints": [3, 4]}, want=[np.array([3, 4])])
        yield Case([], {"value_float": 2.5}, want=[np.array(2.5, np.float32)])


def _random(op: str, version: int) -> Iterator[Case]:
    if op.endswith("Like"):
        yield Case([X], {"seed": 3.0}, want=[X], is_random=True)
    elif op == "Multinomial":
        yield Case([np.log(POSITIVE[0, 0])], {"sample_size": 6}, want=[np.zeros((4, 6), np.int32)], is_random=True)
    elif op == "Bernoulli":
        yield Case([np.abs(UNIT)], {"seed": 3.0}, want=[X], is_random=True)
    else:
        yield Case([], {"shape": [2, 3], "seed": 3.0}, want=[np.zeros((2, 3), np.float32)], is_random=True)


def _max_roi(op: str, version: int) -> Iterator[Case]:
    return iter(())


def _roi_align(op: str, version: int) -> Iterator[Case]:
    rois, batch = np.array([[0, 0, 3, 3], [1, 1, 5, 4]], np.float32), np.array([0, 0])
    for mode in ("avg", "max"):
        yield Case([IMAGE, rois, batch], {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode})


def _grid_sample(op: str, version: int) -> Iterator[Case]:
    grid = np.tanh(RNG.standard_normal((1, 3, 4, 2))).astype(np.float32)
    for mode in ("linear", "cubic") if version >= 20 else ("bilinear", "bicubic"):
        yield Case([IMAGE, grid], {"mode": mode})
    yield Case([IMAGE, grid])


def _dft(op: str, version: int) -> Iterator[Case]:
    x = RNG.standard_normal((2, 6, 1)).astype(np.float32)
    f = np.fft.fft(x[..., 0], axis=1)
    want = [np.stack([f.real, f.imag], -1).astype(np.float32)]
    yield Case([x, None, scalar(1)], want=want) if version >= 20 else Case([x], {"axis": 1}, want=want)


def _group_norm(op: str, version: int) -> Iterator[Case]:
    count = 2 if version < 21 else 4
    scale, bias = (RNG.standard_normal(count).astype(np.float32) for _ in range(2))
    g = IMAGE.astype("f8").reshape(1, 2, -1)
    normal = ((g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)).reshape(IMAGE.shape)
    s, b = (t.repeat(4 // count)[:, None, None] for t in (scale, bias))
    yield Case([IMAGE, scale, bias], {"num_groups": 2}, want=[(normal * s + b).astype(np.float32)])


def _selu(op: str, version: int) -> Iterator[Case]:
    alpha, gamma = (1.6732, 1.0507) if version < 6 else (1.6732632423543772, 1.0507009873554805)
    yield Case([X], consumed(op, version), want=[(gamma * np.where(X > 0, X, alpha * np.expm1(X))).astype(np.float32)])
    yield Case(
        [X],
        {"alpha": 2.0, "gamma": 0.5, **consumed(op, version)},
        want=[np.where(X > 0, 0.5 * X, np.expm1(X)).astype(np.float32)],
    )


def _prelu(op: str, version: int) -> Iterator[Case]:
    slope = np.array([0.1, -2, 3], np.float32)
    wide = slope if version < 7 else slope[:, None, None]
    yield Case([X, wide], consumed(op, version, 2), want=[np.where(X > 0, X, X * slope[:, None, None])])
    yield Case([X, slope[:1]], want=[np.where(X > 0, X, X * slope[0])])


def _one_of(*cases: Case) -> Callable[[str, int], Iterator[Case]]:
    return lambda op, version: iter(cases)


_SMALL = X[0, 0]
_BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]], np.float32)
_SCORES = np.array([[[0.9, 0.75, 0.6]]], np.float32)
_LABELS = np.array([[1, 0, 2, 1], [2, 2, 0, 1]])
_COMPLEX = RNG.standard_normal((2, 3, 4)).astype(np.float32)

Recipe = Callable[[str, int], Iterator[Case]]
RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(
        ["Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Transpose", "NonZero"],
        _unary,
    ),
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"], _limited),
    **dict.fromkeys(["Max", "Min", "Mean", "Sum"], _variadic),
    **dict.fromkeys([f"Reduce{w}" for w in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]], _reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _by_axes),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _global_pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    **dict.fromkeys(("Scatter", "ScatterElements"), _scatter),
    **dict.fromkeys(("Shape", "Size"), _shape),
    **dict.fromkeys(["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"], _random),
    "Pad": _pad, "Slice": _slice, "Split": _split, "Upsample": _upsample, "Resize": _resize, "BatchNormalization": _batch_norm,
    "Dropout": _dropout, "Cast": _cast, "Clip": _clip, "Concat": _concat, "Gemm": _gemm, "Reshape": _reshape, "Tile": _tile,
    "TopK": _top_k, "ScatterND": _scatter_nd, "Constant": _constant, "RoiAlign": _roi_align, "GridSample": _grid_sample,
    "DFT": _dft, "GroupNormalization": _group_norm, "Selu": _selu, "PRelu": _prelu,
    "ArgMax": _attribute_axis(X, axis=2, keepdims=0), "ArgMin": _attribute_axis(X),
    "BitShift": _attribute_axis(np.array([1, 9], np.uint8), np.array([3, 1], np.uint8), direction="LEFT"),
    "CastLike": _one_of(Case([X, np.zeros(1, np.int32)], want=[X.astype(np.int32)])),
    "Compress": _attribute_axis(X, np.array([True, False, True]), axis=1),
    "ConstantOfShape": _one_of(Case([fixed(2, 3)], {"value": helper.make_tensor("v", TensorProto.INT32, [1], [7])})),
    "CumSum": _attribute_axis(X, scalar(2), reverse=1),
    "DepthToSpace": _attribute_axis(IMAGE, blocksize=2), "SpaceToDepth": _attribute_axis(IMAGE, blocksize=2),
    "Det": _attribute_axis(IMAGE[0, :, :3, :3].copy()),
    "Einsum": _attribute_axis(X, Y, equation="abcd,abce->abde"),
    "Expand": _attribute_axis(X[:, :1], fixed(2, 3, 4, 5)), "EyeLike": _attribute_axis(_SMALL, k=1),
    "Flatten": _attribute_axis(X, axis=2),
    "Gather": _attribute_axis(X, np.array([[0, 2]]), axis=1), "GatherElements": _attribute_axis(X, np.argsort(X, 1), axis=1),
    "GatherND": _attribute_axis(X, np.array([[0, 1], [1, 2]])),
    "GreaterOrEqual": _attribute_axis(X, Y), "LessOrEqual": _attribute_axis(X, Y),
    "InstanceNormalization": lambda op, v: iter([Case([X, X[0, :, 0, 0].copy(), Y[0, :, 0, 0].copy()], consumed(op, v))]),
    "LRN": _attribute_axis(X, size=3), "LpNormalization": _attribute_axis(X, axis=1),
    "MatMul": _attribute_axis(X, Y.transpose(0, 1, 3, 2).copy()),
    "MaxUnpool": _attribute_axis(np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2]),
    "MeanVarianceNormalization": _attribute_axis(X),
    "Mod": _attribute_axis(INTS, np.abs(INTS) + 1),
    "NegativeLogLikelihoodLoss": _attribute_axis(X[:, :, 0].transpose(0, 2, 1)[:, :3].copy(), _LABELS[:, :3]),
    "NonMaxSuppression": _one_of(Case([_BOXES, _SCORES, fixed([2]), fixed([0.5], dtype=np.float32)])),
    "OneHot": _attribute_axis(np.array([1, 0, 2]), scalar(3), np.array([0, 5], np.float32)),
    "QLinearMatMul": _one_of(Case([
        RNG.integers(0, 255, (2, 4)).astype(np.uint8), scalar(0.1, np.float32), scalar(120, np.uint8),
        RNG.integers(0, 255, (4, 3)).astype(np.uint8), scalar(0.05, np.float32), scalar(100, np.uint8),
        scalar(0.5, np.float32), scalar(118, np.uint8)])),
    "Range": _one_of(Case([scalar(1.0, np.float32), scalar(5.0, np.float32), scalar(1.5, np.float32)])),
    "ReverseSequence": _attribute_axis(_COMPLEX, np.array([2, 1, 2])),
    "SoftmaxCrossEntropyLoss": _attribute_axis(X[:, :, 0].transpose(0, 2, 1)[:, :3].copy(), _LABELS[:, :3]),
    "Unique": _one_of(Case([np.array([2, 1, 1, 3], np.float32)], outputs=4)),
    "Where": _attribute_axis(TRUTH, X, Y),
}  # fmt: skip
ELSEWHERE = {
    "If": "control", "Loop": "control", "Scan": "control", "Optional": "node suite",
    "OptionalGetElement": "node suite", "OptionalHasElement": "node suite", "SplitToSequence": "node suite",
    "Attention": "node suite", "DeformConv": "node suite",
    "MaxRoiPool": "refused: no import",
}  # fmt: skip
"""Operators that a single node does not show, and where they are tested."""


def versions() -> list[tuple[str, int]]:
    """Every version of every operator of ONNX's own domain, without those that are deprecated."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return sorted(
        (s.name, s.since_version) for s in schemas if s.domain == "" and not (s.deprecated and s.name != "GroupNormalization")
    )


def _branch(op: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [onnx.ValueInfoProto(name="b")])


def control(op: str, opset: int) -> tuple[onnx.ModelProto, dict[str, Array], list[Array]]:
    """A model of If, Loop or Scan, operands and results."""
    x = X[0, 0]
    value = helper.make_tensor_value_info
    inputs, feed = [value("x", TensorProto.FLOAT, x.shape)], {"x": x}
    if op == "If":
        inputs.append(value("c", TensorProto.BOOL, [1]))
        feed["c"] = np.array([False])
        node = helper.make_node("If", ["c"], ["y"], then_branch=_branch("Abs"), else_branch=_branch("Neg"))
        outputs, want = ["y"], [-x]
    elif op == "Loop":
        nodes = [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Neg", ["t"], ["row"]),
        ]
        ports = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", TensorProto.FLOAT, x.shape)]
        results = [value("on", TensorProto.BOOL, []), *(value(n, TensorProto.FLOAT, x.shape) for n in ("t", "row"))]
        node = helper.make_node("Loop", ["n", "", "x"], ["last", "rows"], body=helper.make_graph(nodes, "body", ports, results))
        inputs.append(value("n", TensorProto.INT64, []))
        feed["n"] = np.array(3)
        outputs, want = ["last", "rows"], [4 * x, -np.stack([2 * x, 3 * x, 4 * x])]
    else:
        x = feed["x"] = X[0]
        inputs = [value("s0", TensorProto.FLOAT, (3, 5) if opset < 9 else (5,)), value("x", TensorProto.FLOAT, x.shape)]
        feed["s0"] = np.zeros((3, 5) if opset < 9 else 5, np.float32)
        nodes = [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Identity", ["t"], ["row"])]
        rows = (5,) if opset < 9 else (4, 5)
        sizes = (5,) if opset < 9 else None
        if opset >= 9:
            nodes = [helper.make_node("Add", ["s", "m"], ["t"]), helper.make_node("Identity", ["t"], ["row"])]
            nodes.insert(
                0,
                helper.make_node("ReduceSum", ["r", "first"], ["m"], keepdims=0)
                if opset >= 13
                else helper.make_node("ReduceSum", ["r"], ["m"], axes=[0], keepdims=0),
            )
        ports = [value("s", TensorProto.FLOAT, (5,)), value("r", TensorProto.FLOAT, rows)]
        results = [value("t", TensorProto.FLOAT, sizes), value("row", TensorProto.FLOAT, sizes)]
        first = [numpy_helper.from_array(np.array([0]), "first")] if opset >= 13 else []
        body = helper.make_graph(nodes, "body", ports, results, first)
        operands = ["", "s0", "x"] if opset < 9 else ["s0", "x"]
        node = helper.make_node("Scan", operands, ["last", "rows"], body=body, num_scan_inputs=1)
        sums = x.cumsum(1) if opset < 9 else x.sum(1).cumsum(0)
        outputs, want = ["last", "rows"], [sums[:, -1] if opset < 9 else sums[-1], sums]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed, want


def model_of(op: str, opset: int, case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    names, inputs, constants, feed = [], [], [], {}
    for i, operand in enumerate(case.operands):
        names.append(f"x{i}" if operand is not None else "")
        if isinstance(operand, Fixed):
            constants.append(numpy_helper.from_array(operand.array, f"x{i}"))
        elif operand is not None:
            feed[f"x{i}"] = operand
            inputs.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape))
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(op, names, outputs, **case.attrs)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed
