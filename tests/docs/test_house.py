"""docs/house.md: its marks hold, and its rows are those of the command."""

from __future__ import annotations

import ast

import pytest

from tests.docs.house import (
    PAGE,
    TOO_MANY,
    arguments_of,
    by_position,
    functions_of,
    largest_folder,
    page_rows,
    recipe_rows,
    rows,
    with_arguments,
    written,
)

MOST = 199
"""Functions of the package with six arguments and more: a new one means that a value type is missing, or that one goes."""

MOST_BY_POSITION = 1
"""Functions with eight arguments by position, handlers of ATen not counted: a row of the table of scalar operations."""


def test_few_functions_take_many_arguments() -> None:
    found = with_arguments(6)
    assert len(found) <= MOST, "\n".join(f"{t.place} {t.name}: {t.arguments}" for t in found)


def test_few_functions_take_eight_arguments_by_position() -> None:
    found = [f"{t.place} {t.name}" for t in by_position(TOO_MANY)]
    assert len(found) <= MOST_BY_POSITION, "\n".join(found)


def test_the_page_has_the_rows_of_the_command() -> None:
    known = page_rows(PAGE.read_text(encoding="utf-8"))
    assert list(known) == [row.name for row in rows()], "python -m tests.docs.house --write"
    assert all(match["today"].strip() for match in known.values())


def test_figures_of_the_page_keep_their_marks() -> None:
    for name, match in page_rows(PAGE.read_text(encoding="utf-8")).items():
        if mark := match["mark"].strip():
            assert int(match["today"]) <= int(mark), name


def test_folders_are_small() -> None:
    assert 0 < largest_folder() <= 20


def test_recipes_are_counted() -> None:
    figures = {row.name.rpartition(": ")[2]: row.figure() for row in recipe_rows()}
    assert figures["a target"] == 1 and all(isinstance(n, int) and n > 0 for n in figures.values())


@pytest.mark.parametrize(
    ("text", "all_", "positional"),
    [
        ("def f(a, b, *, c): ...", 3, 2),
        ("def f(self, a, /, b, *args, **kwargs): ...", 2, 2),
        ("async def f(cls): ...", 0, 0),
        ("def f(): ...", 0, 0),
    ],
)
def test_arguments_are_counted(text: str, all_: int, positional: int) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    assert arguments_of(function) == (all_, positional)


def test_functions_at_any_depth_are_found() -> None:
    text = "class C:\n    def m(self, a):\n        def inside(b, c): ...\n"
    assert {(t.name, t.arguments) for t in functions_of(text, "x.py")} == {("m", 1), ("inside", 2)}


def test_the_first_figures_stay_when_the_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.docs import house

    made = [house.Row("doors", lambda: 3, 4), house.Row("windows", lambda: "none")]
    monkeypatch.setattr(house, "rows", lambda: made)
    page = "# P\n\n| figure | first | today | mark |\n|---|---|---|---|\n| doors | 9 | 7 | 4 |\n| walls | 1 | 1 | |\n\nText.\n"
    assert written(page) == (
        "# P\n\n| figure | first | today | mark |\n|---|---|---|---|\n| doors | 9 | 3 | 4 |\n| windows |  | none |  |\n\nText.\n"
    )
