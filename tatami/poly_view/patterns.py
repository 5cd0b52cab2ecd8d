"""Contractions: a REDUCE(SUM) of a MUL of two operands (spec 3 §5.2, §10(3)).

    acc[i0, i1] = sum over r0 of A[i0, r0] * B[r0, i1]      ->  matmul, m = i0, n = i1, k = r0

The operands may be base values in memory or computed ones (a softmax, an epilogue); the product itself must be used by this
reduce alone. Axes are sorted into roles by the operands they occur in.
"""

from __future__ import annotations

from typing import Literal

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ONE, Expr
from tatami.poly_view.ir import ContractionPattern, PolyAccess, RowSoftmax, Statement
from tatami.tiny.ir import ConstOp, Elementwise, Node, Program, ReduceOp


def find_patterns(program: Program, nodes: dict[str, Node], statements: dict[str, Statement]) -> tuple[ContractionPattern, ...]:
    """One pattern per contraction, in program order, with the roles of attention marked."""
    uses: dict[str, set[str]] = {}
    for s in statements.values():
        for access in s.reads:
            uses.setdefault(access.tensor, set()).add(s.value)
    for value in program.outputs:
        uses.setdefault(value, set()).add("")
    found = []
    for s in statements.values():
        pattern = _pattern(s, nodes, statements, uses)
        if pattern is not None:
            found.append(pattern)
    return tuple(_mark_attention(found, nodes, statements))


def _pattern(
    s: Statement, nodes: dict[str, Node], statements: dict[str, Statement], uses: dict[str, set[str]]
) -> ContractionPattern | None:
    op = nodes[s.value].op
    if not isinstance(op, ReduceOp) or op.op.lower() != "sum" or len(s.reads) != 1 or s.reads[0].guards:
        return None
    read = s.reads[0]
    product = statements.get(read.tensor)
    if product is None or uses[product.value] != {s.value}:
        return None
    mul = nodes[product.value].op
    if not isinstance(mul, Elementwise) or mul.fn != "mul" or len(product.reads) not in (1, 2):
        return None
    sources = nodes[product.value].src
    if any(isinstance(nodes[v].op, ConstOp) for v in sources):
        return None
    into: dict[str, Expr] = {}
    for axis, entry in zip(product.axes, read.map):
        if entry is None or (axis.size != ONE and entry.as_name() is None):
            return None
        into[axis.name] = entry
    reads = product.reads if len(product.reads) == 2 else (product.reads[0], product.reads[0])
    lhs, rhs = (_renamed(access, into) for access in reads)
    return _classify(s, product.value, lhs, rhs)


def _renamed(access: PolyAccess, into: dict[str, Expr]) -> PolyAccess:
    from tatami.indexbook.ir import Guard

    return PolyAccess(
        access.tensor,
        tuple(None if e is None else substitute(e, into) for e in access.map),
        tuple(Guard(substitute(g.index, into), g.size) for g in access.guards),
        access.may,
    )


def _axes_of(access: PolyAccess, names: set[str]) -> set[str]:
    out: set[str] = set()
    for entry in access.map:
        if entry is not None:
            out |= free_vars(entry) & names
    return out


def _classify(s: Statement, product: str, lhs: PolyAccess, rhs: PolyAccess) -> ContractionPattern | None:
    kept = [a.name for a in s.axes if a.size != ONE]
    k = tuple(a.name for a in s.reduced if a.size != ONE)
    names = {*kept, *k}
    in_lhs, in_rhs = _axes_of(lhs, names), _axes_of(rhs, names)
    if not k or not set(k) <= in_lhs or not set(k) <= in_rhs:
        return None
    batch = tuple(a for a in kept if a in in_lhs and a in in_rhs)
    m = tuple(a for a in kept if a in in_lhs and a not in in_rhs)
    n = tuple(a for a in kept if a in in_rhs and a not in in_lhs)
    if len(batch) + len(m) + len(n) != len(kept):
        return None
    if not m and n:
        lhs, rhs, m, n = rhs, lhs, n, m
    offsets = {**_offsets("lhs", lhs, names), **_offsets("rhs", rhs, names)}
    kind: Literal["matmul", "batched_matmul", "conv", "dot"]
    if any(free_vars(e) & set(k) and free_vars(e) & set(kept) for e in offsets.values()):
        kind = "conv"
    elif not (m and n):
        kind = "dot"
    else:
        kind = "batched_matmul" if batch else "matmul"
    return ContractionPattern(s.value, product, kind, lhs, rhs, batch, m, n, k, offsets)


def _offsets(side: str, access: PolyAccess, names: set[str]) -> dict[str, Expr]:
    """Coordinates that mix axes or shift one."""
    out = {}
    for d, entry in enumerate(access.map):
        if entry is not None and entry.as_name() is None and free_vars(entry) & names:
            out[f"{side}.{d}"] = entry
    return out


def _mark_attention(
    found: list[ContractionPattern], nodes: dict[str, Node], statements: dict[str, Statement]
) -> list[ContractionPattern]:
    """The patterns with names for the two contractions around a row softmax: the second reads the first's result, through
    elementwise values and row reduces only (spec 3 §15.3)."""
    by_value = {p.value: i for i, p in enumerate(found)}
    roles = [""] * len(found)
    for i, pattern in enumerate(found):
        for access in (pattern.lhs, pattern.rhs):
            source, reduces = _softmax_source(access.tensor, statements, by_value)
            if source is not None and reduces:
                roles[by_value[source]] = "qk_matmul"
                roles[i] = "pv_matmul"
    return [
        p if not role else ContractionPattern(**{f: getattr(p, f) for f in p.__struct_fields__ if f != "role"}, role=role)
        for p, role in zip(found, roles)
    ]


def row_softmaxes(found: tuple[ContractionPattern, ...], statements: dict[str, Statement]) -> tuple[RowSoftmax, ...]:
    """The softmaxes between the contractions that `_mark_attention` has named."""
    by_value = {p.value: i for i, p in enumerate(found)}
    out = []
    for pattern in found:
        for access in (pattern.lhs, pattern.rhs) if pattern.role == "pv_matmul" else ():
            source, reduces = _softmax_source(access.tensor, statements, by_value)
            if source is not None and reduces:
                out.append(RowSoftmax(access.tensor, source, reduces))
    return tuple(out)


def _softmax_source(
    value: str, statements: dict[str, Statement], patterns: dict[str, int], limit: int = 48
) -> tuple[str | None, tuple[str, ...]]:
    """(the only contraction behind `value` or None, the reduces between), searching at most `limit` values back."""
    seen: set[str] = set()
    stack = [value]
    sources: set[str] = set()
    reduces: set[str] = set()
    while stack:
        v = stack.pop()
        if v in seen or v not in statements:
            continue
        seen.add(v)
        if len(seen) > limit:
            return None, ()
        s = statements[v]
        if v in patterns:
            sources.add(v)
            continue
        if s.kind == "reduce":
            reduces.add(v)
        elif s.kind not in ("elementwise", "generate"):
            return None, ()
        stack.extend(a.tensor for a in s.reads)
    return (next(iter(sources)), tuple(v for v in statements if v in reduces)) if len(sources) == 1 else (None, ())
