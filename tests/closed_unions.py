"""Where a `match` over nodes of a closed union would pass over a new member in silence.

A union is closed where a module gives it a name: `RegionExpr`, `CpuPlan`, `Operation`. A `match` that names most members of
one ends in `assert_never`, so that the type checker lists it when a member comes. One that asks for a few members has a
default.
"""

from __future__ import annotations

import ast
import importlib
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec

PACKAGE = Path(__file__).parents[1] / "tatami"
MOST = 0.65
"""Minimum share of a union's members that a `match` names, for it to count as a match over the whole union."""
Unions = Mapping[str, frozenset[str]]


def unions() -> dict[str, frozenset[str]]:
    """Named unions of three records or more, with the names of their members."""
    found: dict[str, frozenset[str]] = {}
    for path in sorted(p for p in PACKAGE.rglob("*.py") if re.search(r"^\w+: TypeAlias = ", p.read_text(), re.MULTILINE)):
        module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        for name in re.findall(r"^(\w+): TypeAlias = ", path.read_text(), re.MULTILINE):
            kinds = members(getattr(module, name, None))
            if len(kinds) >= 3 and all(isinstance(k, type) and issubclass(k, msgspec.Struct) for k in kinds):
                found[f"{module.__name__.removeprefix('tatami.')}.{name}"] = frozenset(k.__name__ for k in kinds)
    return found


def members(union: Any) -> list[Any]:
    if get_origin(union) not in (Union, types.UnionType):
        return []
    return [m for arg in get_args(union) for m in (members(arg) or [arg])]


def named(pattern: ast.pattern) -> set[str]:
    """The classes that a pattern asks for."""
    match pattern:
        case ast.MatchClass(cls=cls):
            return {ast.unparse(cls).rpartition(".")[2]}
        case ast.MatchOr(patterns=patterns):
            return {name for p in patterns for name in named(p)}
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return named(inner)
        case _:
            return set()


def faults(text: str, closed: Unions) -> Iterator[tuple[int, str]]:
    """Line and union of each `match` that names most members of a union and does not end in `assert_never`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Match):
            continue
        asked = {name for case in node.cases for name in named(case.pattern)}
        fitting = [(len(kinds), name) for name, kinds in closed.items() if asked <= kinds and len(asked) >= MOST * len(kinds)]
        if fitting and "assert_never(" not in ast.unparse(node.cases[-1]):
            yield node.lineno, min(fitting)[1]
