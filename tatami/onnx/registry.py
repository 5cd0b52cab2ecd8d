"""Handlers of ONNX operators: one table, filled by the ops_*.py files. A handler returns None for forms that the operator's
function body covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tatami.onnx.control import CONTROL as CONTROL
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.table import MICROSOFT, NCHWC, NHWC, PLAIN
from tatami.onnx.ml.table import ML
from tatami.onnx.node import OnnxNode
from tatami.onnx.ops_activation import ACTIVATION
from tatami.onnx.ops_attention import ATTENTION
from tatami.onnx.ops_cast import CAST
from tatami.onnx.ops_contraction import CONTRACTION
from tatami.onnx.ops_creation import CREATION
from tatami.onnx.ops_elementwise import ELEMENTWISE
from tatami.onnx.ops_experimental import EXPERIMENTAL
from tatami.onnx.ops_indexing import INDEXING
from tatami.onnx.ops_linear_algebra import LINEAR_ALGEBRA
from tatami.onnx.ops_movement import MOVEMENT
from tatami.onnx.ops_normalization import NORMALIZATION
from tatami.onnx.ops_pool import POOL
from tatami.onnx.ops_quantize import QUANTIZE
from tatami.onnx.ops_recurrent import RECURRENT
from tatami.onnx.ops_reduction import REDUCTION
from tatami.onnx.ops_resize import RESIZE
from tatami.onnx.ops_roi import ROI
from tatami.onnx.ops_sampling import SAMPLING
from tatami.onnx.ops_sequence import SEQUENCE
from tatami.onnx.ops_shape import SHAPE
from tatami.onnx.ops_signal import SIGNAL
from tatami.onnx.ops_strings import STRINGS
from tatami.onnx.ops_text import TEXT
from tatami.onnx.ops_training import TRAINING
from tatami.onnx.values import Value

Handler: TypeAlias = Callable[[Importer, OnnxNode], list[Value] | None]

_DEFAULT: dict[str, Handler] = {
    **ELEMENTWISE, **CAST, **ACTIVATION, **SHAPE, **MOVEMENT, **CONTRACTION, **POOL, **NORMALIZATION, **REDUCTION, **CREATION,
    **INDEXING, **QUANTIZE, **RECURRENT, **RESIZE, **ATTENTION, **SEQUENCE, **SIGNAL, **SAMPLING, **ROI, **LINEAR_ALGEBRA,
    **EXPERIMENTAL, **TEXT, **STRINGS, **PLAIN,
}  # fmt: skip
HANDLERS: dict[str, dict[str, Handler]] = {
    "": _DEFAULT,
    "ai.onnx": _DEFAULT,
    "ai.onnx.ml": {**ML},
    "ai.onnx.preview.training": {**TRAINING},
    "com.microsoft": {**MICROSOFT},
    "com.microsoft.nchwc": {**NCHWC},
    "com.ms.internal.nhwc": {**NHWC},
}
"""Domain → operator → its handler."""


def handler_of(domain: str, op: str) -> Handler | None:
    """The handler of an operator, or None."""
    return HANDLERS.get(domain, {}).get(op)
