"""Lines of stage documents: short enough for a person who edits them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tatami.api import compile, prepare
from tatami.core.codec import dump_text
from tatami.stages import STAGES
from tatami.storage.dump import write_dump
from tests.golden.programs import PROGRAMS

LONGEST = 200
"""Maximum length of a line of a document in characters."""
ONE_TEXT = re.compile(r'\s*("[a-z_0-9.]+": )?"([^"\\]|\\.)*",?')
"""A line that holds a single text: an expression or a line of code, which JSON cannot break."""


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_line_of_a_document_is_longer_than_an_editor_shows(name: str, target: str, tmp_path: Path) -> None:
    compilation = prepare(PROGRAMS[name](), target=target)
    values = {s.name: compilation.stages[s.name] for s in STAGES if s.name in compilation.stages}
    write_dump(tmp_path, values, values, compilation.target)
    for path in tmp_path.glob("*.json"):
        lines = [line for line in path.read_text().splitlines() if not ONE_TEXT.fullmatch(line)]
        longest = max(lines, key=len)
        assert len(longest) <= LONGEST, (path.name, longest[:80])


def test_code_of_a_document_is_a_list_of_lines() -> None:
    f = compile(PROGRAMS["mlp"](), target="cpu:avx2")
    document = json.loads(f.stages["c"].json)["programs"]["main"]
    units = f.stages["c"].value.main.units
    assert units and all("\n".join(document["units"][name]["text"]) == unit.text for name, unit in units.items())


def test_tuples_and_lists_are_written_alike() -> None:
    rows = [{"name": f"row {k}", "sizes": (k, 2 * k, 3 * k)} for k in range(20)]
    text = dump_text({"rows": tuple(rows), "empty": ()})
    assert json.loads(text) == {"rows": [{**r, "sizes": list(r["sizes"])} for r in rows], "empty": []}
    assert max(map(len, text.splitlines())) <= 110 and text == dump_text({"rows": rows, "empty": []})
