"""Each rule of tests/docs/language.py finds its planted example and lets the sentence pass that says the same by the rule."""

from __future__ import annotations

import pytest

from tests.docs.language import Fault, faults, outside_faults, page_faults


def rules(source: str) -> list[str]:
    return [f.rule for f in faults('"""A module that stands for one of the package."""\n' + source)]


def attribute(text: str) -> str:
    return f'LIMIT = 3\n"""{text}"""\n'


def predicate(text: str) -> str:
    return f'def is_dense(x: int) -> bool:\n    """{text}"""\n    return x > 0\n'


PLANTED = [
    ("opening", attribute("Of a row of a band at least, in bytes."), attribute("Minimum bytes per row of a column band.")),
    ("opening", attribute("What is multiplied, as the text says."), attribute("Operands of the product, in order.")),
    ("opening", attribute("Bytes of a row. Those of a column differ."), attribute("Bytes of a row. A column has other ones.")),
    (
        "opening",
        attribute("Whose one store is of partial sums."),
        attribute("The problem whose only store writes partial sums."),
    ),
    ("opening", attribute("That of the largest tile, in bytes."), attribute("Bytes of the largest tile in shared memory.")),
    ("opening", attribute("Without the output that is unused."), attribute("The region without its unused output.")),
    ("opening", attribute("Where the rows of the panel lie."), attribute("Where rows are short, one panel holds them all.")),
    ("opening", "# of k at most\nx = 3\n", "# at most k\nx = 3\n"),
    (
        "opening",
        "# rows come first. Those of the\n# second follow\nx = 3\n",
        "# rows come first, and rows\n# of the second follow\nx = 3\n",
    ),
    ("question", attribute("Is an element a group of k rows?"), attribute("True if an element is a group of k rows.")),
    ("question", "x = 3  # does it wait?\n", "x = 3  # grammar: size ?\n"),
    ("opening", attribute("That a copy writes per clock."), attribute("Bytes that a copy writes per clock.")),
    (
        "subject",
        'class _Row:\n    """`first`: address of the row, in elements."""\n',
        'class _Row:\n    def __init__(self) -> None:\n        """`first`: address of the row, in elements."""\n',
    ),
    ("predicate", predicate("Rows are dense, without gaps between."), predicate("True if rows have no gaps between.")),
    ("predicate", predicate("Rows are dense: there are no gaps."), predicate("Close the file; False if it was closed.")),
    ("beside", attribute("Registers beside the accumulators."), attribute("Registers besides the accumulators.")),
    ("is-no", attribute("Operands which are no matrices."), attribute("There is no operand that is no longer than a row.")),
    ("has-not", attribute("A lane that the vector has not."), attribute("A lane that has not been read yet.")),
    ("so-many", attribute("Blocks of so many rows of a tile."), attribute("Rows per block, not so many as a tile.")),
    ("so-many", attribute("Threads from which on k is split."), attribute("Minimum threads for a split of k.")),
    ("as-has-it", attribute("NaN at infinity, as PyTorch has it."), attribute("NaN at infinity, as in PyTorch.")),
    ("prefetch", attribute("Lines asked for before the product."), attribute("Prefetch distance in cache lines.")),
    ("history", attribute("Names that nobody reads any more."), attribute("Names that are unused, any more than two.")),
    ("history", attribute("Slots; this used to be a ring."), attribute("Slots, which are used to be read at once.")),
    ("short", attribute("Bytes of a row."), attribute("Bytes of a row of the tile.")),
    ("constant", "LIMIT = 3\n", "# bytes of a row\nLIMIT = 3\n"),
    ("constant", "LIMIT: int = 3\nx = 4\n", "LIMIT: int = 3  # bytes of a row\nx = 4\n"),
    ("undocumented", "def f() -> int:\n    return 3\n", "def _f() -> int:\n    return 3\n"),
    (
        "undocumented",
        'class Row:\n    """Elements of a row of a tile."""\n\n    def at(self) -> int:\n        return 3\n',
        "class _Row:\n    def at(self) -> int:\n        return 3\n",
    ),
]


@pytest.mark.parametrize("rule, bad, good", PLANTED, ids=[f"{rule}{i}" for i, (rule, _, _) in enumerate(PLANTED)])
def test_a_rule_finds_what_is_planted_and_nothing_in_its_better_form(rule: str, bad: str, good: str) -> None:
    assert set(rules(bad)) == {rule}
    assert rules(good) == []


def test_every_rule_has_a_planted_example() -> None:
    import tests.docs.language as language

    listed = [line.split()[0] for line in (language.__doc__ or "").split("\n\n")[-1].strip().splitlines()]
    assert sorted({rule for rule, _, _ in PLANTED}) == sorted(listed)


MESSAGES = [
    ("is-no", 'fail(f"axis {axis} is no axis of {name}")', 'fail(f"axis {axis} is not an axis of {name}")'),
    ("opening", 'fail("what it reads moves unevenly")', 'fail("the reads move unevenly")'),
    ("beside", 'help = "the file, its .npz beside it"', 'help = "the file, its .npz next to it"'),
    ("question", 'fail("Is the file there?")', 'fail(f"did you mean {name}?")'),
    ("has-not", 'fail("a lane that the vector has not")', 'x = "beside"  # a word alone is a name'),
]


@pytest.mark.parametrize("rule, bad, good", MESSAGES, ids=[rule for rule, _, _ in MESSAGES])
def test_a_rule_finds_a_message(rule: str, bad: str, good: str) -> None:
    assert set(rules(f"x = 3\n{bad}\n")) == {rule}
    assert rules(f"x = 3\n{good}\n") == []


def test_a_part_of_a_message_is_no_sentence() -> None:
    assert rules("text = f\"{name} starts{' of the cluster it is in' if name else ''}\"\n") == []


def on_a_page(text: str) -> list[Fault]:
    return page_faults(text, "page.md")


def test_a_page_is_read_without_its_code_and_quotes() -> None:
    assert on_a_page("# Tiles\n\n    Of beside what\n\n> Of beside what\n\n```\nOf beside what\n```\n\n`beside`\n") == []
    assert on_a_page("Which tile is first? The widest one.\n") == []


def test_paragraphs_items_and_cells_of_a_page_are_read() -> None:
    page = "Tiles.\n\nRows. Of rows\nthere are two.\n\n- beside it\n\n| a | b |\n|---|---|\n| 3 | is no tile |\n"
    assert [(f.line, f.rule) for f in on_a_page(page)] == [(3, "opening"), (6, "beside"), (10, "is-no")]


def test_strings_outside_the_package_are_data() -> None:
    source = 'x = "an axis that is no axis"\n\n\ndef f() -> None:\n    """{}"""\n'
    assert outside_faults(source.format("A row."), "test.py") == []
    assert [f.rule for f in outside_faults(source.format("Of a row."), "test.py")] == ["opening"]


def test_code_and_tables_inside_a_docstring_are_not_read() -> None:
    assert rules(attribute("A table of tiles:\n\n    Of beside what?\n\n    >>> Those\n\nand `beside` in backticks.")) == []


def test_a_string_that_holds_a_hash_is_no_comment() -> None:
    assert rules('x = "# Of what"\ny = f"{x} # Of what"\n') == []


def test_a_fault_tells_its_line() -> None:
    found = faults(
        '"""A module that stands for one of the package."""\n\nLIMIT = 3\n"""Of a row of bytes at least."""\n', "here.py"
    )
    assert [str(f) for f in found] == ["here.py:4: opening: Of a row of bytes at least."]
