"""Operands and results of the native routines, which read and write memory by the shapes that they are given.

sort           x -> values of x's type, i64 positions of its shape
topk           x -> values, i64 positions: x's shape but along the axis
tree_ensemble  x[rows, features], nodes, roots, targets, values (core/numbers/trees.py) -> [rows, outputs]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr
from tatami.core.numbers.trees import COLUMNS, HOW

Typed: TypeAlias = tuple[DType, Shape]
COUNTS = {"sort": (1, 2), "topk": (1, 2), "tree_ensemble": (5, 1)}
"""Routine -> (number of operands, number of results)."""


ATTRIBUTES: dict[str, dict[str, type]] = {
    "sort": {"axis": int, "descending": bool},
    "topk": {"axis": int, "largest": bool, "k": int},
    "tree_ensemble": {"outputs": int, "how": int},
}
"""Routine -> its attributes and their types."""
REQUIRED = {"topk": frozenset({"k"}), "tree_ensemble": frozenset({"outputs"})}
"""Routine -> names of the attributes that have no default."""


def routine_fault(routine: str, operands: Sequence[Typed], results: Sequence[Typed], attrs: Mapping[str, Any]) -> str:
    """Why the routine cannot be called with these types; empty if it can, or if it is not a native routine."""
    if routine not in COUNTS:
        return ""
    types = ATTRIBUTES[routine]
    if unknown := sorted(attrs.keys() - types.keys()):
        return f"{routine} has no attribute {unknown[0][:40]!r}"
    if wrong := next((n for n in sorted(attrs) if type(attrs[n]) is not types[n]), ""):
        return f"attribute {wrong} of {routine} is {repr(attrs[wrong])[:40]}, which is not of type {types[wrong].__name__}"
    if missing := sorted(REQUIRED.get(routine, frozenset()) - attrs.keys()):
        return f"{routine} needs the attribute {missing[0]!r}"
    if (len(operands), len(results)) != COUNTS[routine]:
        takes, gives = COUNTS[routine]
        return f"{routine} of {len(operands)} operands to {len(results)} results; it takes {takes} and gives {gives}"
    return _trees(operands, results[0], attrs) if routine == "tree_ensemble" else _order(routine, operands[0], results, attrs)


def _order(routine: str, x: Typed, results: Sequence[Typed], attrs: Mapping[str, Any]) -> str:
    (dtype, shape), (values, at), (positions, at_too) = x, *results
    axis = attrs.get("axis", -1)
    if values != dtype or positions != DType.i64 or at != at_too or len(at) != len(shape):
        return f"{routine} of {dtype} gives {dtype} and i64 of one shape and rank"
    if not -max(len(shape), 1) <= axis < max(len(shape), 1):
        return f"axis {axis!r} of rank {len(shape)}"
    along = axis % max(len(shape), 1)
    if any(a != b for k, (a, b) in enumerate(zip(at, shape, strict=True)) if k != along or routine == "sort"):
        return f"{routine} along axis {along} keeps the other sizes"
    kept, there = (at[along].as_int(), shape[along].as_int()) if shape else (1, 1)
    if kept is not None and there is not None and not 0 <= kept <= there:
        return f"the first {kept} of {there}"
    if kept is not None and attrs.get("k", kept) != kept:
        return f"k {attrs['k']} where the result keeps {kept}"
    return ""


def _trees(operands: Sequence[Typed], result: Typed, attrs: Mapping[str, Any]) -> str:
    (dtype, x), nodes, roots, targets, (of_values, values) = operands
    if not 0 <= attrs.get("how", 0) < len(HOW):
        return f"how {attrs['how']}: trees are combined in the ways 0 to {len(HOW) - 1}"
    tables = all(t[0] == DType.i32 and len(t[1]) == rank for t, rank in ((nodes, 2), (roots, 1), (targets, 1)))
    if dtype not in COLUMNS or len(x) != 2 or not tables or nodes[1][1] != expr(COLUMNS[dtype]):
        return "tables of trees are i32, as many columns as the dtype of x has"
    if of_values != dtype or len(values) != 2 or values[0] != targets[1][0]:
        return f"the leaves have {dtype} values, a row for each target"
    if result[0] != dtype or len(result[1]) != 2 or result[1][0] != x[0]:
        return f"the result is {dtype} with the rows of x"
    if result[1][1] != expr(attrs["outputs"]):
        return f"{attrs['outputs']} outputs of a row in a result of {result[1][1]}"
    return ""
