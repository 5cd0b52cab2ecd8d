"""Handlers of ATen overloads: one table, filled by the families in aten/, linear_algebra/ and special_functions/."""

from __future__ import annotations

from tatami.torch.aten.attention import ATTENTION
from tatami.torch.aten.collectives import COLLECTIVE
from tatami.torch.aten.contraction import CONTRACTION
from tatami.torch.aten.convert import CONVERT
from tatami.torch.aten.create import CREATE
from tatami.torch.aten.elementwise import ELEMENTWISE
from tatami.torch.aten.grid import GRID
from tatami.torch.aten.index import INDEX
from tatami.torch.aten.norm import NORM
from tatami.torch.aten.pool import POOL
from tatami.torch.aten.quantized import QUANTIZED
from tatami.torch.aten.random import RANDOM
from tatami.torch.aten.reduce import REDUCE
from tatami.torch.aten.resize import RESIZE
from tatami.torch.aten.scatter import SCATTER
from tatami.torch.aten.view import VIEW
from tatami.torch.handler import Handler
from tatami.torch.linear_algebra.factors import FACTORS
from tatami.torch.linear_algebra.matrices import MATRIX
from tatami.torch.special_functions.incomplete import INCOMPLETE
from tatami.torch.special_functions.polynomial import POLYNOMIAL
from tatami.torch.special_functions.special import SPECIAL

HANDLERS: dict[str, Handler] = {
    **ELEMENTWISE, **REDUCE, **VIEW, **INDEX, **CONTRACTION, **ATTENTION, **NORM, **POOL, **CREATE, **RANDOM,
    **SPECIAL, **INCOMPLETE, **POLYNOMIAL, **CONVERT, **MATRIX, **FACTORS, **GRID, **RESIZE, **SCATTER,
    **QUANTIZED, **COLLECTIVE,
}  # fmt: skip
"""ATen overload → its handler."""
