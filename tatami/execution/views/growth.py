"""Loops whose state has other sizes in each turn: how the sizes follow, where memory for larger ones serves smaller ones too.

    body (state: i64[B, T]) -> (i64[B, T + 1])        T -> T + 1

Compiled code makes the turns of such a loop until a size exceeds what its memory has room for (runtime/cpu/turns.py). That is
sound if no buffer of the body, and of what it calls, needs more memory at smaller sizes: the offsets of an arena that was
planned for the room then hold for every turn up to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.order import is_nondecreasing
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, var
from tatami.execution.frames import Layouts, callees
from tatami.execution.ir import ExecutionPlan, Instruction, Loop


def growths(layouts: Layouts) -> dict[str, dict[str, Expr]]:
    """Body -> its size symbols that change -> their values in the next turn, as expressions of the body's symbols. Bodies that
    Python, or memory, has to follow turn by turn are absent."""
    found: dict[str, dict[str, Expr] | None] = {}
    for name in layouts.hosted:
        for ins in layouts.module.programs[name].instructions:
            if isinstance(ins.op, Loop) and ins.op.varying:
                body, made = ins.op.body, _growth(layouts, ins, ins.op)
                found[body] = made if found.get(body, made) == made else None
    return {body: made for body, made in found.items() if made is not None}


def _growth(layouts: Layouts, ins: Instruction, op: Loop) -> dict[str, Expr] | None:
    """How sizes follow in the turns of one loop; None where they do not follow from sizes alone, or memory could shrink."""
    if op.body in layouts.hosted:
        return None
    body = layouts.module.programs[op.body]
    info = {b.id: b for b in body.buffers}
    inputs = [info[id] for id in body.input_buffers if info[id].kind == "input"]
    captured = inputs[len(inputs) - (len(ins.inputs) - 2 - op.carried) :]
    state = inputs[len(inputs) - len(captured) - op.carried : len(inputs) - len(captured)]
    results = [info[id] for id in body.output_buffers]
    if any(b.layout is not None for b in (*state, *results)):
        return None
    axes: list[tuple[Expr, Expr]] = []
    for before, after in zip(state, results[1:]):
        if len(before.shape) != len(after.shape):
            return None
        axes += zip(before.shape, after.shape)
    following = {name: after for before, after in axes if (name := before.as_name()) in op.varying and name is not None}
    following = {name: after for name, after in following.items() if after != var(name)}
    names = frozenset(following)
    fixed = [size for b in (*captured, *results[1 + op.carried :]) for size in b.shape]
    if any(substitute(before, following) != after for before, after in axes):
        return None
    if not names.isdisjoint([*op.sizes, *body.signature.must_bind]) or any(free_vars(size) & names for size in fixed):
        return None
    if not all(is_nondecreasing(after, names) for after in following.values()):
        return None
    return following if _needs_no_more(layouts.module.programs, op.body, names, set()) else None


def _needs_no_more(
    plans: Mapping[str, ExecutionPlan], program: str, names: frozenset[str], seen: set[tuple[str, frozenset[str]]]
) -> bool:
    """True if no buffer of the program, or of those that it calls, is proved not to shrink where `names` rise."""
    if (program, names) in seen or not names:
        return True
    seen.add((program, names))
    plan = plans[program]
    if not all(is_nondecreasing(b.elements, names) for b in plan.buffers if not b.parent):
        return False
    for ins in plan.instructions:
        given: Mapping[str, Expr] = getattr(ins.op, "sizes", {})
        inner = frozenset(name for name, size in given.items() if free_vars(size) & names)
        if not all(is_nondecreasing(given[name], names) for name in inner):
            return False
        if not all(_needs_no_more(plans, callee, inner, seen) for callee in callees(ins)):
            return False
    return True
