"""Contractions, pools, norms, reductions, softmax, indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, ceildiv, expr, floordiv, maximum
from tatami.core.tensor import dtype_of
from tatami.onnx.importer import Importer, OnnxNode
from tatami.onnx.ops_shape import data_dependent, numbers
from tatami.onnx.values import Value

Pads = tuple[tuple[Expr, Expr], ...]


def _inputs(m: Importer, n: OnnxNode) -> list[str]:
    """Tensors of all operands; an absent one in the middle stays empty, absent ones at the end are dropped."""
    names = list(n.inputs)
    while names and not names[-1]:
        names.pop()
    return [m.data(m.value(i)) if i else "" for i in names]


def _padding(
    m: Importer, n: OnnxNode, sizes: tuple[Expr, ...], kernel: list[int], stride: list[int], dilation: list[int]
) -> Pads:
    rank = len(kernel)
    auto = n.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = []
        for i in range(rank):
            windows = ceildiv(sizes[i], expr(stride[i]))
            total = maximum(0, (windows - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - sizes[i])
            small, large = floordiv(total, expr(2)), total - floordiv(total, expr(2))
            out.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return tuple(out)
    pads = n.attr("pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
    return tuple((expr(pads[i]), expr(pads[i + rank])) for i in range(rank))


def _conv(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = _inputs(m, n)
    weight = m.tensors[tensors[1]].shape
    kernel = [s.as_int() or 0 for s in weight[2:]]
    rank = len(kernel)
    stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    sizes = m.tensors[tensors[0]].shape[2:]
    attrs: dict[str, Any] = {
        "stride": stride,
        "dilation": dilation,
        "padding": _padding(m, n, sizes, kernel, stride, dilation),
        "groups": n.attr("group", 1),
    }
    return [m.result(m.emit("conv", tensors, attrs)[0])]


def _conv_transpose(m: Importer, n: OnnxNode) -> list[Value]:
    tensors = _inputs(m, n)
    kernel = [s.as_int() or 0 for s in m.tensors[tensors[1]].shape[2:]]
    rank = len(kernel)
    stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
    extra = n.attr("output_padding", [0] * rank)
    sizes = m.tensors[tensors[0]].shape[2:]
    pads = n.attr("pads", [0] * (2 * rank))
    padding: list[tuple[Expr, Expr]] = [(expr(pads[i]), expr(pads[i + rank])) for i in range(rank)]
    auto = n.attr("auto_pad", "NOTSET")
    wanted = n.attr("output_shape")
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            size = expr(wanted[-rank:][i]) if wanted is not None else sizes[i] * stride[i]
            total = (sizes[i] - 1) * stride[i] + extra[i] + (kernel[i] - 1) * dilation[i] + 1 - size
            half = floordiv(total, expr(2))
            padding[i] = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
    attrs = {"stride": stride, "dilation": dilation, "padding": padding, "output_padding": extra, "groups": n.attr("group", 1)}
    return [m.result(m.emit("conv_transpose", tensors, attrs)[0])]


def _pool(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.data(m.value(n.inputs[0]))
        kernel = n.attr("kernel_shape")
        rank = len(kernel)
        stride, dilation = n.attr("strides", [1] * rank), n.attr("dilations", [1] * rank)
        if n.attr("storage_order", 0) or len([o for o in n.outputs if o]) > 1:
            raise fail(
                "UnsupportedModel", m.site, f"{n.op} with column-major indices or an index output", "use the first output only"
            )
        attrs = {
            "kernel": kernel,
            "stride": stride,
            "dilation": dilation,
            "padding": _padding(m, n, m.tensors[x].shape[2:], kernel, stride, dilation),
            "ceil_mode": bool(n.attr("ceil_mode", 0)),
        }
        if op == "avg_pool":
            attrs["count_include_pad"] = bool(n.attr("count_include_pad", 0))
        if op == "lp_pool":
            attrs["p"] = n.attr("p", 2)
        return [m.result(m.emit(op, [x], attrs)[0])]

    return handler


def _global_pool(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.data(m.value(n.inputs[0]))
        axes = list(range(2, len(m.tensors[x].shape)))
        return [m.result(m.emit(op, [x], {"axes": axes, "keepdims": True})[0])]

    return handler


def _gemm(m: Importer, n: OnnxNode) -> list[Value]:
    attrs = {
        "trans_a": bool(n.attr("transA", 0)),
        "trans_b": bool(n.attr("transB", 0)),
        "alpha": float(n.attr("alpha", 1.0)),
        "beta": float(n.attr("beta", 1.0)),
    }
    return [m.result(m.emit("gemm", _inputs(m, n), attrs)[0])]


def _plain(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        return [m.result(t) for t in m.emit(op, _inputs(m, n))]

    return handler


def _softmax(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x = m.data(m.value(n.inputs[0]))
        shape = m.tensors[x].shape
        if m.opset >= 13:
            return [m.result(m.emit(op, [x], {"axis": n.attr("axis", -1)})[0])]
        from tatami.core.expr import product

        axis = n.attr("axis", 1) % max(1, len(shape))
        flat = m.emit("reshape", [x], {"shape": (product(shape[:axis]), product(shape[axis:]))})[0]
        out = m.emit(op, [flat], {"axis": 1})[0]
        return [m.result(m.emit("reshape", [out], {"shape": shape})[0])]

    return handler


def _batch_norm(m: Importer, n: OnnxNode) -> list[Value]:
    if n.attr("training_mode", 0):
        raise fail("UnsupportedModel", m.site, "BatchNormalization in training mode", "export the model in evaluation mode")
    return [m.result(m.emit("batch_norm", _inputs(m, n)[:5], {"eps": float(n.attr("epsilon", 1e-5))})[0])]


def _layer_norm(m: Importer, n: OnnxNode) -> list[Value]:
    if len([o for o in n.outputs if o]) > 1:
        raise fail("UnsupportedModel", m.site, "LayerNormalization with its statistics as outputs", "use the first output only")
    attrs = {"axis": n.attr("axis", -1), "eps": float(n.attr("epsilon", 1e-5))}
    op = "layer_norm" if n.op == "LayerNormalization" else "rms_norm"
    return [m.result(m.emit(op, _inputs(m, n), attrs)[0])]


def _instance_norm(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(m.emit("instance_norm", _inputs(m, n), {"eps": float(n.attr("epsilon", 1e-5))})[0])]


def _group_norm(m: Importer, n: OnnxNode) -> list[Value]:
    attrs = {"groups": n.attr("num_groups"), "eps": float(n.attr("epsilon", 1e-5))}
    return [m.result(m.emit("group_norm", _inputs(m, n), attrs)[0])]


_REDUCE = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod", "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceSumSquare": "reduce_sum_square",
    "ReduceLogSum": "reduce_log_sum", "ReduceLogSumExp": "reduce_log_sum_exp",
}  # fmt: skip


def _reduce(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    axes = numbers(m, n, 1, "axes")
    if not axes and n.attr("noop_with_empty_axes", 0):
        return [m.result(x)]
    attrs = {"axes": axes or None, "keepdims": bool(n.attr("keepdims", 1))}
    return [m.result(m.emit(_REDUCE[n.op], [x], attrs)[0])]


def _arg(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    attrs = {"axis": n.attr("axis", 0), "keepdims": bool(n.attr("keepdims", 1)), "last": bool(n.attr("select_last_index", 0))}
    return [m.result(m.emit("argmax" if n.op == "ArgMax" else "argmin", [x], attrs)[0])]


def _cumulative(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    axis = numbers(m, n, 1, "axis") or [0]
    attrs = {"axis": axis[0], "exclusive": bool(n.attr("exclusive", 0)), "reverse": bool(n.attr("reverse", 0))}
    return [m.result(m.emit("cumsum" if n.op == "CumSum" else "cumprod", [x], attrs)[0])]


def _gather_elements(m: Importer, n: OnnxNode) -> list[Value]:
    x, index = _inputs(m, n)
    return [m.result(m.emit("gather", [x, index], {"axis": n.attr("axis", 0) % len(m.tensors[x].shape)})[0])]


def _topk(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    k = numbers(m, n, 1, "k")
    if not k:
        raise data_dependent(m, n, "k")
    attrs = {"k": k[0], "axis": n.attr("axis", -1), "largest": bool(n.attr("largest", 1))}
    return [m.result(t) for t in m.emit("topk", [x], attrs)]


def _gelu(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    return [m.result(m.emit("gelu", [x], {"approximate": n.attr("approximate", "none")})[0])]


def _leaky(op: str, attribute: str, default: float, ours: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        return [m.result(m.emit(op, [m.data(m.value(n.inputs[0]))], {ours: float(n.attr(attribute, default))})[0])]

    return handler


def _nonzero(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.data(m.value(n.inputs[0]))
    return [m.result(m.emit("nonzero", [x], {"size": f"NZ{len(m.nodes)}"})[0])]


def _range(m: Importer, n: OnnxNode) -> list[Value]:
    values = [m.value(i) for i in n.inputs]
    sizes = [m.sizes(v) for v in values]
    kinds = [np.asarray(v.array).dtype if v.array is not None else np.dtype(np.int64) for v in values]
    if any(s is None for s in sizes) or any(k.kind != "i" for k in kinds):
        raise data_dependent(m, n, "start, limit or delta")
    start, limit, step = (s[0] for s in sizes if s is not None)
    if step.as_int() is None or step.as_int() == 0:
        raise data_dependent(m, n, "delta")
    delta = step.as_int() or 1
    count = maximum(0, ceildiv(limit - start, expr(delta)) if delta > 0 else ceildiv(start - limit, expr(-delta)))
    dtype = dtype_of(np.zeros(0, kinds[0]))
    return [m.result(m.emit("iota", [], {"shape": (count,), "axis": 0, "dtype": dtype, "start": start, "step": delta})[0])]


NN: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _plain("matmul"),
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "LpPool": _pool("lp_pool"),
    "GlobalAveragePool": _global_pool("reduce_mean"),
    "GlobalMaxPool": _global_pool("reduce_max"),
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Hardmax": _softmax("hardmax"),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    **dict.fromkeys(_REDUCE, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _cumulative,
    "GatherElements": _gather_elements,
    "TopK": _topk,
    "Gelu": _gelu,
    "LeakyRelu": _leaky("leaky_relu", "alpha", 0.01, "alpha"),
    "Elu": _leaky("elu", "alpha", 1.0, "alpha"),
    "NonZero": _nonzero,
    "Range": _range,
}
