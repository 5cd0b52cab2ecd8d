"""Attributes whose legal values ONNX lists: any other value is refused, so that it is not taken for one of them
(onnx/docs/Operators.md, Changelog.md)."""

from __future__ import annotations

import onnx

from tatami.core.diagnostic import fail

_REDUCTION = ("none", "add", "mul", "max", "min")
_DIRECTION = ("forward", "reverse", "bidirectional")
_LOSS = ("none", "sum", "mean")
_ALLOWED: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "auto_pad"): ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("", "round_mode"): ("up", "down", "nearest"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("RNN", "direction"): _DIRECTION,
    ("GRU", "direction"): (*_DIRECTION, "foward"),  # the spelling of the default in version 1
    ("LSTM", "direction"): _DIRECTION,
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
    ("Upsample", "mode"): ("nearest", "linear", "bilinear"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("ScatterElements", "reduction"): _REDUCTION,
    ("ScatterND", "reduction"): _REDUCTION,
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("GridSample", "mode"): ("bilinear", "bicubic", "linear", "cubic", "nearest"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("NegativeLogLikelihoodLoss", "reduction"): _LOSS,
    ("SoftmaxCrossEntropyLoss", "reduction"): _LOSS,
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Momentum", "mode"): ("standard", "nesterov"),
}  # fmt: skip
"""Legal values by (operator, attribute); an empty operator stands for every operator."""


def check_value(op: str, a: onnx.AttributeProto, at: str) -> None:
    """Raise InvalidAttribute for a word that is not a value of the operator's attribute."""
    allowed = _ALLOWED.get((op, a.name)) or _ALLOWED.get(("", a.name))
    if allowed is None or a.type != onnx.AttributeProto.STRING or a.ref_attr_name:
        return
    word = a.s.decode("utf-8", "replace")
    if word not in allowed:
        raise fail("InvalidAttribute", at, f"{op} with {a.name}={word!r}", f"use one of {', '.join(dict.fromkeys(allowed))}")
