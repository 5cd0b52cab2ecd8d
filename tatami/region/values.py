"""Values that must be in memory, and values that never are."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.poly_view.ir import PolyView, Statement
from tatami.tiny.ir import CallOp, CastOp, ConstOp, Elementwise, ExpandOp, IotaOp, Node, Program, ReshapeOp, SizeOp

MAX_VIRTUAL = 8
"""Operations of an index-only value that are repeated in each reader rather than stored."""


def resident_values(program: Program, view: PolyView) -> set[str]:
    """Values that must be in memory whatever is fused: outputs, arguments of calls, indexed data."""
    out = set(program.outputs)
    for node in program.nodes:
        if isinstance(node.op, CallOp):
            out.update(node.src)
    chained = {(e.producer, e.consumer) for e in view.edges if e.rule == "gather_chain"}
    for s in view.statements:
        if s.kind == "gather":
            out.update(a.tensor for a in s.reads if a.may and (a.tensor, s.value) not in chained)
    return out


def virtual_values(program: Program, view: PolyView, resident: set[str], target: str) -> set[str]:
    """Values so cheap that every reader repeats them: casts of what is already in memory, arithmetic on coordinates and
    sizes alone, constant factors of contraction operands, integers that only products (those of a row too) take in a wider type, gathers that only
    gathers read. On a GPU an operand of a contraction is not narrowed on the way: its loads are asynchronous copies, which
    convert nothing. It is rounded to tf32 in registers; on a CPU where it is packed, which `setup` does once for weights."""
    products = {p.product for p in view.patterns if p.pattern != "dot"}
    dots = {p.product for p in view.patterns if p.pattern == "dot"}
    readers: dict[str, set[str]] = {}
    for s in view.statements:
        for a in s.reads:
            readers.setdefault(a.tensor, set()).add(s.value)
    loaded = {v for v, by in readers.items() if by & products}
    packed = {v for v in loaded if readers[v] <= products}
    multiplied = {v for v, by in readers.items() if by <= products | dots}
    nodes = {n.id: n for n in program.nodes}
    statements = {s.value: s for s in view.statements}
    rules: dict[str, set[str]] = {}
    for e in view.edges:
        rules.setdefault(e.producer, set()).add(e.rule)
    cost: dict[str, int] = {}
    for s in view.statements:
        if s.value in resident:
            continue
        op = nodes[s.value].op
        if rules.get(s.value) == {"gather_chain"}:
            cost[s.value] = MAX_VIRTUAL
        elif isinstance(op, IotaOp | SizeOp | ConstOp):
            cost[s.value] = 0
        elif isinstance(op, CastOp) and all(a.tensor not in statements for a in s.reads):
            if not (target == "cuda" and s.value in loaded and nodes[s.value].dtype.is_narrow_float):
                cost[s.value] = MAX_VIRTUAL
        elif (
            isinstance(op, CastOp)
            and s.value in (multiplied if nodes[s.value].dtype.is_int else packed)
            and nodes[s.value].dtype.widens(nodes[nodes[s.value].src[0]].dtype)
        ):
            cost[s.value] = MAX_VIRTUAL
        elif op == Elementwise("tf32") and s.value in packed:
            if target == "cuda" or all(a.tensor not in statements for a in s.reads):
                cost[s.value] = MAX_VIRTUAL
        elif s.value in packed and _is_scaled_tensor(s, nodes, statements):
            cost[s.value] = MAX_VIRTUAL
        elif isinstance(op, Elementwise | CastOp) and all(a.tensor in cost for a in s.reads):
            total = 1 + sum(cost[a.tensor] for a in s.reads)
            if total <= MAX_VIRTUAL:
                cost[s.value] = total
    return set(cost)


def _is_scaled_tensor(s: Statement, nodes: Mapping[str, Node], statements: Mapping[str, Statement]) -> bool:
    """A tensor in memory times a constant: the factor leaves a contraction by R1."""
    op = nodes[s.value].op
    if not isinstance(op, Elementwise) or op.fn != "mul" or len(s.reads) != 1 or s.reads[0].tensor in statements:
        return False
    return nodes[s.value].dtype.is_float and any(_is_number(v, nodes) for v in nodes[s.value].src)


def _is_number(value: str, nodes: Mapping[str, Node]) -> bool:
    while isinstance(nodes[value].op, ExpandOp | ReshapeOp):
        value = nodes[value].src[0]
    return isinstance(nodes[value].op, ConstOp)
