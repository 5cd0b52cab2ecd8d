"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.core.expr import ONE, expr, floordiv, product
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, unsupported
from tatami.onnx.values import Value


def _softmax(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of Softmax, LogSoftmax or Hardmax; before opset 13 over all axes from `axis` on."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.operand(n, 0)
        if m.opset >= 13:
            return [m.result(m.one(op, [x], {"axis": n.attr("axis", -1)}))]
        return [m.result(softmax_from(m, op, x, n.attr("axis", 1)))]

    return handler


def softmax_from(m: Importer, op: str, x: str, axis: int) -> str:
    """A softmax over all axes from `axis` on, as one axis. If the axes after `axis` have one element, it is over `axis`
    itself: two views of open sizes would be a copy of the result."""
    shape = m.shape(x)
    axis %= max(1, len(shape))
    if shape and product(shape[axis + 1 :]) == ONE:
        return m.one(op, [x], {"axis": axis})
    flat = m.one("reshape", [x], {"shape": (product(shape[:axis]), product(shape[axis:]))})
    return m.one("reshape", [m.one(op, [flat], {"axis": 1})], {"shape": shape})


def _batch_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """BatchNormalization. `spatial` 0 (before opset 9): statistics of each feature, over the batch alone."""
    x, *rest = m.operands(n)[:5]
    attrs = {"eps": float(n.attr("epsilon", 1e-5))}
    if not n.attr("spatial", 1):
        return _batch_norm_of_features(m, n, x, rest)
    if not n.attr("training_mode", 0):
        return [m.result(m.one("batch_norm", [x, *(m.cast(t, m.dtype(x)) for t in rest)], attrs))]
    scale, bias, mean, variance = rest
    axes = [i for i in range(len(m.shape(x))) if i != 1]
    own = m.one("reduce_mean", [x], {"axes": axes}), m.one("variance", [x], {"axes": axes})
    y = m.one("batch_norm", [x, scale, bias, *own], attrs)
    momentum = float(n.attr("momentum", 0.9))
    running = []
    for old, new in zip((mean, variance), own, strict=True):
        dtype = m.dtype(old)
        kept = m.one("mul", [old, m.number(momentum, dtype)])
        running.append(m.one("add", [kept, m.one("mul", [m.cast(new, dtype), m.number(1 - momentum, dtype)])]))
    return [m.result(t) for t in (y, *running, *own)]  # before opset 14 the statistics of the batch are results too


def _batch_norm_of_features(m: Importer, n: OnnxNode, x: str, rest: list[str]) -> list[Value]:
    if n.attr("training_mode", 0):
        raise unsupported(m, "BatchNormalization in training with spatial=0", "export the model for inference")
    scale, bias, mean, variance = (Num(m, m.cast(t, m.dtype(x))) for t in rest)
    deviation = (variance + float(n.attr("epsilon", 1e-5))).fn("sqrt")
    return [m.result(((Num(m, x) - mean) / deviation * scale + bias).tensor)]


def _layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """LayerNormalization. Mean and inverse deviation are further results, in the dtype of the statistics."""
    stash = element_dtype(n.attr("stash_type", 1), m.site) if n.wants(1) or n.wants(2) else None
    op = "layer_norm" if n.op == "LayerNormalization" else "rms_norm"
    eps = float(n.attr("epsilon", 1e-5))
    y, mean, inverse = layer_norm(m, op, m.operands(n), axis=n.attr("axis", -1), eps=eps, statistics=stash)
    return [m.result(t) for t in (y, mean, inverse) if t]


def layer_norm(
    m: Importer, op: str, tensors: list[str], *, axis: int, eps: float, statistics: DType | None = None
) -> tuple[str, str, str]:
    """(result, mean, inverse deviation): layer_norm or rms_norm of x, scale and perhaps bias, from `axis` on. Mean and
    inverse deviation (for rms_norm only the inverse root mean square) are in the dtype `statistics`, or "" if it is
    None."""
    x = tensors[0]
    rank = len(m.shape(x))
    axis %= rank
    whole = m.shape(x)[axis:]
    spread = [m.expand(t, whole) if t and m.shape(t) != whole else t for t in tensors[1:]]
    y = m.one(op, [x, *spread], {"axis": axis, "eps": eps})
    if statistics is None:
        return y, "", ""
    stash = m.cast(x, statistics)
    attrs = {"axes": list(range(axis, rank)), "keepdims": True}
    mean = m.one("reduce_mean", [stash], attrs)
    power = m.one("variance", [stash], attrs) if op == "layer_norm" else m.one("reduce_mean", [m.one("square", [stash])], attrs)
    return y, mean, m.one("rsqrt", [m.one("add", [power, m.number(eps, statistics)])])


def _instance_norm(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("instance_norm", m.operands(n), {"axis": 2, "eps": float(n.attr("epsilon", 1e-5))}))]


def _group_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """GroupNormalization; before opset 21 scale and bias are per group."""
    x, *affine = m.operands(n)
    groups = n.attr("num_groups")
    channels = m.shape(x)[1]
    for i, t in enumerate(affine):
        if m.shape(t) == (expr(groups),) and channels != groups:
            wide = m.one(
                "expand", [m.one("unsqueeze", [t], {"axes": (1,)})], {"shape": (groups, floordiv(channels, expr(groups)))}
            )
            affine[i] = m.one("reshape", [wide], {"shape": (channels,)})
    return [m.result(m.one("group_norm", [x, *affine], {"groups": groups, "eps": float(n.attr("epsilon", 1e-5))}))]


def _lp_normalization(m: Importer, n: OnnxNode) -> list[Value]:
    """LpNormalization; a norm of 0 gives 0."""
    (x,) = m.operands(n)
    attrs = {"axes": (n.attr("axis", -1) % len(m.shape(x)),), "keepdims": True}
    norm = m.one("reduce_l1" if choice(m, n, "p", 2, (1, 2)) == 1 else "reduce_l2", [x], attrs)
    zero = m.one("eq", [norm, m.number(0, m.dtype(x))])
    safe = m.one("where", [zero, m.number(1, m.dtype(x)), norm])
    return [m.result(m.joined("div", x, safe))]


def _lrn(m: Importer, n: OnnxNode) -> list[Value]:
    attrs = {
        "size": n.attr("size"),
        "alpha": float(n.attr("alpha", 1e-4)),
        "beta": float(n.attr("beta", 0.75)),
        "bias": float(n.attr("bias", 1.0)),
    }
    return [m.result(m.one("lrn", m.operands(n), attrs))]


def _mean_variance(m: Importer, n: OnnxNode) -> list[Value]:
    """MeanVarianceNormalization. Before opset 9 `across_channels` replaces axes, and without `normalize_variance` x is only
    centred."""
    (x,) = m.operands(n)
    usual = [0, 1, 2, 3] if n.attr("across_channels", 0) else [0, 2, 3]
    attrs = {"axes": [a % len(m.shape(x)) for a in n.attr("axes", usual)], "keepdims": True}
    centred = m.joined("sub", x, m.one("reduce_mean", [x], attrs))
    if not n.attr("normalize_variance", 1):
        return [m.result(centred)]
    deviation = m.one("sqrt", [m.one("variance", [x], attrs)])
    deviation = m.one("add", [deviation, m.number(1e-9, m.dtype(x))])
    return [m.result(m.joined("div", centred, deviation))]


NORMALIZATION: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Hardmax": _softmax("hardmax"),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_normalization,
    "LRN": _lrn,
    "MeanVarianceNormalization": _mean_variance,
}
"""Handlers of this file by operator."""
