"""Nodes of operators whose form or meaning changed between versions.

A recipe says, for one version, operands, attributes and, where ONNX Runtime has no kernel of that version, the result by
numpy. `Fixed` operands are initialisers: axes, shapes and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.versions.version_case import (
    IMAGE,
    POSITIVE,
    RNG,
    TRUTH,
    UNIT,
    Array,
    Case,
    Fixed,
    X,
    Y,
    consumed,
    fixed,
    scalar,
)


def unary(op: str, version: int) -> Iterator[Case]:
    x = {"Acosh": POSITIVE, "Log": POSITIVE, "Sqrt": POSITIVE, "Asin": UNIT, "Acos": UNIT, "Atanh": UNIT * 0.9}.get(op, X)
    yield Case([x.astype(np.float32)], consumed(op, version))


def limited(op: str, version: int) -> Iterator[Case]:
    """Arithmetic, logic and comparison: broadcasting by `axis` before opset 7."""
    logic = op in ("And", "Or", "Xor")
    a: np.ndarray
    b: np.ndarray
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


def variadic(op: str, version: int) -> Iterator[Case]:
    yield Case([X, Y, POSITIVE], consumed(op, version, 3))
    if version >= 8:
        yield Case([X, Y[0, 0]])


def reduce(op: str, version: int) -> Iterator[Case]:
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


def softmax(op: str, version: int) -> Iterator[Case]:
    yield Case([X])
    yield Case([X], {"axis": 2})


def by_axes(op: str, version: int) -> Iterator[Case]:
    """Squeeze and Unsqueeze."""
    x = X[:1, :, :1] if op == "Squeeze" else X
    yield Case([x, fixed(0, 2)]) if version >= 13 else Case([x], {"axes": [0, 2]})
    if op == "Squeeze":
        yield Case([x])


def pad(op: str, version: int) -> Iterator[Case]:
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


def slice(op: str, version: int) -> Iterator[Case]:
    if version < 10:
        yield Case([X], {"starts": [1, -3], "ends": [2, 100], "axes": [0, 3]})
        yield Case([X], {"starts": [0, 1], "ends": [1, 3]})
    else:
        yield Case([X, fixed(1, -3), fixed(2, 100), fixed(0, 3)])
        yield Case([X, fixed([-1]), fixed([-100]), fixed([3]), fixed([-2])])


def split(op: str, version: int) -> Iterator[Case]:
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


def upsample(op: str, version: int) -> Iterator[Case]:
    want = [X.repeat(2, 2).repeat(3, 3)]
    if version == 1:
        yield Case([X], {"height_scale": 2.0, "width_scale": 3.0}, want=want)
        yield Case([X], {"height_scale": 2.0, "width_scale": 2.0, "mode": "bilinear"}, want=[linear(X)])
    elif version == 7:
        yield Case([X], {"scales": [1.0, 1.0, 2.0, 3.0]}, want=want)
        yield Case([X], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, want=[linear(X)])
    elif version == 9:
        yield Case([X, fixed(1, 1, 2, 3, dtype=np.float32)], want=want)
        yield Case([X, fixed(1, 1, 2, 2, dtype=np.float32)], {"mode": "linear"})


def linear(x: Array) -> Array:
    """Twice as many rows and columns, each at half the place, between its neighbours."""
    for axis in (2, 3):
        at = np.arange(2 * x.shape[axis]) / 2
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        t = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(low, axis) * (1 - t) + x.take(high, axis) * t
    return x.astype(np.float32)


def resize(op: str, version: int) -> Iterator[Case]:
    for mode in ("nearest", "linear"):
        for scales in ((1, 1, 2, 2), (1, 1, 0.5, 0.6), (1, 1, 2, 0.6)):
            s = Fixed(np.array(scales, np.float32))
            yield (
                Case([X, s], {"mode": mode}) if version == 10 else Case([X, Fixed(np.zeros(0, np.float32)), s], {"mode": mode})
            )


def batch_norm(op: str, version: int) -> Iterator[Case]:
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


def dropout(op: str, version: int) -> Iterator[Case]:
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


def cast(op: str, version: int) -> Iterator[Case]:
    yield Case([X * 3], {"to": "INT32" if version == 1 else TensorProto.INT32}, want=[(X * 3).astype(np.int32)])
    yield Case([X], {"to": "DOUBLE" if version == 1 else TensorProto.DOUBLE}, want=[X.astype(np.float64)])


def clip(op: str, version: int) -> Iterator[Case]:
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


def concat(op: str, version: int) -> Iterator[Case]:
    yield Case([X, Y[:, :2]], {"axis": 1})
    if version < 4:
        yield Case([X, Y[:, :2]], want=[np.concatenate([X, Y[:, :2]], 1)])


def gemm(op: str, version: int) -> Iterator[Case]:
    a, b, c = X[0, 0], Y[0, 0].T.copy(), RNG.standard_normal((4, 4)).astype(np.float32)
    numbers = {"alpha": 0.5, "beta": 2.0}
    want = (0.5 * (a.astype("f8") @ b) + 2.0 * c).astype(np.float32)
    yield Case([a, b, c], numbers, want=[want])
    yield Case([a.T.copy(), b.T.copy(), c], {**numbers, "transA": 1, "transB": 1}, want=[want])
    more = {"broadcast": 1} if version < 7 else {}
    yield Case([a, b, c[0]], {**numbers, **more}, want=[(0.5 * (a.astype("f8") @ b) + 2.0 * c[0]).astype(np.float32)])
    if version >= 11:
        yield Case([a, b], {"alpha": 0.5}, want=[(0.5 * (a.astype("f8") @ b)).astype(np.float32)])


def reshape(op: str, version: int) -> Iterator[Case]:
    if version < 5:
        yield Case([X], {"shape": [0, -1, 5], **consumed(op, version)}, want=[X.reshape(2, 12, 5)])
    else:
        yield Case([X, fixed(0, -1, 5)], want=[X.reshape(2, 12, 5)])


def tile(op: str, version: int) -> Iterator[Case]:
    if version < 6:
        yield Case([X, scalar(3), scalar(1)], want=[np.tile(X, (1, 3, 1, 1))])
        yield Case([X, fixed([2]), fixed([3])], want=[np.tile(X, (1, 1, 1, 2))])
    else:
        yield Case([X, fixed(1, 3, 1, 2)], want=[np.tile(X, (1, 3, 1, 2))])


def top_k(op: str, version: int) -> Iterator[Case]:
    yield Case([X], {"k": 2, "axis": 2}, 2) if version < 10 else Case([X, fixed([2])], {"axis": 2}, 2)
    if version >= 11:
        yield Case([X, fixed([2])], {"axis": 2, "largest": 0}, 2)


def pool(op: str, version: int) -> Iterator[Case]:
    more: dict[str, Any] = {"p": 3.0 if version == 1 else 3} if op == "LpPool" else {}
    yield Case([IMAGE], {"kernel_shape": [3, 2], **more})
    yield Case([IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], **more})
    yield Case([IMAGE], {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER", **more})
    schema = onnx.defs.get_schema(op, version)
    for name, value in (("ceil_mode", 1), ("dilations", [2, 2]), ("count_include_pad", 1)):
        if name in schema.attributes:
            yield Case([IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0], name: value, **more})


def global_pool(op: str, version: int) -> Iterator[Case]:
    if op == "GlobalLpPool":
        p = 3.0 if version == 1 else 3
        yield Case([X], {"p": p}, want=[((np.abs(X.astype("f8")) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)).astype("f4")])
    else:
        yield Case([X])


def conv(op: str, version: int) -> Iterator[Case]:
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


def recurrent(op: str, version: int) -> Iterator[Case]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    w, r = (RNG.standard_normal((1, gates * 5, n)).astype(np.float32) * 0.4 for n in (4, 5))
    b = RNG.standard_normal((1, gates * 10)).astype(np.float32) * 0.3
    more: dict[str, Any] = {"output_sequence": 1} if version < 7 else {}
    if op == "GRU" and version == 1:
        more["direction"] = "forward"
    yield Case([x, w, r, b], {"hidden_size": 5, **more}, 2)
    yield Case([x, w, r], {"hidden_size": 5, "direction": "reverse"}, 2)


def attribute_axis(*shapes: Any, **attrs: Any) -> Callable[[str, int], Iterator[Case]]:
    def recipe(op: str, version: int) -> Iterator[Case]:
        yield Case(list(shapes), attrs)

    return recipe


def quantize(op: str, version: int) -> Iterator[Case]:
    scale, zero = scalar(0.05, np.float32), scalar(120, np.uint8)
    x = X if op == "QuantizeLinear" else RNG.integers(0, 256, X.shape).astype(np.uint8)
    yield Case([x, scale, zero])
    if version >= 13:
        yield Case([x, fixed(0.05, 0.1, 0.2, dtype=np.float32), fixed(1, 120, 255, dtype=np.uint8)], {"axis": 1})


def scatter(op: str, version: int) -> Iterator[Case]:
    index = np.argsort(X, 2)[:, :, :2]
    yield Case([X, index, Y[:, :, :2]], {"axis": 2})
    if version >= 16:
        yield Case([X, index, Y[:, :, :2]], {"axis": 2, "reduction": "add"})


def scatter_nd(op: str, version: int) -> Iterator[Case]:
    yield Case([X, np.array([[1, 0], [0, 2]]), Y[0, :2]])
    if version >= 16:
        yield Case([X, np.array([[1, 0], [0, 2]]), Y[0, :2]], {"reduction": "mul"})


def shape(op: str, version: int) -> Iterator[Case]:
    yield Case([X])
    if op == "Shape" and version >= 15:
        yield Case([X], {"start": 1, "end": -1})


def constant(op: str, version: int) -> Iterator[Case]:
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


def random(op: str, version: int) -> Iterator[Case]:
    if op.endswith("Like"):
        yield Case([X], {"seed": 3.0}, want=[X], is_random=True)
    elif op == "Multinomial":
        yield Case([np.log(POSITIVE[0, 0])], {"sample_size": 6}, want=[np.zeros((4, 6), np.int32)], is_random=True)
    elif op == "Bernoulli":
        yield Case([np.abs(UNIT)], {"seed": 3.0}, want=[X], is_random=True)
    else:
        yield Case([], {"shape": [2, 3], "seed": 3.0}, want=[np.zeros((2, 3), np.float32)], is_random=True)


def roi_align(op: str, version: int) -> Iterator[Case]:
    rois, batch = np.array([[0, 0, 3, 3], [1, 1, 5, 4]], np.float32), np.array([0, 0])
    for mode in ("avg", "max"):
        yield Case([IMAGE, rois, batch], {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode})


def grid_sample(op: str, version: int) -> Iterator[Case]:
    grid = np.tanh(RNG.standard_normal((1, 3, 4, 2))).astype(np.float32)
    for mode in ("linear", "cubic") if version >= 20 else ("bilinear", "bicubic"):
        yield Case([IMAGE, grid], {"mode": mode})
    yield Case([IMAGE, grid])


def dft(op: str, version: int) -> Iterator[Case]:
    x = RNG.standard_normal((2, 6, 1)).astype(np.float32)
    f = np.fft.fft(x[..., 0], axis=1)
    want = [np.stack([f.real, f.imag], -1).astype(np.float32)]
    yield Case([x, None, scalar(1)], want=want) if version >= 20 else Case([x], {"axis": 1}, want=want)


def group_norm(op: str, version: int) -> Iterator[Case]:
    count = 2 if version < 21 else 4
    scale, bias = (RNG.standard_normal(count).astype(np.float32) for _ in range(2))
    g = IMAGE.astype("f8").reshape(1, 2, -1)
    normal = ((g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)).reshape(IMAGE.shape)
    s, b = (t.repeat(4 // count)[:, None, None] for t in (scale, bias))
    yield Case([IMAGE, scale, bias], {"num_groups": 2}, want=[(normal * s + b).astype(np.float32)])


def selu(op: str, version: int) -> Iterator[Case]:
    alpha, gamma = (1.6732, 1.0507) if version < 6 else (1.6732632423543772, 1.0507009873554805)
    yield Case([X], consumed(op, version), want=[(gamma * np.where(X > 0, X, alpha * np.expm1(X))).astype(np.float32)])
    yield Case(
        [X],
        {"alpha": 2.0, "gamma": 0.5, **consumed(op, version)},
        want=[np.where(X > 0, 0.5 * X, np.expm1(X)).astype(np.float32)],
    )


def prelu(op: str, version: int) -> Iterator[Case]:
    slope = np.array([0.1, -2, 3], np.float32)
    wide = slope if version < 7 else slope[:, None, None]
    yield Case([X, wide], consumed(op, version, 2), want=[np.where(X > 0, X, X * slope[:, None, None])])
    yield Case([X, slope[:1]], want=[np.where(X > 0, X, X * slope[0])])


def one_of(*cases: Case) -> Callable[[str, int], Iterator[Case]]:
    return lambda op, version: iter(cases)
