"""Elementwise values with one reader become part of it, so that a reduce has its whole body inside (SRNF)."""

from __future__ import annotations

from tatami.region.ir import At, Binary, Const, Let, Reduce, Ref, Region, RegionExpr
from tatami.region.rules.inlining import inline_lets, is_elementwise, uses_of_lets, yielded_lets
from tatami.region.rules.movement import is_view
from tatami.region.views.dequantised import find_dequantised, find_quantised_rows
from tatami.region.walk import LetUse, Types, let_uses, lets_by_name, nodes, used_lets

MAX_NODES = 48
"""Maximum number of nodes of an inlined expression; larger ones stay in lets."""


def inline_single_use(region: Region) -> Region:
    """A let that is read once, at its own axes, and not written goes into its reader. Values that follow a reduce over its own
    axes, and that no other reduce needs, keep one let per operation: the epilogue of the reduce (R3).

    s = x - mx;  e = exp(s)                   ->   e = exp(x - mx)
    q [m, k] = Q[m, k] * 0.125;  sum over k of q * K[n, k]   ->   sum over k of (Q[m, k] * 0.125) * K[n, k]
    c1 = acc + bias;  c2 = relu(c1)           stays
    """
    uses = uses_of_lets(region)
    lets = lets_by_name(region)
    keep = yielded_lets(region) | _epilogues(region)
    sizes: dict[str, int] = {}
    chosen: set[str] = set()
    for let in region.lets:
        inner = list(nodes(let.expr))
        sizes[let.name] = len(inner) + sum(sizes[n.let] for n in inner if isinstance(n, Ref | At) and n.let in chosen)
        where = uses[let.name]
        if let.name in keep or len(where) != 1 or where[0].mapped:
            continue
        if where[0].scope != set(let.axes) and not is_scaled_view(let.expr):
            continue
        if sizes[let.name] <= MAX_NODES and is_elementwise(let.expr):
            chosen.add(let.name)

    def decide(let: Let, use: LetUse) -> bool:
        return let.name in chosen

    return inline_lets(region, decide) if chosen and lets else region


def inline_dequantised(region: Region) -> Region:
    """A matrix that is dequantised from memory, and rows of integers with scales, go into the sums of products that read it, however often they repeat it: their
    kernel reads codes, and widens them in registers.

    d [k, n] = cast(w[k, n], fp32) * s[k//32, n];  sum over k of x[m, k] * d
    ->   sum over k of x[m, k] * (cast(w[k, n], fp32) * s[k//32, n])
    """
    types, kept = Types(region), yielded_lets(region)

    def is_chosen(let: Let) -> bool:
        if let.name in kept or not let.axes:
            return False
        rows = find_quantised_rows(let.expr, types, let.axes[-1])
        return rows is not None or find_dequantised(let.expr, types) is not None

    chosen = {let.name for let in region.lets if is_chosen(let)}
    return inline_lets(region, lambda let, use: let.name in chosen) if chosen else region


def is_scaled_view(e: RegionExpr) -> bool:
    """True if `e` is a read times a constant: as cheap as the read, however often it is repeated."""
    match e:
        case Binary(fn="mul", x=x, y=y):
            scaled = (is_view(x) and isinstance(y, Const)) or (isinstance(x, Const) and is_view(y))
            return scaled and not let_uses(e)
        case _:
            return False


def _epilogues(region: Region) -> set[str]:
    """Lets over exactly the axes of a reduce they read, directly or through other epilogues, that no later reduce needs."""
    lets = lets_by_name(region)
    feeding: set[str] = set()
    for let in reversed(region.lets):
        if let.name in feeding or any(isinstance(n, Reduce) for n in nodes(let.expr)):
            feeding.update(used_lets(let.expr))
    owners: dict[str, frozenset[str]] = {}
    out = set()
    for let in region.lets:
        if not is_elementwise(let.expr):
            owners[let.name] = frozenset(let.axes)
            continue
        if any(owners.get(u) == frozenset(let.axes) for u in used_lets(let.expr)):
            owners[let.name] = frozenset(let.axes)
            if let.name not in feeding:
                out.add(let.name)
    return out & set(lets)
