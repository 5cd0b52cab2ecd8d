"""Operators that ONNX also has, under this or another name, and small ones of a few operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv
from tatami.onnx.arithmetic import Num
from tatami.onnx.images.sampling import SAMPLING
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.transformer.attention_core import position
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known_number, unsupported
from tatami.onnx.operators.creation import CREATION
from tatami.onnx.operators.indexing import INDEXING
from tatami.onnx.operators.movement import MOVEMENT
from tatami.onnx.values import Value


def _pad(m: Importer, n: OnnxNode) -> list[Value]:
    """ONNX's Pad; the widths may be [1, 2 * rank]."""
    pads = m.known(m.value(n.inputs[1]))
    if pads is None or pads.ndim == 1:
        return MOVEMENT["Pad"](m, n)
    name = f"{n.inputs[1]} in one row"
    m.values[name] = Value(array=pads.reshape(-1))
    return MOVEMENT["Pad"](m, replace(n, inputs=(n.inputs[0], name, *n.inputs[2:])))


def _range(m: Importer, n: OnnxNode) -> list[Value]:
    """Range whose bounds may have shape [1], with step 1 by default."""
    names = []
    for i in range(3):
        name = f"range {i} of {n.outputs[0]}"
        if n.has(i):
            value = m.value(n.inputs[i])
            if value.array is None and value.sizes is None:
                value = m.result(Num(m, m.data(value)).reshape().tensor)
            elif value.array is not None:
                value = Value(array=value.array.reshape(()))
        else:
            dtype = m.type_of(m.value(n.inputs[0])).dtype
            value = Value(array=np.array(1, m.constants[m.number(1, dtype)].array.dtype))
        m.values[name] = value
        names.append(name)
    out = CREATION["Range"](m, replace(n, inputs=tuple(names)))
    for name in names:
        del m.values[name]
    return out


