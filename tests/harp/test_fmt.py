"""Layout changes white space only: the tree, the words and the comments stay; doing it again changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.diagnostic import TatamiError
from tatami.harp.fmt import WIDTH, format_source, format_text, words
from tatami.harp.parse import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "harp").glob("*.harp"))
DENSE = """
graph<N=8,M> f(mut state c:f32[N,2*M],x:f32[],)->f32[]{update(c,c*x)return x}
graph main(x:f32[4,5],y:f32[4,5])->(a:f32[4,5],b:f32[3]){
(p,q)=split(x,axis=0,sizes=[1,3])z=fused(x,y){x*y+1.0}s=fused_reduce(x,y,axis=0,op=sum){x*-y}
w=x[1:,::2,None][...,-1]u=-x.exp()**-2+!y@(x|y&x^x<<1>=3)k=constant(f32[2,2],[[1,2],[3,4]])
v=conv(x,k,padding=[(1,1),(0,2)],stride=[1,1],name_of_something_long=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17])
return(x+y)*2.0,z.sum(axis=0)
}
"""


def comments(text: str) -> list[str]:
    return [c.text for c in parse(text).comments]


def check(text: str) -> str:
    out = format_text(text)
    assert parse(out) == parse(text)
    assert sorted(comments(out)) == sorted(comments(text))
    assert format_text(out) == out
    assert not any(line.endswith(" ") or "\t" in line for line in out.split("\n"))
    return out


def test_a_dense_text_is_laid_out() -> None:
    assert check(DENSE) == Path(__file__).with_name("dense.expected.harp").read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_squeezed_together_comes_back_as_it_was(path: Path) -> None:
    """An example without its layout is laid out as the file is, up to empty lines."""
    text = path.read_text()
    code = [w.text for w in words(re.sub(r"//[^\n]*", "", text))]
    # A parenthesis that begins a statement needs its own line, everything else may stand on one.
    squeezed = re.sub(r"([\w)\]}]) (\( \w+ (?:, \w+ )+\) =)", r"\1\n\2", " ".join(code))
    without = "\n".join(line for line in re.sub(r" *//[^\n]*", "", text).split("\n") if line.strip())
    assert "\n".join(line for line in check(squeezed).split("\n") if line) == without


def test_comments_stay_where_they_are() -> None:
    text = """\
// first

// of main
graph main(  // behind the bracket
    // before a parameter
    x: f32[4],  // behind a comma
    y: f32[4]  // behind the last
    // before the bracket
) -> f32[4] {  // behind the brace
    // before a statement

    a = x +  // behind an operator
        y
    return a  // at the end
    // before the end
}  // behind the end
// last
"""
    out = check(text)
    assert comments(out) == comments(text)
    for line in ("    y: f32[4],  // behind the last", ") -> f32[4] {  // behind the brace", "}  // behind the end"):
        assert line in out.split("\n")


def test_empty_lines_are_kept_one_at_a_time() -> None:
    out = check("graph main(x: f32[]) -> f32[] {\n\n\n a = x\n b = a\n\n\n // c\n\n return b\n\n}\n\n\n\n// end")
    assert out == ("graph main(x: f32[]) -> f32[] {\n    a = x\n    b = a\n\n    // c\n\n    return b\n}\n\n// end\n")


def test_comments_of_neighbouring_lines_stand_in_one_column() -> None:
    out = check("graph main(x: f32[]) -> f32[] {\n a = x // one\n bbb = a // two\n\n return bbb // three\n}")
    assert out.split("\n")[1:3] == ["    a = x    // one", "    bbb = a  // two"]
    assert out.split("\n")[4] == "    return bbb  // three"


def test_a_comment_before_a_comma_or_a_closing_bracket_breaks_the_lists_it_stands_in_and_no_other() -> None:
    out = check("graph main(x: f32[4]) -> (a: f32[] // note\n, b: f32[4]) { return x.sum(), x }")
    assert "graph main(x: f32[4]) -> (\n    a: f32[],  // note\n    b: f32[4],\n) {" in out
    out = check("graph main(\n x: f32[4] // last\n // end\n) -> f32[4] { return x }")
    assert "    // end\n) -> f32[4] {" in out


def test_lines_break_at_the_loosest_operator_and_at_commas() -> None:
    long = " + ".join(f"first_long_name{k} * second_long_name{k}" for k in range(4))
    out = check(f"graph main() -> f32[] {{ y = {long} return f({long}, [1, 2], axis=1) }}")
    assert all(len(line) <= WIDTH for line in out.split("\n"))
    assert "\n        + first_long_name1 * second_long_name1\n" in out


def test_a_program_that_is_none_is_refused_where_it_breaks() -> None:
    with pytest.raises(TatamiError) as error:
        format_source("graph main() -> f32[] {\n    return )\n}", "bad.harp")
    assert error.value.diagnostics[0].at == "bad.harp:2:12"


def test_an_empty_text_stays_empty() -> None:
    assert format_text("") == format_text(" \n\n") == ""
    assert format_text("// only this") == "// only this\n"


GAPS = st.sampled_from(["", "\n", "\n\n\n", " // note\n", "\n// line\n", " // a\n\n// b\n", "\t\r\n"])
TEXTS = [DENSE, *(p.read_text() for p in EXAMPLES if p.stem in ("fft", "attention", "power_iteration", "sobel"))]


@given(st.sampled_from(TEXTS), st.dictionaries(st.integers(0, 400), GAPS, max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_white_space_and_comments_between_words(text: str, gaps: dict[int, str]) -> None:
    """The words of a program with anything between them: where that is still the same program, layout keeps it."""
    found = words(text)
    out = ""
    for k, word in enumerate(found[:-1]):
        gap = gaps.get(k, "\n" if word.newline_before else " ")
        glued = gap == "" and k and found[k - 1].kind != "sign" and word.kind != "sign"
        out += (" " if glued else gap) + word.text
    try:
        same = parse(out) == parse(text)
    except TatamiError:
        return  # a parenthesis went to a line of its own, or two signs became one
    if same:
        check(out)
