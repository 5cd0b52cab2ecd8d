"""Operands that the multiply-add of a plan's `dot` takes."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.plan.ir import DOT_COUNT, DOTS_OF_ANY_SIGNS, DOTS_OF_FLOATS, Dot
from tatami.region.ir import Region
from tatami.region.views.contraction import ContractionShape
from tatami.region.views.narrow import Numbers, operand_dtypes


def dot_dtypes(region: Region, shape: ContractionShape, dot: Dot) -> tuple[DType, DType] | None:
    """Narrow dtypes of lhs and rhs if `dot` multiplies them; else None."""
    kind: Numbers = "floats" if dot in DOTS_OF_FLOATS else "any_signs" if dot in DOTS_OF_ANY_SIGNS else "integers"
    return operand_dtypes(region, shape, DOT_COUNT[dot], kind)
