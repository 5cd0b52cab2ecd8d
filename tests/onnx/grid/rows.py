"""The table: by operator, its rows. `WITHOUT` says which operators have none, and why."""

from __future__ import annotations

from tests.onnx.grid.row import Row
from tests.onnx.grid.rows_elementwise import ELEMENTWISE
from tests.onnx.grid.rows_models import MODELS
from tests.onnx.grid.rows_reductions import REDUCTIONS
from tests.onnx.grid.rows_shape import SHAPE
from tests.onnx.grid.rows_windows import WINDOWS

ROWS: dict[str, tuple[Row, ...]] = {**ELEMENTWISE, **WINDOWS, **REDUCTIONS, **SHAPE, **MODELS}
