"""A share of ``python -m tests.fuzz.markers``: markers in strings of documents become no code, no file and no command."""

from __future__ import annotations

import pytest

from tests.fuzz.markers import FINDINGS, HOSTILE, MARK, MARKS, _is_name, campaign
from tests.fuzz.marking.marker_places import places, planted

PARTS = 160


@pytest.mark.parametrize("program", ["row_softmax", "branches_loops_calls", "constants_and_setup"])
def test_markers_in_strings_have_no_effect(program: str) -> None:
    counts = campaign([program], [], part=(len(program), PARTS), marks=MARKS)
    assert sum(n for name, n in counts.items() if " " not in name) > 15
    assert not [name for name in counts if name.split()[-1] in FINDINGS], counts


def test_every_string_of_a_document_is_a_place() -> None:
    document = {"a": "x", "b": [{"c": "y"}, 3, ["z"]], "d": {}}
    found = [(str(p), planted(document, p, "new")) for p in places(document)]
    strings = [new for name, new in found if "key" not in name]
    assert strings == [
        {"a": "new", "b": [{"c": "y"}, 3, ["z"]], "d": {}},
        {"a": "x", "b": [{"c": "new"}, 3, ["z"]], "d": {}},
        {"a": "x", "b": [{"c": "y"}, 3, ["new"]], "d": {}},
    ]
    assert sum("key" in name for name, _ in found) == 4
    assert document == {"a": "x", "b": [{"c": "y"}, 3, ["z"]], "d": {}}


def test_a_name_that_is_called_is_seen() -> None:
    assert _is_name(f"float {MARK} = 0; {MARK} += 1;") and _is_name(f"static void {MARK}(int a) {{}} {MARK}(1);")
    assert not _is_name(f"x = {MARK}(1);") and MARK in HOSTILE
