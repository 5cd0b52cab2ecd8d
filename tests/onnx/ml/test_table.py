"""The page of ai.onnx.ml's operators is printed from the table, which has every operator of the domain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from tatami.onnx.ml.table import TABLE, page  # noqa: E402
from tatami.onnx.registry import handler_of  # noqa: E402
from tatami.onnx.strings.text_rules import MOVES  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "onnx-ml.md"


def test_every_operator_and_version_of_the_domain_is_in_the_table() -> None:
    versions: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "ai.onnx.ml":
            versions.setdefault(schema.name, []).append(schema.since_version)
    assert {name: sorted(v) for name, v in versions.items()} == {
        n: [int(v) for v in r.versions.split(", ")] for n, r in TABLE.items()
    }
    assert all(handler_of("ai.onnx.ml", name) is row.run for name, row in TABLE.items())


def test_the_page_is_current(update_golden: bool) -> None:
    text = PAGE.read_text()
    begin, end = text.index("|"), re.search(r"\n\n## ", text[text.index("|") :])
    assert end is not None
    stop = begin + end.start() + 1
    if update_golden:
        PAGE.write_text(text[:begin] + page() + text[stop:])
    assert PAGE.read_text()[begin : begin + len(page())] == page()


def test_the_page_names_what_moves_strings() -> None:
    text = " ".join(PAGE.read_text().split())
    assert all(name in text for name in MOVES)
