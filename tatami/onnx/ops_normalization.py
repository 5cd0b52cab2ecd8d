"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.expr import expr, floordiv, product
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice
from tatami.onnx.values import Value


def _softmax(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Before opset 13 over all axes from `axis` on."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.operand(n, 0)
        shape = m.shape(x)
        if m.opset >= 13:
            return [m.result(m.one(op, [x], {"axis": n.attr("axis", -1)}))]
        axis = n.attr("axis", 1) % max(1, len(shape))
        flat = m.one("reshape", [x], {"shape": (product(shape[:axis]), product(shape[axis:]))})
        return [m.result(m.one("reshape", [m.one(op, [flat], {"axis": 1})], {"shape": shape}))]

    return handler


def _batch_norm(m: Importer, n: OnnxNode) -> list[Value]:
    x, *rest = m.operands(n)[:5]
    attrs = {"eps": float(n.attr("epsilon", 1e-5))}
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
    return [m.result(t) for t in (y, *running)]


def _layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Mean and inverse deviation are results of their own in the dtype of the statistics."""
    tensors = m.operands(n)
    x = tensors[0]
    rank = len(m.shape(x))
    axis = n.attr("axis", -1) % rank
    eps = float(n.attr("epsilon", 1e-5))
    whole = m.shape(x)[axis:]
    for i, t in enumerate(tensors[1:], 1):
        if t and m.shape(t) != whole:
            tensors[i] = m.one("expand", [t], {"shape": whole})
    op = "layer_norm" if n.op == "LayerNormalization" else "rms_norm"
    results = [m.result(m.one(op, tensors, {"axis": axis, "eps": eps}))]
    if n.wants(1) or n.wants(2):
        stash = m.cast(x, element_dtype(n.attr("stash_type", 1), m.site))
        attrs = {"axes": list(range(axis, rank)), "keepdims": True}
        mean, variance = m.one("reduce_mean", [stash], attrs), m.one("variance", [stash], attrs)
        inverse = m.one("rsqrt", [m.one("add", [variance, m.number(eps, m.dtype(stash))])])
        results += [m.result(mean), m.result(inverse)]
    return results


def _instance_norm(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.one("instance_norm", m.operands(n), {"axis": 2, "eps": float(n.attr("epsilon", 1e-5))}))]


def _group_norm(m: Importer, n: OnnxNode) -> list[Value]:
    """Before opset 21 scale and bias belong to the groups."""
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
    """A norm of 0 gives 0."""
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
    (x,) = m.operands(n)
    attrs = {"axes": [a % len(m.shape(x)) for a in n.attr("axes", [0, 2, 3])], "keepdims": True}
    centred = m.joined("sub", x, m.one("reduce_mean", [x], attrs))
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
