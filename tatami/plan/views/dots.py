"""Operands that the multiply-add of a plan's `dot` takes."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.numbers.codes import MOST_BLOCK
from tatami.plan.ir import DOT_COUNT, DOTS_OF_ANY_SIGNS, DOTS_OF_FLOATS, Dot
from tatami.region.ir import Region
from tatami.region.views.contraction import ContractionShape
from tatami.region.views.dequantised import find_dequantised, find_rows_of_blocks
from tatami.region.views.narrow import Numbers, operand_dtypes
from tatami.region.walk import Types


def dot_dtypes(region: Region, shape: ContractionShape, dot: Dot) -> tuple[DType, DType] | None:
    """Narrow dtypes of lhs and rhs if `dot` multiplies them; else None, as for blocks, which have scales (`takes_blocks`)."""
    if dot == "blocks_vnni":
        return None
    kind: Numbers = "floats" if dot in DOTS_OF_FLOATS else "any_signs" if dot in DOTS_OF_ANY_SIGNS else "integers"
    return operand_dtypes(region, shape, DOT_COUNT[dot], kind)


def takes_blocks(region: Region, shape: ContractionShape, *, swap: bool) -> bool:
    """True if the sum is one of integers for each block of k, both operands with a scale per block. Bytes have no zero points,
    since a difference of two bytes is not one."""
    rows, columns, own = (shape.rhs, shape.lhs, shape.n) if swap else (shape.lhs, shape.rhs, shape.m)
    codes = find_dequantised(columns, Types(region))
    if codes is None or codes.block > MOST_BLOCK or (codes.bits == 8 and codes.zero is not None):
        return False
    return find_rows_of_blocks(region, rows, own, codes) is not None
