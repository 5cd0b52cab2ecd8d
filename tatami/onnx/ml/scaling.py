"""Scaler, Normalizer, Imputer, Binarizer and FeatureVectorizer: arithmetic on columns."""

from __future__ import annotations

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value


def _columns(m: Importer, x: Num, values: np.ndarray, name: str) -> Num:
    """One number, or one for each column of x. Raises InvalidAttribute for another count."""
    width = x.shape[-1] if x.shape else expr(1)
    if len(values) not in (1, width.as_int() or len(values)):
        raise fail(
            "InvalidAttribute", m.site, f"{len(values)} numbers of {name} for {width} columns", "give one, or one for each"
        )
    return Num(m, m.add_constant(values if len(values) > 1 else values.reshape(())))


def scaler(m: Importer, n: OnnxNode) -> list[Value]:
    """Scaler: (x - offset) * scale, computed in fp32 (fp64 if x is), as fp32."""
    x = Num(m, m.operand(n, 0))
    x = x if x.dtype == DType.fp64 else x.cast(DType.fp32)
    offset, scale = (
        np.asarray(n.attr(name) or [default], numpy_dtype(x.dtype)) for name, default in (("offset", 0), ("scale", 1))
    )
    y = x.fn("sub", _columns(m, x, offset, "offset")).fn("mul", _columns(m, x, scale, "scale"))
    return [m.result(y.cast(DType.fp32).tensor)]


def normalizer(m: Importer, n: OnnxNode) -> list[Value]:
    """Normalizer: each row divided by its largest element, its sum of magnitudes, or its length; unchanged if that is 0."""
    x = Num(m, m.operand(n, 0))
    if len(x.shape) not in (1, 2):
        raise unsupported(m, f"Normalizer of rank {len(x.shape)}", "give rows of features")
    x = x if x.dtype == DType.fp64 else x.cast(DType.fp32)
    axis = len(x.shape) - 1
    match n.attr("norm", "MAX"):
        case "MAX":
            size = x.fn("reduce_max", axes=(axis,), keepdims=True)
        case "L1":
            size = x.fn("abs").fn("reduce_sum", axes=(axis,), keepdims=True)
        case "L2":
            size = (x * x).fn("reduce_sum", axes=(axis,), keepdims=True).fn("sqrt")
        case other:
            raise fail("InvalidAttribute", m.site, f"norm {other}", "give MAX, L1 or L2")
    y = x / size.fn("eq", 0.0).where(Num(m, m.number(1.0, x.dtype)), size)
    return [m.result(y.cast(DType.fp32).tensor)]


def imputer(m: Importer, n: OnnxNode) -> list[Value]:
    """Imputer: elements equal to the replaced value (NaN too) become the imputed value of their column, or the common one."""
    x = Num(m, m.operand(n, 0))
    is_float = x.dtype.is_float
    values = np.asarray(n.attr("imputed_value_floats" if is_float else "imputed_value_int64s") or [], numpy_dtype(x.dtype))
    if not len(values):
        raise fail("InvalidAttribute", m.site, f"no imputed values for {x.dtype}", "give them in the dtype of the input")
    replaced = n.attr("replaced_value_float", 0.0) if is_float else n.attr("replaced_value_int64", 0)
    is_missing = x.fn("isnan") if is_float and np.isnan(replaced) else x.fn("eq", replaced)
    return [m.result(is_missing.where(_columns(m, x, values, "imputed values"), x).tensor)]


def binarizer(m: Importer, n: OnnxNode) -> list[Value]:
    """Binarizer: 1 for elements above the threshold, else 0."""
    x = Num(m, m.operand(n, 0))
    return [m.result(x.fn("gt", float(n.attr("threshold", 0.0))).cast(x.dtype).tensor)]


def feature_vectorizer(m: Importer, n: OnnxNode) -> list[Value]:
    """FeatureVectorizer: the inputs as fp32, joined along the columns, each cropped or padded with 0 to its width."""
    widths = [int(v) for v in n.attr("inputdimensions") or []]
    parts = []
    for position, name in enumerate(n.inputs):
        x = Num(m, m.data(m.value(name))).cast(DType.fp32)
        x = x.unsqueeze(0) if len(x.shape) == 1 else x
        if widths:
            if len(widths) != len(n.inputs):
                raise fail(
                    "InvalidAttribute", m.site, f"{len(widths)} inputdimensions for {len(n.inputs)} inputs", "give one for each"
                )
            x = _of_width(m, x, widths[position])
        parts.append(x.tensor)
    return [m.result(m.one("concat", parts, {"axis": 1}) if len(parts) > 1 else parts[0])]


def _of_width(m: Importer, x: Num, width: int) -> Num:
    have = x.shape[1].as_int()
    if have is None or have == width:
        return x
    if have > width:
        return x.part(1, 0, width)
    rows: Expr = x.shape[0]
    filling = Num(m, m.number(0.0, DType.fp32)).fn("expand", shape=(rows, width - have))
    return Num(m, m.one("concat", [x.tensor, filling.tensor], {"axis": 1}))
