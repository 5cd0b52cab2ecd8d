"""Mutants are what they say, a rule that no test asks for survives, and the record of the verifiers has a reason for each survivor."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.areas import AREAS, ROOT, Area, definitions, digest_of, mutants_of
from tests.mutation.operators import mutants
from tests.mutation.page import PAGE, page, read_record
from tests.mutation.runner import put
from tests.mutation.survivors import REASONS

MOST_SURVIVORS = 0.05
"""Share of the mutants of a file that no test notices."""


def changes(source: str) -> list[str]:
    return [m.what for m in mutants(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a and b:\n    f()", ["`a and b` → `False`", "`a and b` → `b`", "`a and b` → `a`", "without `f()`"][1:]),
        ("if a < b:\n    x = 1\nelse:\n    x = y", ["`a < b` → `False`", "`a < b` → `True`", "`a < b` → `a <= b`", "`1` → `2`", "`1` → `0`"]),
        ("x = len(a) != n", ["`len(a) != n` → `len(a) < n`", "`len(a) != n` → `len(a) > n`", "`len(a) != n` → `len(a) == n`"]),
        ("for x in y:\n    f(x)", ["`y` → `()`", "without `f(x)`"]),
        ("fault(f'{a + 1}', a + 1)", ["without `fault(f'{a + 1}', a + 1)`"]),
        ("x = y in ('a', 'b')", ["`y in ('a', 'b')` → `y not in ('a', 'b')`", "without 'a' of `('a', 'b')`", "without 'b' of `('a', 'b')`"]),
        ("match x:\n    case A() | B():\n        y = z", ["without `case A() | B()`", "without `| A()`", "without `| B()`"]),
        ("def f() -> list[int]:\n    return g()", ["`g()` → `[]`"]),
        ("def f() -> bool:\n    return g()", ["`g()` → `True`", "`g()` → `False`"]),
        ("x = all(f(y) for y in z if y)", ["`all((f(y) for y in z if y))` → `any((f(y) for y in z if y))`", "`z` → `()`", "`y` → `True`"]),
    ],
)  # fmt: skip
def test_mutants_of_a_statement(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


def test_a_changed_function_is_called_by_whoever_holds_it() -> None:
    module = ModuleType("held")
    module.__file__ = "held.py"
    source = "LIMIT = 3\nclass C:\n    def small(self, n: int) -> bool:\n        return n < LIMIT\ndef f(n):\n    return C().small(n)\n"
    exec(source, module.__dict__)
    held, small = module.__dict__["f"], module.__dict__["C"].small
    assert held(2) and not held(3)
    tree = ast.parse(source)
    next(m for m in mutants(tree) if m.what == "`n < LIMIT` → `n <= LIMIT`").apply()
    put(module, tree)
    assert held(3) and small(None, 3) and not held(4)


CHECKED = """
def faults(n: int, most: int) -> list[str]:
    out = []
    if n < 0:
        out.append("negative")
    if n > most:
        out.append("too much")
    return out
"""
TESTS = """
from checked import faults

def test_negative():
    assert faults(-1, 5) == ["negative"]
    assert faults(0, 5) == [] == faults(4, 5)

def test_too_much():
    assert faults(6, 5)
"""
RUN = """
import sys, pytest
from pathlib import Path
from tests.mutation.runner import Campaign

def told(path, outcomes):
    for o in outcomes:
        print("SURVIVES" if not o.killed_by else "killed", o.mutant.what)

root = Path(sys.argv[1])
sys.exit(pytest.main(["-s", "-q", "-p", "no:cacheprovider", "--rootdir", sys.argv[1], str(root)], plugins=[Campaign(root, ["checked.py"], told)]))
"""


def test_a_rule_that_no_test_asks_for_survives(tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(CHECKED)
    (tmp_path / "test_checked.py").write_text(TESTS)
    places = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], env=places, cwd=tmp_path, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith(("SURVIVES", "killed"))]
    assert [x for x in lines if x.startswith("SURVIVES")] == ["SURVIVES `n > most` → `n >= most`"], done.stdout + done.stderr
    assert len(lines) == 9


@pytest.mark.parametrize("path", sorted(AREAS))
def test_a_verifier_has_its_file_its_functions_and_its_tests(path: str) -> None:
    area = AREAS[path]
    tree = ast.parse((ROOT / path).read_text())
    assert len(definitions(tree, area)) == (len(area.functions) or len(tree.body))
    assert area.tests and [t for t in area.tests if not (ROOT / t.partition("::")[0]).is_file()] == []


def test_mutants_of_a_file_are_those_of_its_checks() -> None:
    path = "tatami/plan/cpu/streaming.py"
    assert {m.function for m in mutants_of(ast.parse((ROOT / path).read_text()), AREAS[path])} == {"_check"}


def test_a_record_knows_the_statements_that_were_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither layout nor comments nor messages are a change."""
    monkeypatch.setattr("tests.mutation.areas.ROOT", tmp_path)
    monkeypatch.setitem(AREAS, "f.py", Area((), ("f",)))
    digests = []
    said = "def f(a):\n    fault(f'{a} is no axis', 'use another', a)\n    return 1\n"
    for text in (
        said,
        said.replace("(1)", "1  # one").replace("no axis", "not an axis").replace("another", "one") + "g = 2\n",
        said.replace("return 1", "return 2"),
    ):
        (tmp_path / "f.py").write_text(text)
        digests.append(digest_of("f.py"))
    assert digests[0] == digests[1] != digests[2]


def test_each_reason_is_of_a_mutant_that_there_is() -> None:
    there = {
        (path, m.function, m.what)
        for path in {p for p, _, _ in REASONS}
        for m in mutants_of(ast.parse((ROOT / path).read_text()), AREAS[path])
    }
    assert [key for key in REASONS if key not in there] == []


@pytest.mark.parametrize("path", sorted(read_record()))
def test_survivors_are_few_and_have_reasons(path: str) -> None:
    row = read_record()[path]
    assert path in AREAS
    assert [s for s in row.survivors if (path, *s) not in REASONS] == []
    assert len(row.survivors) <= MOST_SURVIVORS * row.mutants


def test_the_page_is_made_of_the_record() -> None:
    assert PAGE.read_text() == page(read_record())