def _expand_dims(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    axis = int(known_number(m, n, 1, "axis"))
    return [m.result(m.one("unsqueeze", [x], {"axes": (axis % (len(m.shape(x)) + 1),)}))]


def _unique(m: Importer, n: OnnxNode) -> list[Value]:
    """Unique: values in the order of their first appearance, the position of each element among them, their counts."""
    values, _, inverse, counts = INDEXING["Unique"](m, replace(n, attrs={"sorted": 0, "axis": 0}))
    return [values, inverse, counts]


def _identity(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.value(n.inputs[0])]


def _embedding(m: Importer, n: OnnxNode) -> list[Value]:
    """Rows of a table; padding_idx and scale_grad_by_freq only concern gradients."""
    return [m.result(m.one("take", [m.operand(n, 0), m.operand(n, 1)], {"axis": 0}))]


def _all_finite(m: Importer, n: OnnxNode) -> list[Value]:
    """True if no element of any operand is infinite or NaN, or only one of these is tested."""
    if n.attr("isinf_only", 0) and n.attr("isnan_only", 0):
        raise unsupported(m, "IsAllFinite with isinf_only and isnan_only", "give one of them")
    whole: Num | None = None
    for i in range(len(n.inputs)):
        x = Num(m, m.operand(n, i))
        if n.attr("isinf_only", 0) or n.attr("isnan_only", 0):
            fine = x.fn("isinf" if n.attr("isinf_only", 0) else "isnan").fn("not")
        else:
            fine = x.fn("isfinite")
        fine = fine.fn("reduce_and", axes=tuple(range(len(x.shape))))
        whole = fine if whole is None else whole.fn("and", fine)
    assert whole is not None
    return [m.result(whole.tensor)]


def _unfold(m: Importer, n: OnnxNode) -> list[Value]:
    """All windows of `size` along an axis, `step` apart; the window is the last axis."""
    x = Num(m, m.operand(n, 0))
    axis, size, step = n.attr("dim", -1) % len(x.shape), n.attr("size"), n.attr("step", 1)
    count = floordiv(x.shape[axis] - size, expr(step)) + 1
    places = (position(m, count) * step).unsqueeze(1) + position(m, expr(size))
    windows = Num(m, m.one("take", [x.tensor, places.tensor], {"axis": axis}))
    order = [i for i in range(len(x.shape) + 1) if i != axis + 1]
    return [m.result(windows.permute(*order, axis + 1).tensor)]


def _bias_dropout(m: Importer, n: OnnxNode) -> list[Value]:
    """dropout(data + bias) + residual, and the mask; without training nothing is dropped."""
    bitmask, biased = n.op.startswith("Bitmask"), "Bias" in n.op
    if bitmask and n.wants(1):
        raise unsupported(m, f"{n.op} with its mask as a result", "leave the mask out, or use Dropout")
    name = f"{n.inputs[0]} with its bias"
    m.values[name] = m.result(m.joined("add", m.operand(n, 0), m.operand(n, 1))) if biased else m.value(n.inputs[0])
    ratio, training = (n.inputs[i] if n.has(i) else "" for i in ((3, 4) if biased else (1, 2)))
    dropped, *mask = MOVEMENT["Dropout"](m, replace(n, inputs=(name, ratio, training)))
    if biased and n.has(2):
        dropped = m.result(m.joined("add", m.data(dropped), m.operand(n, 2)))
    return [dropped, *mask]


def _distances(m: Importer, n: OnnxNode) -> list[Value]:
    """Euclidean distances of the rows of a [M, N] and b [K, N], or their squares: a a' + b b' - 2 a b'."""
    metric = n.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise unsupported(m, f"CDist with the metric {metric}", "use euclidean or sqeuclidean")
    a, b = Num(m, m.operand(n, 0)), Num(m, m.operand(n, 1))
    product = Num(m, m.one("matmul", [a.tensor, b.permute(1, 0).tensor]))
    rows, columns = (t.fn("square").fn("reduce_sum", axes=(1,)) for t in (a, b))
    out = (rows.unsqueeze(1) + columns - product * 2.0).fn("max", 0.0)
    return [m.result((out.fn("sqrt") if metric == "euclidean" else out).tensor)]


def _gated_add(m: Importer, n: OnnxNode) -> list[Value]:
    """x + y * gate, the gate one number per row; by a projection, sigmoid(gate @ weight) in fp32."""
    x, y, gate = (Num(m, m.operand(n, i)) for i in range(3))
    if n.has(3):
        weight = m.cast(m.operand(n, 3), DType.fp32)
        gate = Num(m, m.one("matmul", [gate.cast(DType.fp32).tensor, weight])).cast(x.dtype)
        gate = gate.cast(DType.fp32).fn("sigmoid").cast(x.dtype)
    return [m.result((x + y * gate).tensor)]


def _scaled_silu(m: Importer, n: OnnxNode) -> list[Value]:
    """silu(scale * x), with the scale an operand or `alpha`; the sigmoid is computed in fp32."""
    x = Num(m, m.operand(n, 0))
    if n.has(1):
        scale = Num(m, m.operand(n, 1)).reshape().cast(DType.fp32)
    else:
        scale = Num(m, m.number(float(n.attr("alpha", 1.0)), DType.fp32))
    z = (x.cast(DType.fp32) * scale).cast(x.dtype)
    return [m.result((z * z.cast(DType.fp32).fn("sigmoid").cast(x.dtype)).tensor)]


def _linear_attention_gate(m: Importer, n: OnnxNode) -> list[Value]:
    """decay_scale * softplus(a + dt_bias), and sigmoid(b); both computed in fp32."""
    a, bias, scale = (Num(m, m.operand(n, i)) for i in range(3))
    out = [(scale.cast(DType.fp32) * (a.cast(DType.fp32) + bias.cast(DType.fp32)).fn("softplus")).cast(a.dtype)]
    if n.has(3):
        out.append(Num(m, m.operand(n, 3)).cast(DType.fp32).fn("sigmoid").cast(a.dtype))
    return [m.result(t.tensor) for t in out]


PLAIN: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Trilu": MOVEMENT["Trilu"],
    "Pad": _pad,
    "GridSample": SAMPLING["GridSample"],
    "GatherND": INDEXING["GatherND"],
    "Range": _range,
    "ExpandDims": _expand_dims,
    "Unique": _unique,
    "SampleOp": _identity,
    "TorchEmbedding": _embedding,
    "IsAllFinite": _all_finite,
    "UnfoldTensor": _unfold,
    **dict.fromkeys(("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout"), _bias_dropout),
    "CDist": _distances,
    "GatedAdd": _gated_add,
    "ScaledSiLU": _scaled_silu,
    "LinearAttentionGate": _linear_attention_gate,
}
"""Handlers of this file by operator."""
