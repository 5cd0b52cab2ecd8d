"""Formulas of custom kernels: how they are read, what types their terms have, and where a fault is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.custom.formula import Apply, Convert, Number, TypedTerm, typed
from tatami.core.custom.formula_text import parse_formula
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.dtype import DType

F32, I32, I64, F16 = DType.fp32, DType.i32, DType.i64, DType.fp16


def terms(text: str, *inputs: DType, rank: int = 2) -> tuple[TypedTerm, ...]:
    return typed(parse_formula(text, "kernel"), inputs, rank, "kernel")


def refused(text: str, *inputs: DType, rank: int = 2) -> Diagnostic:
    with pytest.raises(TatamiError) as error:
        terms(text, *inputs, rank=rank)
    (d,) = error.value.diagnostics
    return d


def shape_of(text: str) -> str:
    """The operators with all their parentheses."""
    table = parse_formula(text, "kernel").terms

    def show(i: int) -> str:
        match table[i]:
            case Apply(fn=fn, args=args):
                return f"{fn}({', '.join(show(a) for a in args)})"
            case Convert(to=to, arg=arg):
                return f"{to}({show(arg)})"
            case Number(value=value):
                return str(value)
            case other:
                return f"{other.kind}{other.index}"

    return show(len(table) - 1)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1 + 2 * 3 - 4", "sub(add(1, mul(2, 3)), 4)"),
        ("-input0 ** 2", "neg(pow(input0, 2))"),
        ("2 ** 3 ** -1", "pow(2, pow(3, neg(1)))"),
        ("ridx0 & 1 == 0 && !true || false", "or(and(eq(bitand(ridx0, 1), 0), not(True)), False)"),
        ("1 << 2 + 3 | 4 ^ 5 & 6", "bitor(shl(1, add(2, 3)), bitxor(4, bitand(5, 6)))"),
        ("max(1, 2, 3, input1)", "max(max(max(1, 2), 3), input1)"),
        ("d = input0 - .5e1; // the distance\n d * d;", "mul(sub(input0, 5.0), sub(input0, 5.0))"),
        ("where(input0 >= 0, fp32(ridx1), shape0 % 3)", "where(ge(input0, 0), fp32(ridx1), mod(shape0, 3))"),
        ("inf - nan", "sub(INF, NAN)"),
    ],
)
def test_operators_bind_as_in_python(text: str, shape: str) -> None:
    assert shape_of(text) == shape


def test_numbers_and_indices_take_the_dtype_of_what_they_meet() -> None:
    assert terms("input0 * 2 + ridx1", F16)[-1].dtype == F16
    assert terms("input0 * 2 + ridx1", I32)[-1].dtype == I32
    assert [t.dtype for t in terms("input0 + ridx1", F32)] == [F32, I64, F32, F32]
    assert terms("ridx0 / 2", rank=1)[-1] == TypedTerm(Apply("idiv", (0, 1)), I64, (0, 1))
    assert terms("ridx0 * 0.5", rank=1)[-1].dtype == F32
    assert terms("ridx0 * 0.5 + input0", F16)[-1].dtype == F16
    assert terms("ridx0 < shape0")[-1].dtype == DType.bool


def test_constants_are_folded_and_equal_terms_are_one() -> None:
    assert terms("2 * 3 + 1.5", rank=0)[-1].term == Number(7.5)
    table = terms("exp(input0) + exp(input0)", F32)
    assert [t.term for t in table] == [table[0].term, Apply("exp", (0,)), Apply("add", (1, 1))]
    assert terms("idiv(7, 2)", rank=0)[-1].term == Number(3)


@pytest.mark.parametrize(
    ("text", "kind", "place", "suggestion"),
    [
        ("input0 * 2 + input3", "UnknownValue", (1, 14), "pass 4 operands"),
        ("input0 +\n  ridx2", "UnknownValue", (2, 3), "ridx0, ridx1"),
        ("inpt0", "UnknownName", (1, 1), "'input0'"),
        ("sigmiod(input0)", "UnknownOp", (1, 1), "'sigmoid'"),
        ("input0 +", "ParseError", (1, 9), "a value"),
        ("(input0", "ParseError", (1, 8), "')'"),
        ("input0 input0", "ParseError", (1, 8), "operator"),
        ("input0 $ 2", "ParseError", (1, 8), "operators"),
        ("// only a comment", "ParseError", (1, 18), "a value"),
        ("a = 2", "ParseError", (1, 1), "';'"),
        ("a = 2; a = 3; a", "DuplicateId", (1, 8), "a2"),
        ("exp = 2; exp", "DuplicateId", (1, 1), "exp_"),
        ("exp(input0, 2)", "ParseError", (1, 1), "exp(x)"),
        ("exp + 1", "UnknownName", (1, 1), "exp(…)"),
        ("0 < input0 < 1", "ParseError", (1, 12), "&&"),
        ("1/3 * input0", "InvalidAttribute", (1, 2), "1.0/3"),
        ("input0 & 1", "UnsupportedDType", (1, 8), "integers"),
        ("fp16(input0) + input0", "DTypeMismatch", (1, 14), "fp32(…)"),
        ("input1 * 0.5", "DTypeMismatch", (1, 8), "fp32(…)"),
        ("(input0 > 0) + 1", "DTypeMismatch", (1, 14), "i32(…)"),
        ("output + 1", "UnknownName", (1, 1), "value"),
        ("9" * 5000, "ParseError", (1, 1), ".0"),
        ("(" * 500, "InputTooLarge", (1, 61), "name parts"),
        ("1" + "+1" * 20000, "InputTooLarge", (1, 1), "several kernels"),
    ],
)
def test_a_fault_has_its_place_and_a_suggestion(text: str, kind: str, place: tuple[int, int], suggestion: str) -> None:
    d = refused(text, F32, I32)
    assert (d.kind, d.details) == (kind, {"line": str(place[0]), "column": str(place[1])})
    assert suggestion in d.suggestion
    shown, caret = d.why.split("\n")[1:3]
    assert caret.strip() == "^" and len(caret) <= len(shown) + 1


def test_a_long_sum_is_read_without_recursion() -> None:
    assert terms("input0" + " + input0" * 1500, F32)[-1].dtype == F32


ALPHABET = ["input0", "input1", "input7", "ridx0", "shape9", "exp", "max", "where", "fp32", "x", "output", " ", "\n", "//"]
ALPHABET += [*list("0123456789.+-*/%<>=!&|^~(),;$#\"'\\é"), "**", "<<", "==", "1e400", "inf", "true"]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(ALPHABET), max_size=30))
def test_any_text_is_a_formula_or_one_diagnostic(words: list[str]) -> None:
    try:
        assert terms("".join(words), F32, I32)
    except TatamiError as error:
        assert len(error.diagnostics) == 1
