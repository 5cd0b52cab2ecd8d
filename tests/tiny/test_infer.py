"""Shape and dtype rules of tiny's ops."""

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.tiny.infer import Type, infer, reshape_equation
from tatami.tiny.ir import (
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    GatherOp,
    PadOp,
    PermuteOp,
    ReduceOp,
    ReshapeOp,
    ShrinkOp,
    ViewOp,
)

F = DType.fp32


def t(*sizes, dtype=F):
    return Type(dtype, shape(*sizes))


def code(call):
    with pytest.raises(TatamiError) as e:
        call()
    return e.value.diagnostics[0].code


def test_movement_shapes():
    assert infer(ReshapeOp(shape("M", 1, "K")), [t("M", "K")]) == t("M", 1, "K")
    assert infer(PermuteOp((2, 0, 1)), [t(2, 3, 4)]) == t(4, 2, 3)
    assert infer(ExpandOp(shape("M", "N"), (1,)), [t("N")]) == t("M", "N")
    assert infer(PadOp(((expr(1), expr(1)), (expr(0), expr(0)))), [t("H", 3)]) == t("H + 2", 3)
    assert infer(ShrinkOp(shape(1), shape("N"), (2,)), [t("N")]) == t("N//2")
    assert infer(ViewOp(shape("N", 3), (expr("i0 + i1"),)), [t("N + 2")]) == t("N", 3)


def test_elementwise_broadcasts_right_aligned_unless_strict():
    assert infer(Elementwise("add"), [t("M", "N"), t("N")]) == t("M", "N")
    assert infer(Elementwise("lt"), [t("N"), t()]) == t("N", dtype=DType.bool)
    assert code(lambda: infer(Elementwise("add"), [t("M", "N"), t("N")], strict=True)) == "E1001"
    assert code(lambda: infer(Elementwise("add"), [t("M", "N"), t("M")])) == "E1001"


def test_size_zero_broadcasts_from_one():
    assert infer(Elementwise("add"), [t(0, 3), t(1, 3)]) == t(0, 3)


def test_dtype_rules():
    assert code(lambda: infer(Elementwise("add"), [t(2), t(2, dtype=DType.i32)])) == "E1006"
    assert code(lambda: infer(Elementwise("exp"), [t(2, dtype=DType.i32)])) == "E1007"
    assert infer(CastOp(DType.fp16), [t(2)]) == t(2, dtype=DType.fp16)


def test_reduce_removes_its_axes():
    assert infer(ReduceOp("sum", (1,), F), [t("M", "K", "N")]) == t("M", "N")
    assert code(lambda: infer(ReduceOp("sum", (3,), F), [t("M", "K", "N")])) == "E1008"
    assert code(lambda: infer(ReduceOp("argmax", (0,), F), [t("M")])) == "E1009"


def test_reshape_counts_elements():
    assert code(lambda: infer(ReshapeOp(shape(5)), [t(2, 3)])) == "E1002"
    assert reshape_equation(t("N", 4), shape("4*N")) is None
    assert reshape_equation(t("N"), shape("M", 2)) == (expr("N"), expr("2*M"))


def test_gather_takes_one_index_per_gap():
    embedding = GatherOp(shape("B", "S", 8), (None, expr("i2")))
    assert infer(embedding, [t(100, 8), t("B", "S", 8, dtype=DType.i64)]) == t("B", "S", 8)
    assert code(lambda: infer(embedding, [t(100, 8)])) == "E1009"


def test_constants_have_rank_zero():
    assert code(lambda: infer(ConstOp(0.0), [], t(2))) == "E1009"
