"""Handlers of ONNX operators: one table, joined from the files of operators/, images/, strings/, sequences/, subgraphs/, ml/ and
microsoft/. A handler returns None for forms that the operator's function body covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tatami.onnx.images.pool import POOL
from tatami.onnx.images.resize import RESIZE
from tatami.onnx.images.roi import ROI
from tatami.onnx.images.sampling import SAMPLING
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.table import MICROSOFT, NCHWC, NHWC, PLAIN
from tatami.onnx.ml.table import ML
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.activation import ACTIVATION
from tatami.onnx.operators.attention import ATTENTION
from tatami.onnx.operators.cast import CAST
from tatami.onnx.operators.contraction import CONTRACTION
from tatami.onnx.operators.creation import CREATION
from tatami.onnx.operators.elementwise import ELEMENTWISE
from tatami.onnx.operators.experimental import EXPERIMENTAL
from tatami.onnx.operators.gradient import GRADIENT
from tatami.onnx.operators.indexing import INDEXING
from tatami.onnx.operators.linear_algebra import LINEAR_ALGEBRA
from tatami.onnx.operators.movement import MOVEMENT
from tatami.onnx.operators.normalization import NORMALIZATION
from tatami.onnx.operators.quantize import QUANTIZE
from tatami.onnx.operators.recurrent import RECURRENT
from tatami.onnx.operators.reduction import REDUCTION
from tatami.onnx.operators.shape import SHAPE
from tatami.onnx.operators.signal import SIGNAL
from tatami.onnx.operators.training import TRAINING
from tatami.onnx.sequences.operators import SEQUENCE
from tatami.onnx.strings.ngrams import TEXT
from tatami.onnx.strings.operators import STRINGS
from tatami.onnx.subgraphs.control import CONTROL as CONTROL
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
    "ai.onnx.preview.training": {**TRAINING, **GRADIENT},
    "com.microsoft": {**MICROSOFT},
    "com.microsoft.nchwc": {**NCHWC},
    "com.ms.internal.nhwc": {**NHWC},
}
"""Domain → operator → its handler."""


def handler_of(domain: str, op: str) -> Handler | None:
    """The handler of an operator, or None."""
    return HANDLERS.get(domain, {}).get(op)
