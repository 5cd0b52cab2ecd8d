"""How often signatures and fields of the package say `Any`, by part: ``python -m tests.docs.any_count``.

A parameter or a result counts once if its annotation names `Any`, at any depth; so does a field, and an alias of a module
(``Array: TypeAlias = Any``), which would hide it from its users. Annotations written as text are read too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.docs.pages import ROOT

PACKAGE = ROOT / "tatami"
PARTS = (
    "core", "frontend", "tiny", "indexbook", "poly_view", "region", "poly_core", "plan", "loop", "gpu", "execution", "c", "cu",
    "emulated", "runtime", "harp", "onnx", "torch", "backends", "derivative",
)  # fmt: skip
ABOVE = "above"
"""The part of everything else: the modules and folders that see all layers."""
Kind = Literal["signature", "field", "alias"]


@dataclass(frozen=True)
class Use:
    """One place that says `Any`; `name` is the function and its parameter, the field or the alias."""

    kind: Kind
    line: int
    name: str


def names_any(annotation: ast.AST | None) -> bool:
    """True if the annotation names `Any`; the words of `Literal` are not names."""
    match annotation:
        case None | ast.Subscript(value=ast.Name(id="Literal")):
            return False
        case ast.Name(id="Any") | ast.Attribute(attr="Any"):
            return True
        case ast.Constant(value=str(text)):
            return names_any(_parsed(text))
        case _:
            return any(map(names_any, ast.iter_child_nodes(annotation)))


def _parsed(text: str) -> ast.expr | None:
    """The annotation that a text is; None for a key of a table, which an alias might be taken for."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def uses(text: str) -> Iterator[Use]:
    """The places of a module that say `Any`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            a = node.args
            for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
                if arg is not None and names_any(arg.annotation):
                    yield Use("signature", arg.lineno, f"{node.name}({arg.arg})")
            if names_any(node.returns):
                yield Use("signature", node.lineno, f"{node.name} -> {ast.unparse(node.returns or node)}")
        elif isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and names_any(field.annotation):
                    yield Use("field", field.lineno, f"{node.name}.{ast.unparse(field.target)}")
    for statement in tree.body:
        if (target := _alias(statement)) is not None:
            yield Use("alias", statement.lineno, target)


def _alias(statement: ast.stmt) -> str | None:
    """The name of a type alias whose meaning names `Any`."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
            is_alias = ast.unparse(annotation).endswith("TypeAlias")
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value):
            is_alias = isinstance(value, ast.Subscript | ast.BinOp | ast.Name | ast.Attribute)
        case _:
            return None
    return name if is_alias and names_any(value) else None


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first if first in PARTS else ABOVE


def counts() -> dict[str, dict[Kind, int]]:
    """Part -> how many places of each kind; parts and kinds without any are left out."""
    found: dict[str, Counter[Kind]] = {part: Counter() for part in (*PARTS, ABOVE)}
    for path in PACKAGE.rglob("*.py"):
        found[part_of(path)].update(use.kind for use in uses(path.read_text(encoding="utf-8")))
    return {part: dict(sorted(count.items())) for part, count in found.items() if count}


def main() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        for use in uses(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{use.line}: {use.kind} {use.name}")
    for part, count in counts().items():
        print(f'    "{part}": {count},')


if __name__ == "__main__":
    main()
