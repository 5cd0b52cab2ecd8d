"""Streaming pairs: contraction -> operations on its rows -> contraction whose k is the first one's n axis.

    S = sum_d Q*K ;  M = max_n S ;  A = exp(S - M) ;  Z = sum_n A ;  P = A / Z ;  O = sum_n P * V

One Region holds all of it (D2.9): the reduces over n can run online while the second contraction streams. Attention is the
best-known case, but softmax is not required. Weights that are pointwise in the scores, as in sum_n sigmoid(S) * V, need no
reduce; then the pair is one Region only if that saves time (`is_worth`). Such weights may be made of several contractions, as
in dS = P * (sum_d dO*V - D). Other values computed from the rows' reduces join the Region and are written in addition to the
result, one per row: ``L = M + log Z``, which a gradient reads.

Pairs with pointwise weights may share what these are made of (S and dO*V in the gradients of queries, keys and values): if
every reader of a shared value is one of these pairs, each pair computes it again, and no array of rows x keys is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE, Expr
from tatami.poly_view.ir import ContractionPattern, Edge, PolyAccess, Statement
from tatami.tiny.ir import Elementwise, Node, ReduceOp

MAX_COLUMNS = 512
"""Maximum number of columns of the second result that a tile keeps on chip."""
MAX_VALUES = 48
"""Maximum number of additional values that join a pair, to bound compile time."""


class Pair(msgspec.Struct, frozen=True):
    """A streaming pair: first contractions, the weights made of them, and the contraction that multiplies them. `unit`: all
    values of the pair; `apart`: value of the unit → its readers outside; `is_reduced`: True if the rows have reduces."""

    firsts: tuple[str, ...]
    weights: str
    second: str
    unit: tuple[str, ...]
    apart: dict[str, set[str]]
    is_reduced: bool


IsWorth: TypeAlias = Callable[[Sequence[Pair]], bool]
"""True if pairs with pointwise weights that share values (or one pair alone) are faster as one Region each."""


class ProgramValues(NamedTuple):
    """The values of a program, with what is known of each."""

    nodes: Mapping[str, Node]
    statements: dict[str, Statement]
    patterns: dict[str, ContractionPattern]
    edges: dict[tuple[str, str], Edge]
    uses: dict[str, set[str]]
    """Names of the readers of each value."""
    resident: set[str]
    """Values that are in memory whatever is fused, such as results."""


def streaming_units(program: ProgramValues, is_worth: IsWorth) -> dict[str, list[str]]:
    """Second contraction → every value of its pair, both products included. A value that several pairs share is in each of
    them."""
    taken: set[str] = set()
    out: dict[str, list[str]] = {}
    sharing: dict[str, Pair] = {}
    for second in program.patterns.values():
        if second.pattern == "dot" or second.value in taken:
            continue
        for access in (second.lhs, second.rhs):
            pair = _pair(second, access, program)
            if pair is None or not taken.isdisjoint(pair.unit):
                continue
            if pair.apart:
                sharing.setdefault(second.value, pair)
            elif pair.is_reduced or is_worth([pair]):
                out[second.value] = list(pair.unit)
                taken.update(pair.unit)
                break
    left = [p for s, p in sharing.items() if s not in out and taken.isdisjoint(p.unit)]
    for pairs in _clusters(_closed(left)):
        if is_worth(pairs):
            out |= {p.second: list(p.unit) for p in pairs}
    return out


def _closed(pairs: list[Pair]) -> list[Pair]:
    """The pairs whose inner values are read by pairs of the result only."""
    kept = [p for p in pairs if all(_makes(v, u, pairs) for v, readers in p.apart.items() for u in readers)]
    return kept if len(kept) == len(pairs) else _closed(kept)


def _makes(value: str, reader: str, pairs: list[Pair]) -> bool:
    return any(value in p.unit and reader in p.unit for p in pairs)


def _clusters(pairs: list[Pair]) -> list[list[Pair]]:
    """Pairs grouped by shared values, directly or through other pairs."""
    out: list[list[Pair]] = []
    for pair in pairs:
        near = [c for c in out if any(set(pair.unit) & set(p.unit) for p in c)]
        out = [c for c in out if c not in near] + [[*(p for c in near for p in c), pair]]
    return out


def _pair(second: ContractionPattern, operand: PolyAccess, program: ProgramValues) -> Pair | None:
    """The pair whose second contraction is `second`, with weights `operand`; None if they make none."""
    nodes, statements, patterns, edges, uses, resident = program
    behind = _closure(operand.tensor, statements, patterns)
    if behind is None:
        return None
    firsts, values = behind
    if _follow_one_another(firsts, statements, patterns):
        return None
    columns = [a.size for a in statements[second.value].axes if a.name in (second.n if operand is second.lhs else second.m)]
    if any((size.as_int() or MAX_COLUMNS + 1) > MAX_COLUMNS for size in columns):
        return None
    inner = _depending_on(firsts, values, statements)
    reduced = any(statements[v].kind == "reduce" for v in inner)
    if reduced and len(firsts) > 1:
        return None
    if reduced:
        key = next((d for d, at in enumerate(operand.map) if _names(at) & set(second.k)), -1)
        inner += _beside(firsts, inner, key, nodes, statements)
    unit = [*(v for first in firsts for v in (patterns[first].product, first)), *inner, second.product, second.value]
    inside, order = set(unit), {v: k for k, v in enumerate(nodes)}
    shared: dict[str, set[str]] = {}
    for v in unit[:-1]:
        apart = uses.get(v, set()) - inside
        if not apart and v not in resident:
            continue
        of_a_row = v in inner and _rank(statements[v]) < _rank(statements[firsts[0]])
        if not reduced and not of_a_row and v not in resident:
            shared[v] = apart
        elif not of_a_row or any(order[u] < order[second.value] for u in apart):
            return None
    for v in unit:
        rules = ("pointwise", "reshape") if statements[v].kind == "copy" else ("pointwise",)
        if any(edges[p, v].rule not in rules for a in statements[v].reads if (p := a.tensor) in inside):
            return None
    if not all(_same_rows(patterns[first], second, operand, inner, statements) for first in firsts):
        return None
    return Pair(tuple(firsts), operand.tensor, second.value, tuple(unit), shared, reduced)


def _follow_one_another(firsts: list[str], statements: dict[str, Statement], patterns: dict[str, ContractionPattern]) -> bool:
    """True if one of the products depends on another's result."""
    if len(firsts) < 2:
        return False
    order = {v: k for k, v in enumerate(statements)}
    oldest = min(order[f] for f in firsts)
    stack = [a.tensor for f in firsts for a in statements[patterns[f].product].reads]
    seen: set[str] = set()
    while stack:
        v = stack.pop()
        if v in firsts:
            return True
        if v not in seen and order.get(v, -1) > oldest:
            seen.add(v)
            stack.extend(a.tensor for a in statements[v].reads)
    return False


