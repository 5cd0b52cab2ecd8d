"""A stage's text by lines."""

from tatami.core.lines import Line, ended, split_lines, text_of


def test_lines_join_to_the_text_they_were_split_from() -> None:
    text = "a\n\nb\n"
    assert text_of(split_lines(text, ("main", "r0"))) == text
    assert {line.of for line in split_lines(text, ("main", "r0"))} == {("main", "r0")}


def test_an_empty_line_stands_between_blocks_and_the_text_ends_a_line() -> None:
    assert text_of(ended([[Line("a"), Line("b")], [Line("c")]])) == "a\nb\n\nc\n"
    assert text_of(ended([])) == ""
