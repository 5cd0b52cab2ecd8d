"""Handlers of ATen overloads: one table, filled by the families aten_*.py."""

from __future__ import annotations

from tatami.torch.aten_attention import ATTENTION
from tatami.torch.aten_contraction import CONTRACTION
from tatami.torch.aten_convert import CONVERT
from tatami.torch.aten_create import CREATE
from tatami.torch.aten_elementwise import ELEMENTWISE
from tatami.torch.aten_factors import FACTORS
from tatami.torch.aten_grid import GRID
from tatami.torch.aten_incomplete import INCOMPLETE
from tatami.torch.aten_index import INDEX
from tatami.torch.aten_matrix import MATRIX
from tatami.torch.aten_norm import NORM
from tatami.torch.aten_polynomial import POLYNOMIAL
from tatami.torch.aten_pool import POOL
from tatami.torch.aten_random import RANDOM
from tatami.torch.aten_reduce import REDUCE
from tatami.torch.aten_resize import RESIZE
from tatami.torch.aten_scatter import SCATTER
from tatami.torch.aten_special import SPECIAL
from tatami.torch.aten_view import VIEW
from tatami.torch.handler import Handler

HANDLERS: dict[str, Handler] = {
    **ELEMENTWISE, **REDUCE, **VIEW, **INDEX, **CONTRACTION, **ATTENTION, **NORM, **POOL, **CREATE, **RANDOM,
    **SPECIAL, **INCOMPLETE, **POLYNOMIAL, **CONVERT, **MATRIX, **FACTORS, **GRID, **RESIZE, **SCATTER,
}  # fmt: skip
"""ATen overload → its handler."""
