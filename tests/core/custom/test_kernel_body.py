"""Placeholders of a body: replaced as whole tokens of C, everything else passed through."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.custom.kernel_body import Ranks, bound_text, counters_in, user_text
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import TatamiError

RANKS = Ranks((2, 1), (2, 0))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("output[ridx0] = input1[0];", "tatami_out0[tatami_i0] = tatami_in1[0];"),
        ("output0 + output1 + shape1", "tatami_out0 + tatami_out1 + tatami_out0_n1"),
        ("input0_shape1*input1_shape0", "tatami_in0_n1*tatami_in1_n0"),
        ("myinput0 input0x input00 Input0 _shape0 input input0_shape", None),
        ('"input0" \'input0\' "a\\"input0"', None),
        ("// input0\n/* ridx0 \n output */ // x \\\n shape0", None),
        ("p.input0 + q->output + q -> /* x */ shape0", None),
        ("0x1input0 1.5e+3input0 .5ridx0", None),
        ('R"x(input0 ")" )x" + input0', 'R"x(input0 ")" )x" + tatami_in0'),
        ("'input0\ninput0", "'input0\ntatami_in0"),
        ("#define A input0\r\n#if 1\tA", "#define A tatami_in0\r\n#if 1\tA"),
        ("/* never ends input0", None),
        ("é input0 ¬", "é tatami_in0 ¬"),
    ],
)
def test_only_whole_tokens_are_replaced(text: str, bound: str | None) -> None:
    assert bound_text(VerbatimCode(text), RANKS, "body") == (text if bound is None else bound)


@pytest.mark.parametrize(
    ("text", "place", "suggestion"),
    [
        ("output[0] =\n  input2[0];", ("2", "3"), "input0, input1, or pass 3 operands"),
        ("output2[0] = 1;", ("1", "1"), "output0, output1"),
        ("return shape2;", ("1", "8"), "shape0, shape1"),
        ("ridx2 = 0;", ("1", "1"), "ridx0, ridx1"),
        ("input1_shape1", ("1", "1"), "input1_shape0"),
        ("output1_shape0", ("1", "1"), "no output1_shape placeholder"),
        ("int tatami_in0;", ("1", "5"), "does not begin with tatami_"),
    ],
)
def test_a_placeholder_that_is_not_there_is_a_fault(text: str, place: tuple[str, str], suggestion: str) -> None:
    with pytest.raises(TatamiError) as error:
        bound_text(VerbatimCode(text), RANKS, "body")
    (d,) = error.value.diagnostics
    assert (d.details["line"], d.details["column"]) == place
    assert suggestion in d.suggestion


def test_counters_are_declared_for_the_ridx_in_use() -> None:
    assert counters_in(bound_text(VerbatimCode("ridx1 = 0; // ridx0"), RANKS, "body"), RANKS) == [1]


def test_a_compilers_words_come_back_in_the_users() -> None:
    said = "'tatami_in1' undeclared; tatami_out0_n1, tatami_in0_n0, tatami_i1, tatami_out1, mytatami_in0"
    assert user_text(said) == "'input1' undeclared; shape1, input0_shape0, ridx1, output1, mytatami_in0"


PARTS = ["input0", "output", "shape1", "ridx0", "x", " ", "\n", "\\", '"', "'", "//", "/*", "*/", ".", "->", "R", "(", ")", "1"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=25))
def test_lines_keep_their_numbers_and_binding_again_changes_nothing_else(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        bound = bound_text(VerbatimCode(text), RANKS, "body")
    except TatamiError:
        return
    assert bound.count("\n") == text.count("\n")
    assert user_text(bound).replace("output0", "output") == text.replace("output0", "output")
