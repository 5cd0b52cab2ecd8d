"""Pooling, and its inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.core.dtype import DType
from tatami.core.expr import expr, product
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import integers, unsupported
from tatami.onnx.operators.contraction import window_padding
from tatami.onnx.values import Value


def _pool(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.operand(n, 0)
        kernel = n.attr("kernel_shape")
        rank = len(kernel)
        stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
        attrs: dict[str, Any] = {
            "kernel": kernel,
            "stride": stride,
            "dilation": dilation,
            "padding": window_padding(m, n, m.shape(x)[2:], kernel, stride, dilation),
            "ceil_mode": bool(n.attr("ceil_mode", 0)) and n.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID"),
        }
        if op == "avg_pool":
            attrs["count_include_pad"] = bool(n.attr("count_include_pad", 0))
        if op == "lp_pool":
            p = n.attr("p", 2)  # a float in version 1
            if p != int(p):
                raise unsupported(m, f"LpPool with p={p}", "use a whole p")
            attrs["p"] = int(p)
        results = [m.result(m.one(op, [x], attrs))]
        if n.wants(1):
            index = m.one("max_pool_indices", [x], attrs)
            results.append(m.result(_column_major(m, index, x) if n.attr("storage_order", 0) else index))
        return results

    return handler


def _column_major(m: Importer, index: str, x: str) -> str:
    """Row-major positions of a whole tensor renumbered so that the first spatial axis counts fastest."""
    spatial = m.shape(x)[2:]

    def number(value: Any) -> str:
        return m.one("size", [], {"value": value})

    inside = m.one("mod", [index, number(product(spatial))])
    out = m.one("sub", [index, inside])
    for i, size in enumerate(spatial):
        coordinate = m.one("mod", [m.one("idiv", [inside, number(product(spatial[i + 1 :]))]), number(size)])
        out = m.one("add", [out, m.one("mul", [coordinate, number(product(spatial[:i]))])])
    return out


def _global_pool(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.operand(n, 0)
        axes = list(range(2, len(m.shape(x))))
        return [m.result(m.one(op, [x], {"axes": axes, "keepdims": True}))]

    return handler


def _global_lp_pool(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    attrs = {"axes": list(range(2, len(m.shape(x)))), "keepdims": True}
    p = n.attr("p", 2)
    if p in (1, 2):
        return [m.result(m.one("reduce_l1" if p == 1 else "reduce_l2", [x], attrs))]
    dtype = m.dtype(x)
    powers = m.one("pow", [m.one("abs", [x]), m.number(p, dtype)])
    return [m.result(m.one("pow", [m.one("reduce_sum", [powers], attrs), m.number(1.0 / p, dtype)]))]


def _max_unpool(m: Importer, n: OnnxNode) -> list[Value]:
    """MaxUnpool: each element at its position in the pooled tensor; a larger output shape adds zeros at the end."""
    x, index = m.operand(n, 0), m.operand(n, 1)
    kernel = n.attr("kernel_shape")
    rank = len(kernel)
    stride, pads = n.attr("strides", [1] * rank), n.attr("pads", [0] * (2 * rank))
    shape = m.shape(x)
    spatial = [(shape[2 + i] - 1) * stride[i] + kernel[i] - pads[i] - pads[i + rank] for i in range(rank)]
    full = (*shape[:2], *spatial)
    count = product(shape)
    zeros = m.one("full", [], {"shape": (product(full),), "value": 0, "dtype": m.dtype(x)})
    flat = [m.one("reshape", [t], {"shape": (count,)}) for t in (m.cast(index, DType.i64), x)]
    out = m.one("reshape", [m.one("scatter", [zeros, *flat], {"axis": 0})], {"shape": full})
    wanted = integers(m, n, 2, "output_shape")
    if wanted is not None and tuple(wanted) != tuple(full):
        if len(wanted) != len(full):
            raise unsupported(m, "MaxUnpool with an output shape of another rank", "give one size per axis")
        out = m.one("pad", [out], {"pads": tuple((expr(0), b - a) for a, b in zip(full, wanted, strict=True))})
    return [m.result(out)]


POOL: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "LpPool": _pool("lp_pool"),
    "GlobalAveragePool": _global_pool("reduce_mean"),
    "GlobalMaxPool": _global_pool("reduce_max"),
    "GlobalLpPool": _global_lp_pool,
    "MaxUnpool": _max_unpool,
}
"""Handlers of this file by operator."""
