"""Do the operands and results of a native routine fit it? Its C text reads them by what is checked here (c/runtime_text).

sort           x                                  -> values as x, positions (i64) as x
topk           x                                  -> the same with k elements along `axis`
tree_ensemble  x, nodes, roots, targets, values   -> a row of outputs for every row of x (core/trees.py)
"""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.core.layout import MemRef
from tatami.core.trees import COLUMNS
from tatami.region.ir import Opaque, Region
from tatami.region.walk import routine_operands


def verify_routine(region: Region, opaque: Opaque) -> list[Diagnostic]:
    """What of an opaque Region does not fit its routine. Names of routines are checked where they get a kernel."""
    refs = {p.name: p.memref for p in region.inputs}
    operands = [refs[o] for o in routine_operands(region) if o in refs]
    results = [t.memref for t in region.outputs]
    match opaque.routine:
        case "sort" | "topk":
            why = _order_fault(opaque, operands, results)
        case "tree_ensemble":
            why = _tree_fault(operands, results)
        case _:
            why = ""
    return [diagnostic("InvalidRegion", region.name, why, f"give {opaque.routine} what it takes")] if why else []


def _order_fault(opaque: Opaque, operands: list[MemRef], results: list[MemRef]) -> str:
    if len(operands) != 1 or len(results) != 2:
        return f"{opaque.routine} takes 1 operand and gives 2 results, not {len(operands)} and {len(results)}"
    (x,), (values, positions) = operands, results
    if (values.dtype, positions.dtype) != (x.dtype, DType.i64):
        return f"{opaque.routine} of {x.dtype} gives {x.dtype} and i64, not {values.dtype} and {positions.dtype}"
    axis, rank = opaque.attrs.get("axis", -1), len(x.shape)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -max(rank, 1) <= axis < max(rank, 1):
        return f"`axis` is {axis!r}; the operand has rank {rank}"
    wanted = list(x.shape)
    if opaque.routine == "topk":
        k = opaque.attrs.get("k")
        if isinstance(k, bool) or not isinstance(k, int) or k < 0 or not rank:
            return f"`k` is {k!r}; it is a number of elements of an axis"
        size = wanted[axis].as_int()
        if size is not None and k > size:
            return f"`k` is {k}; axis {axis} has {size} elements"
        wanted[axis] = expr(k)
    for found in (values, positions):
        if list(found.shape) != wanted:
            return f"a result of shape {_text(found.shape)}; {opaque.routine} gives {_text(wanted)}"
    return ""


def _tree_fault(operands: list[MemRef], results: list[MemRef]) -> str:
    if len(operands) != 5 or len(results) != 1:
        return f"tree_ensemble takes 5 operands and gives 1 result, not {len(operands)} and {len(results)}"
    x, nodes, roots, targets, values = operands
    (out,) = results
    if x.dtype not in COLUMNS or any(d != DType.i32 for d in (nodes.dtype, roots.dtype, targets.dtype)):
        return "trees ask fp32 or fp64, and their tables are i32"
    if (values.dtype, out.dtype) != (x.dtype, x.dtype):
        return f"the values and the result of trees over {x.dtype} are {x.dtype}"
    if [len(r.shape) for r in (x, nodes, roots, targets, values, out)] != [2, 2, 1, 1, 2, 2]:
        return "x, nodes, values and the result of trees have rank 2, roots and targets rank 1"
    if nodes.shape[1] != expr(COLUMNS[x.dtype]) or targets.shape[0] != values.shape[0] or out.shape[0] != x.shape[0]:
        return "the tables of trees do not fit each other or the result"
    return ""


def _text(shape: tuple[Expr, ...] | list[Expr]) -> str:
    return f"[{', '.join(map(str, shape))}]"
