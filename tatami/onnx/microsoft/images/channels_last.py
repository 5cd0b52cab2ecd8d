"""Domain com.ms.internal.nhwc: ONNX's operators on images whose channels are the last axis, the form in which ONNX Runtime
rewrites a graph for machines that prefer this order. Each is its plain form between two transpositions, which fusion folds
into the reads; filters, boxes and grids keep their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tatami.onnx.images.pool import POOL
from tatami.onnx.images.resize import RESIZE
from tatami.onnx.images.sampling import SAMPLING
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.images.convolution import with_channels_first
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known
from tatami.onnx.operators.contraction import CONTRACTION
from tatami.onnx.operators.movement import MOVEMENT
from tatami.onnx.operators.normalization import NORMALIZATION
from tatami.onnx.operators.quantize import QUANTIZE
from tatami.onnx.values import Value

Handler: TypeAlias = Callable[[Importer, OnnxNode], list[Value] | None]


def _last(handler: Handler) -> Callable[[Importer, OnnxNode], list[Value]]:
    return lambda m, n: with_channels_first(m, n, handler)


def _resize(m: Importer, n: OnnxNode) -> list[Value]:
    """Resize whose scales and sizes are in the order of the image's own axes."""
    inputs = list(n.inputs)
    rank = len(m.shape(m.operand(n, 0)))
    order = [0, rank - 1, *range(1, rank - 1)]
    for position, what in ((1, "roi"), (2, "scales"), (3, "sizes")):
        given = known(m, n, position, what)
        if given is not None and given.size and "axes" not in n.attrs:
            rows = given.reshape(-1, rank)[:, order]
            inputs[position] = f"{what} of {n.outputs[0]}, channels first"
            m.values[inputs[position]] = Value(array=np.ascontiguousarray(rows.reshape(-1)))
    attrs = dict(n.attrs)
    if "axes" in attrs:
        attrs["axes"] = [order.index(a % rank) for a in attrs["axes"]]
    return with_channels_first(m, replace(n, inputs=tuple(inputs), attrs=attrs), RESIZE["Resize"])


CHANNELS_LAST: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    **{op: _last(CONTRACTION[op]) for op in ("Conv", "ConvTranspose")},
    **{
        op: _last(POOL[op]) for op in ("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    },
    **{op: _last(NORMALIZATION[op]) for op in ("BatchNormalization", "InstanceNormalization", "LRN")},
    **{op: _last(MOVEMENT[op]) for op in ("DepthToSpace", "SpaceToDepth")},
    "GridSample": _last(SAMPLING["GridSample"]),
    "QLinearConv": _last(QUANTIZE["QLinearConv"]),
    "Resize": _resize,
}
"""Handlers of this file by operator."""
