"""Products that a sum wants wider than their operands are taken exactly (D2.21), for C and CUDA by one rule."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.indexbook.ir import Guard
from tatami.region.ir import Binary, Cast, RegionExpr, Select, Within
from tatami.region.walk import Types, nodes, widened
from tests.region import examples as ex

HALF, FULL = DType.fp16, DType.fp32
A, B = ex.read("A", "m", "k"), ex.read("B", "k", "n")
GUARD = Within((Guard(expr("k"), expr("K")),))
REGION = ex.gemm(HALF)


def products(e: RegionExpr) -> list[tuple[RegionExpr, RegionExpr]]:
    found = widened(e, FULL, Types(REGION))
    return [(n.x, n.y) for n in nodes(found) if isinstance(n, Binary) and n.fn == "mul"]


def test_a_summed_product_is_exact_under_a_guard_too() -> None:
    product = ex.mul(A, B)
    for body in (product, Select(GUARD, product, ex.const(0, HALF)), Select(GUARD, ex.const(0, HALF), product)):
        assert products(ex.total("k", body)) == [(Cast(A, FULL), Cast(B, FULL))]


def test_a_product_that_says_its_own_dtype_is_rounded_to_it() -> None:
    assert products(Cast(ex.mul(A, B), FULL)) == [(A, B)]
    assert products(ex.total("k", ex.mul(A, B), "argmax", DType.i64)) == [(A, B)]
    assert products(ex.total("k", ex.mul(A, B), dtype=HALF)) == [(A, B)]


def test_a_factor_that_is_a_product_is_rounded_once() -> None:
    assert products(ex.mul(ex.mul(A, B), B)) == [(Cast(ex.mul(A, B), FULL), Cast(B, FULL)), (A, B)]
