"""The line of a text that a fault is about, for each way in which verifiers name places."""

from __future__ import annotations

import pytest

from tatami.core.diagnostic import diagnostic
from tatami.explorer.places import place_at, place_of

TEXT = """{
  "stage": "tiny", "target": "r7",
  "programs": {
    "main": {
      "uops": [
        {"id": "n0", "uop": "INPUT", "src": []},
        {"id": "n1", "uop": "EXP",
         "src": ["n0"], "text": "a \\" ] } n2"},
        {"id": "n2", "uop": "ADD", "src": ["n0", "n1"], "arg": {"axes": [0, 1]}}
      ],
      "kernels": {"k.c": {"symbol": "s1"}}
    }
  },
  "origins": {"main": {"n2": ["node"], "r1": ["n1"]}}
}
"""


@pytest.mark.parametrize(
    ("at", "why", "line"),
    [
        ("tiny:4:7", "not JSON", 3),
        ("n2", "src is not a value", 8),
        ("n2 (node, other)", "src is not a value", 8),
        ("tiny.programs.main.uops.n1", "there is no UOp", 6),
        ("tiny.programs.main", "Expected `int`, got `str` - at `$.uops[2].arg.axes[1]`", 8),
        ("tiny.programs.main", "nothing reads the field `$.uops[1].text`", 7),
        ("tiny.programs.main", "Expected `str` - at `$.uops[...].id`", 4),
        ("tiny", "nothing reads the field `$.target`", 1),
        ("tiny.target", "it is not that of the page", 1),
        ("tiny: main.uops.2.src", "derived again it is another", 8),
        ("main: r1", "it is in wave 0", 13),
        ("main.k.c", "no such kernel", 10),
        ("s1", "twice", 10),
    ],
)
def test_a_fault_has_the_line_that_it_names(at: str, why: str, line: int) -> None:
    found = place_of(TEXT, diagnostic("InvalidDocument", at, why, "mend it"))
    assert found is not None and found.line == line
    assert TEXT.splitlines()[line][found.column :].strip()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (TEXT, "n77"),
        (TEXT, "tiny"),
        ("", "n1"),
        ("[[[", "n1"),
        ('{"a" 1 {', "n1"),
        ("}}]]", "n1"),
        ('{"a\nb": 1}', "n1"),
        ('{"a": "\\q"}', "n1"),
    ],
)
def test_a_fault_without_a_place_has_none(text: str, at: str) -> None:
    assert place_of(text, diagnostic("InvalidDocument", at, "wrong", "mend it")) is None


def test_a_text_nested_too_deeply_is_not_read_to_its_end() -> None:
    assert place_of("[" * 1_000_000, diagnostic("InputTooLarge", "n1", "nested too deeply", "mend it")) is None


def test_a_path_leads_as_far_as_it_can() -> None:
    found = place_at(TEXT, ("programs", "main", "uops", 1, "nowhere"))
    assert found is not None and TEXT.splitlines()[found.line].strip().startswith('{"id": "n1"')
