"""ONNX operators and what imports them: one table, filled by the ops_*.py files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tatami.onnx.importer import Importer, OnnxNode
from tatami.onnx.ops_elementwise import ELEMENTWISE
from tatami.onnx.ops_nn import NN
from tatami.onnx.ops_shape import SHAPE
from tatami.onnx.values import Value

Handler: TypeAlias = Callable[[Importer, OnnxNode], list[Value]]

HANDLERS: dict[str, Handler] = {**ELEMENTWISE, **SHAPE, **NN}
