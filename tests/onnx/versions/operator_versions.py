"""Every version of every operator of ONNX's own domain, and the recipe that makes nodes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.onnx.versions import version_recipes as r
from tests.onnx.versions.version_case import IMAGE, INTS, RNG, TRUTH, Case, X, Y, consumed, fixed, scalar

_SMALL = X[0, 0]
_BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]], np.float32)
_SCORES = np.array([[[0.9, 0.75, 0.6]]], np.float32)
_LABELS = np.array([[1, 0, 2, 1], [2, 2, 0, 1]])
_COMPLEX = RNG.standard_normal((2, 3, 4)).astype(np.float32)

Recipe = Callable[[str, int], Iterator[Case]]
RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(
        ["Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Transpose", "NonZero"],
        r.unary,
    ),
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"], r.limited),
    **dict.fromkeys(["Max", "Min", "Mean", "Sum"], r.variadic),
    **dict.fromkeys([f"Reduce{w}" for w in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]], r.reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), r.softmax),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), r.by_axes),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), r.pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), r.global_pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), r.conv),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), r.recurrent),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), r.quantize),
    **dict.fromkeys(("Scatter", "ScatterElements"), r.scatter),
    **dict.fromkeys(("Shape", "Size"), r.shape),
    **dict.fromkeys(["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"], r.random),
    "Pad": r.pad, "Slice": r.slice, "Split": r.split, "Upsample": r.upsample, "Resize": r.resize, "BatchNormalization": r.batch_norm,
    "Dropout": r.dropout, "Cast": r.cast, "Clip": r.clip, "Concat": r.concat, "Gemm": r.gemm, "Reshape": r.reshape, "Tile": r.tile,
    "TopK": r.top_k, "ScatterND": r.scatter_nd, "Constant": r.constant, "RoiAlign": r.roi_align, "GridSample": r.grid_sample,
    "DFT": r.dft, "GroupNormalization": r.group_norm, "Selu": r.selu, "PRelu": r.prelu,
    "ArgMax": r.attribute_axis(X, axis=2, keepdims=0), "ArgMin": r.attribute_axis(X),
    "BitShift": r.attribute_axis(np.array([1, 9], np.uint8), np.array([3, 1], np.uint8), direction="LEFT"),
    "CastLike": r.one_of(Case([X, np.zeros(1, np.int32)], want=[X.astype(np.int32)])),
    "Compress": r.attribute_axis(X, np.array([True, False, True]), axis=1),
    "ConstantOfShape": r.one_of(Case([fixed(2, 3)], {"value": helper.make_tensor("v", TensorProto.INT32, [1], [7])})),
    "CumSum": r.attribute_axis(X, scalar(2), reverse=1),
    "DepthToSpace": r.attribute_axis(IMAGE, blocksize=2), "SpaceToDepth": r.attribute_axis(IMAGE, blocksize=2),
    "Det": r.attribute_axis(IMAGE[0, :, :3, :3].copy()),
    "Einsum": r.attribute_axis(X, Y, equation="abcd,abce->abde"),
    "Expand": r.attribute_axis(X[:, :1], fixed(2, 3, 4, 5)), "EyeLike": r.attribute_axis(_SMALL, k=1),
    "Flatten": r.attribute_axis(X, axis=2),
    "Gather": r.attribute_axis(X, np.array([[0, 2]]), axis=1), "GatherElements": r.attribute_axis(X, np.argsort(X, 1), axis=1),
    "GatherND": r.attribute_axis(X, np.array([[0, 1], [1, 2]])),
    "GreaterOrEqual": r.attribute_axis(X, Y), "LessOrEqual": r.attribute_axis(X, Y),
    "InstanceNormalization": lambda op, v: iter([Case([X, X[0, :, 0, 0].copy(), Y[0, :, 0, 0].copy()], consumed(op, v))]),
    "LRN": r.attribute_axis(X, size=3), "LpNormalization": r.attribute_axis(X, axis=1),
    "MatMul": r.attribute_axis(X, Y.transpose(0, 1, 3, 2).copy()),
    "MaxUnpool": r.attribute_axis(np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2]),
    "MeanVarianceNormalization": r.attribute_axis(X),
    "Mod": r.attribute_axis(INTS, np.abs(INTS) + 1),
    "NegativeLogLikelihoodLoss": r.attribute_axis(X[:, :, 0].transpose(0, 2, 1)[:, :3].copy(), _LABELS[:, :3]),
    "NonMaxSuppression": r.one_of(Case([_BOXES, _SCORES, fixed([2]), fixed([0.5], dtype=np.float32)])),
    "OneHot": r.attribute_axis(np.array([1, 0, 2]), scalar(3), np.array([0, 5], np.float32)),
    "QLinearMatMul": r.one_of(Case([
        RNG.integers(0, 255, (2, 4)).astype(np.uint8), scalar(0.1, np.float32), scalar(120, np.uint8),
        RNG.integers(0, 255, (4, 3)).astype(np.uint8), scalar(0.05, np.float32), scalar(100, np.uint8),
        scalar(0.5, np.float32), scalar(118, np.uint8)])),
    "Range": r.one_of(Case([scalar(1.0, np.float32), scalar(5.0, np.float32), scalar(1.5, np.float32)])),
    "ReverseSequence": r.attribute_axis(_COMPLEX, np.array([2, 1, 2])),
    "SoftmaxCrossEntropyLoss": r.attribute_axis(X[:, :, 0].transpose(0, 2, 1)[:, :3].copy(), _LABELS[:, :3]),
    "Unique": r.one_of(Case([np.array([2, 1, 1, 3], np.float32)], outputs=4)),
    "Where": r.attribute_axis(TRUTH, X, Y),
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
