"""Figures of the house, a row each: `python -m tests.docs.house`; `--write` puts them into docs/house.md.

`tests/docs/test_house.py` holds the marks: the cheap figures here, the others by the tests that the page names.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from tests.docs import any_count, citations, language
from tests.docs.pages import DOCS, ROOT
from tests.docs.recipes import PAGE as RECIPES
from tests.docs.recipes import recipes
from tests.import_graph import circles, folder_graph, import_graph

PAGE = DOCS / "house.md"
PACKAGE = ROOT / "tatami"
FOLDERS = ("tatami", "tests", "benchmarks")
MANY, TOO_MANY = 6, 8
"""Arguments from which a call has to be read word by word, and from which a value type is missing."""
LONG = 400
"""Lines of a file above which it is asked for its second subject."""
Figure: TypeAlias = int | str


@dataclass(frozen=True)
class Row:
    """A figure of the table. `mark`: the highest value that a test lets pass; None: the figure is shown, not held."""

    name: str
    figure: Callable[[], Figure]
    mark: int | None = None


@dataclass(frozen=True)
class Taking:
    """A function and the number of its arguments, `self` and `cls` not counted; `positional`: those that need no keyword."""

    place: str
    name: str
    arguments: int
    positional: int


def arguments_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """(all arguments, those without a keyword) of a function; `*args` and `**kwargs` do not count."""
    a = function.args
    first = [x.arg for x in (*a.posonlyargs, *a.args)]
    positional = len(first) - (first[:1] in (["self"], ["cls"]))
    return positional + len(a.kwonlyargs), positional


def functions_of(text: str, place: str) -> Iterator[Taking]:
    """The functions of a module, at any depth."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Taking(f"{place}:{node.lineno}", node.name, *arguments_of(node))


@cache
def functions() -> tuple[Taking, ...]:
    """Every function of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return tuple(t for p in files for t in functions_of(p.read_text(encoding="utf-8"), p.relative_to(ROOT).as_posix()))


def with_arguments(least: int) -> list[Taking]:
    """Functions of the package with at least so many arguments, those with most first."""
    return sorted((t for t in functions() if t.arguments >= least), key=lambda t: (-t.arguments, t.place))


def by_position(least: int) -> list[Taking]:
    """Functions with at least so many arguments by position. Handlers of ATen, whose arguments are PyTorch's, do not count."""
    return [t for t in with_arguments(least) if t.positional >= least and not t.place.startswith("tatami/torch/aten/")]


def files_in(folders: Sequence[str] = FOLDERS) -> list[Path]:
    """Every file of these folders, from the root; what Python keeps of its own is left out."""
    found = (p for folder in folders for p in (ROOT / folder).rglob("*"))
    return [p.relative_to(ROOT) for p in found if p.is_file() and "__pycache__" not in p.parts]


def largest_folder() -> int:
    """Most files in one folder, `__init__.py` not counted."""
    return max(Counter(p.parent for p in files_in() if p.name != "__init__.py").values())


def long_files() -> list[tuple[int, str]]:
    """(lines, file) of the package's files of more than LONG lines, the longest first."""
    sizes = ((p.read_text(encoding="utf-8").count("\n"), p.relative_to(ROOT).as_posix()) for p in PACKAGE.rglob("*.py"))
    return sorted((s for s in sizes if s[0] > LONG), reverse=True)


def import_circles() -> int:
    """Circles among files, and among folders of the package and the benchmarks."""
    files = circles(import_graph(ROOT, FOLDERS))
    return len(files) + len(circles(folder_graph(import_graph(ROOT, ("tatami", "benchmarks")))))


def places_with_any() -> int:
    """Parameters, results, fields and aliases of the package that say `Any`."""
    return sum(n for part in any_count.counts().values() for n in part.values())


def recipe_rows() -> list[Row]:
    """Files that each recipe of docs/extending.md touches, its test not counted."""
    found = recipes(RECIPES.read_text(encoding="utf-8"))
    return [_recipe_row(title, len(files)) for title, files in found.items()]


def _recipe_row(title: str, files: int) -> Row:
    return Row(f"files touched by the recipe: {title[0].lower()}{title[1:]}", lambda: files)


def rows() -> list[Row]:
    """The table, in order."""
    return [
        Row("Python files of the package", lambda: sum(p.suffix == ".py" for p in files_in(("tatami",)))),
        Row("most files in one folder", largest_folder, 20),
        Row(f"files of the package with more than {LONG} lines", lambda: len(long_files())),
        Row("circles of imports", import_circles, 0),
        Row("citations that lead nowhere", lambda: len(citations.unresolved()), 0),
        Row("places that break the rule of language", lambda: len(language.all_faults()), 0),
        Row("functions and methods", lambda: len(functions())),
        Row(f"with {MANY} or more arguments", lambda: len(with_arguments(MANY))),
        Row(f"with {TOO_MANY} or more arguments", lambda: len(with_arguments(TOO_MANY))),
        Row(f"with {TOO_MANY} or more by position, handlers of ATen not counted", lambda: len(by_position(TOO_MANY))),
        Row("places that say `Any`", places_with_any),
        *recipe_rows(),
    ]


LINE = re.compile(r"^\| (?P<name>[^|]+) \| (?P<first>[^|]*) \| (?P<today>[^|]*) \| (?P<mark>[^|]*) \|$", re.MULTILINE)
"""A row of the page: figure, when it was first measured, today, mark."""


def page_rows(text: str) -> dict[str, re.Match[str]]:
    """The rows of the page by name, without the heading."""
    return {m["name"].strip(): m for m in LINE.finditer(text) if m["name"].strip() not in ("figure", "---")}


def written(text: str) -> str:
    """The page with today's figures; a new row has no first figure, and one that the table lacks goes."""
    known = page_rows(text)
    lines = ["| figure | first | today | mark |", "|---|---|---|---|"]
    for row in rows():
        first = known[row.name]["first"].strip() if row.name in known else ""
        lines.append(f"| {row.name} | {first} | {row.figure()} | {'' if row.mark is None else row.mark} |")
    return re.sub(r"^\| figure .*(?:\n\|.*)*", lambda _: "\n".join(lines), text, count=1, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of the house.")
    parser.add_argument("--write", action="store_true", help="put them into docs/house.md")
    parser.add_argument("--list", action="store_true", help="name long files and functions with many arguments")
    args = parser.parse_args()
    if args.list:
        for lines, file in long_files():
            print(f"{file}: {lines} lines")
        for t in with_arguments(MANY):
            print(f"{t.place}: {t.name} takes {t.arguments}, {t.positional} by position")
    elif args.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        for row in rows():
            print(f"{row.figure():>6}  {row.name}{'' if row.mark is None else f' (mark: {row.mark})'}", flush=True)


if __name__ == "__main__":
    main()