def _closure(
    value: str, statements: dict[str, Statement], patterns: dict[str, ContractionPattern]
) -> tuple[list[str], list[str]] | None:
    """(the contractions behind `value`, the values on the way), oldest first; None if the way is not pointwise."""
    seen: dict[str, None] = {}
    first: set[str] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        if v in seen or v not in statements:
            continue
        if v in patterns and patterns[v].pattern != "dot":
            first.add(v)
            continue
        seen[v] = None
        if len(seen) > MAX_VALUES or statements[v].kind not in ("elementwise", "reduce", "generate"):
            continue
        stack.extend(a.tensor for a in statements[v].reads)
    return ([v for v in statements if v in first], list(seen)) if first else None


def _depending_on(firsts: list[str], values: list[str], statements: dict[str, Statement]) -> list[str]:
    """The members of `values` that depend on one of `firsts`, in program order."""
    order = {v: k for k, v in enumerate(statements)}
    reached = {*firsts}
    out = []
    for v in sorted(values, key=order.__getitem__):
        if any(a.tensor in reached for a in statements[v].reads):
            reached.add(v)
            out.append(v)
    return out


def _beside(
    firsts: list[str], inner: list[str], key: int, nodes: Mapping[str, Node], statements: dict[str, Statement]
) -> list[str]:
    """Other values computed from the pair's values alone, in program order: pointwise ones, and sums of weights over axis
    number `key`. Other reduces are left out, since no template would take the Region with them."""
    made = {*firsts, *inner}
    out: list[str] = []
    for v, s in statements.items():
        own = [a for a in s.reads if a.tensor in made]
        others = {a.tensor for a in s.reads} - made
        if v in made or not own or any(o not in statements or statements[o].kind != "generate" for o in others):
            continue
        reduced = {a.name for a in s.reduced}
        along = all(key < len(a.map) and _names(a.map[key]) & reduced for a in own)
        along = along and _is_sum_of_weights(v, made - {*firsts}, nodes, statements)
        moved = s.kind == "copy" and _rank(s) == min(_rank(statements[a.tensor]) for a in own)
        if (s.kind == "elementwise" or along or moved) and len(out) < MAX_VALUES:
            made.add(v)
            out.append(v)
    return out


def _is_sum_of_weights(v: str, made: set[str], nodes: Mapping[str, Node], statements: dict[str, Statement]) -> bool:
    """True if `v` is a sum of exp(x) with x computed from scores and their maximum."""
    operand = statements[v].reads[0].tensor
    if not _is_reduce(nodes[v], "sum") or operand not in made or nodes[operand].op != Elementwise("exp"):
        return False
    behind: set[str] = set()
    stack = [operand]
    while stack:
        if (x := stack.pop()) in made - behind:
            behind.add(x)
            stack.extend(a.tensor for a in statements[x].reads)
    reduces = [x for x in behind if statements[x].kind == "reduce"]
    return bool(reduces) and all(_is_reduce(nodes[x], "max") for x in reduces)


def _is_reduce(node: Node, op: str) -> bool:
    return isinstance(node.op, ReduceOp) and node.op.op == op


def _names(at: Expr | None) -> frozenset[str]:
    return free_vars(at) if at is not None else frozenset()


def _rank(s: Statement) -> int:
    return sum(a.size != ONE for a in s.axes)


def _same_rows(
    first: ContractionPattern,
    second: ContractionPattern,
    operand: PolyAccess,
    inner: list[str],
    statements: dict[str, Statement],
) -> bool:
    """True if every reduce on the way removes exactly one axis, and the second contraction's k has the extent of the first
    one's rows or columns."""
    k = set(second.k)
    if len(k) != 1:
        return False
    for v in inner:
        s = statements[v]
        if s.kind == "reduce" and len([a for a in s.reduced if a.size != ONE]) != 1:
            return False
        if s.kind not in ("elementwise", "reduce", "copy"):
            return False
    sizes = {a.name: a.size for a in statements[first.value].axes}
    widths = {sizes[a] for a in (*first.n, *first.m)}
    k_size = next(a.size for a in statements[second.value].reduced if a.name in k)
    return k_size in widths
