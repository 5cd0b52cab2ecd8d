"""The table on top of `tatami/pipeline.py` says what the function below it does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tatami.pipeline as pipeline

PACKAGE = Path(pipeline.__file__).parent
SOURCE = Path(pipeline.__file__).read_text(encoding="utf-8")


def table() -> dict[str, tuple[set[str], str]]:
    """Stage -> the stages it is made from, and the file that makes it, in the order of the rows."""
    page = ast.get_docstring(ast.parse(SOURCE), clean=False)
    assert page is not None
    rows = [re.split(r" {2,}", line.strip()) for line in page.splitlines() if line.startswith("    ")]
    head, *rest = rows
    assert head == ["stage", "made from", "made by", "what it is"]
    return {name: ({s for s in re.split(r", | or ", made_from) if s != "(given)"}, file) for name, made_from, file, _ in rest}


def made_from(source: str) -> dict[str, set[str]]:
    """Stage -> the stages that its maker reads, from the calls `s.add(name, maker)`, in their order."""
    out: dict[str, set[str]] = {}
    for call in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name("s"), attr="add"), args=[ast.Constant(str(name)), maker]):
                out.setdefault(name, set()).update(read_by(maker))
            case _:
                pass
    return out


def read_by(maker: ast.expr) -> set[str]:
    """Names of stages in ``s[name]`` and ``s.get_made(name)``; the name may be chosen by a condition."""
    out: set[str] = set()
    for node in ast.walk(maker):
        match node:
            case ast.Subscript(value=ast.Name("s"), slice=ast.Constant(str(name))):
                out.add(name)
            case ast.Subscript(value=ast.Name("s"), slice=ast.IfExp(body=ast.Constant(str(a)), orelse=ast.Constant(str(b)))):
                out |= {a, b}
            case ast.Call(func=ast.Attribute(value=ast.Name("s"), attr="get_made"), args=[ast.Constant(str(name))]):
                out.add(name)
            case _:
                pass
    return out


def without_reference(source: str) -> str:
    """The chain of the reference target interprets the graph: it has no rows."""
    return re.sub(r'\n    if target.kind == "reference":\n.*?return\n', "\n", source, flags=re.DOTALL)


def test_each_row_says_what_its_stage_is_made_from() -> None:
    code = made_from(without_reference(SOURCE))
    rows = table()
    assert {name: stages for name, (stages, _) in rows.items()} == code
    for name, (_, file) in rows.items():
        assert name == "frontend" or (PACKAGE / file).is_file(), f"{name}: there is no file {file}"


def test_rows_stand_in_the_order_of_the_chain() -> None:
    seen: set[str] = set()
    for name, (stages, _) in table().items():
        assert stages <= seen, f"{name} stands before {stages - seen}"
        seen.add(name)


def test_a_stage_that_reads_another_one_is_found() -> None:
    changed = SOURCE.replace('extract(s["tiny"], s["indexbook"])', 'extract(s["tiny"], s["calls"])')
    assert changed != SOURCE
    assert made_from(without_reference(changed))["poly_view"] == {"tiny", "calls"}
