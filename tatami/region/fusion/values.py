"""Values that must be in memory, and values that never are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.poly_view.ir import ContractionPattern, PolyAccess, PolyView, Statement
from tatami.tiny.ir import BitcastOp, CallOp, CastOp, ConstOp, Elementwise, ExpandOp, IotaOp, Node, Program, ReshapeOp, SizeOp
from tatami.tiny.views.narrow_factors import codes_of_factors

MAX_VIRTUAL = 8
"""Maximum operations of a value of coordinates that each reader repeats; longer ones are stored."""


def resident_values(program: Program, view: PolyView) -> set[str]:
    """Values that must be in memory however values are fused: outputs, arguments of calls, indexed data."""
    out = set(program.outputs)
    for node in program.nodes:
        if isinstance(node.op, CallOp):
            out.update(node.src)
    chained = {(e.producer, e.consumer) for e in view.edges if e.rule == "gather_chain"}
    out |= {s.value for s in view.statements if s.kind == "copy"}
    for s in view.statements:
        if s.kind == "gather":
            out.update(a.tensor for a in s.reads if a.may and (a.tensor, s.value) not in chained)
    return out


def virtual_values(
    program: Program,
    view: PolyView,
    resident: set[str],
    target: str,
    of_codes: Iterable[ContractionPattern] = (),
    stores_pairs: bool = False,
) -> set[str]:
    """Values so cheap that every reader repeats them: casts of values in memory, arithmetic on coordinates and sizes alone,
    constant factors of contraction operands, integers that only products (vector-matrix products included) widen, gathers
    that only gathers read.

    On a GPU an operand of a contraction is not narrowed on the way: its loads are asynchronous copies, which convert nothing.
    It is rounded to tf32 in registers; on a CPU it is rounded when it is packed, which `setup` does once for weights. fp8
    codes stay codes in the products `of_codes`; for others a GPU decodes them in a separate kernel. With `stores_pairs`,
    products take pairs of bf16, which they find in memory, so that a product's operand is rounded once and stored.
    """
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
    codes = multiplied_codes(of_codes, view, nodes)
    if target == "cpu":
        codes |= {v for found in codes_of_factors(program).values() for v in found.members}
        codes |= {v for p in packed for v in _widened(p, nodes, statements, resident)}
    cost: dict[str, int] = {}
    for s in view.statements:
        if s.value in resident:
            continue
        op = nodes[s.value].op
        if rules.get(s.value) == {"gather_chain"} or s.value in codes:
            cost[s.value] = MAX_VIRTUAL
        elif target == "cuda" and _is_decoding(nodes[s.value], nodes):
            continue
        elif isinstance(op, IotaOp | SizeOp | ConstOp):
            cost[s.value] = 0
        elif isinstance(op, CastOp) and all(a.tensor not in statements for a in s.reads):
            is_rounded = s.value in loaded and nodes[s.value].dtype.is_narrow_float
            is_pair = stores_pairs and nodes[s.value].dtype == DType.bf16
            if not (is_rounded and (target == "cuda" or is_pair)):
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


def _widened(v: str, nodes: Mapping[str, Node], statements: Mapping[str, Statement], resident: set[str]) -> set[str]:
    """The values between a product's operand `v` and a narrower tensor that is in memory whatever is fused, such as a cache of
    keys: a cast, perhaps times a scale in memory too. Empty for other operands."""
    if v not in statements or v in resident:
        return set()
    node, reads = nodes[v], [a.tensor for a in statements[v].reads]
    if isinstance(node.op, CastOp) and node.dtype == DType.fp32:
        held = nodes[node.src[0]].dtype
        is_narrow = held.is_narrow_float or held in (DType.i8, DType.u8)
        return {v} if is_narrow and resident.issuperset(reads) else set()
    apart = set(reads) - resident
    if node.op != Elementwise("mul") or len(reads) != 2 or len(apart) != 1:
        return set()
    (cast,) = apart
    is_cast = cast in nodes and isinstance(nodes[cast].op, CastOp)
    found = _widened(cast, nodes, statements, resident) if is_cast else set()
    return {v, *found} if found else set()


def multiplied_codes(patterns: Iterable[ContractionPattern], view: PolyView, nodes: Mapping[str, Node]) -> set[str]:
    """Values between fp8 codes in memory and the products that wgmma computes from codes: both operands are decoded from
    one dtype, memory rows run along k, and a row is a known multiple of 16 bytes. Only values whose readers all belong
    to these products."""
    statements = {s.value: s for s in view.statements}
    chains: dict[str, set[str]] = {}
    for p in patterns:
        operands = [_codes_along(a, p.k[-1], nodes, statements) for a in (p.lhs, p.rhs)]
        if all(operands) and len({nodes[nodes[chain[1]].src[0]].dtype for chain in operands}) == 1:
            chains[p.product] = {v for chain in operands for v in chain}
    while True:
        inner = set(chains).union(*chains.values())
        elsewhere = {a.tensor for s in view.statements if s.value not in inner for a in s.reads}
        kept = {product: chain for product, chain in chains.items() if not chain & elsewhere}
        if len(kept) == len(chains):
            return inner - set(chains)
        chains = kept


def _codes_along(access: PolyAccess, k: str, nodes: Mapping[str, Node], statements: Mapping[str, Statement]) -> tuple[str, ...]:
    """Values between a product's operand and the bytes that it reads along k: rounding, decoding, and the bitcast of bytes
    that a kernel made. () if the operand has no such form."""
    chain: list[str] = []
    while (
        access.tensor in statements and not access.guards and (len(chain) < 2 or isinstance(nodes[access.tensor].op, BitcastOp))
    ):
        node, own = nodes[access.tensor], statements[access.tensor]
        wrong = (not chain and node.op != Elementwise("tf32")) or (len(chain) == 1 and not _is_decoding(node, nodes))
        if wrong or len(own.reads) != 1:
            return ()
        chain.append(access.tensor)
        inner = own.reads[0]
        place = {a.name: e for a, e in zip(own.axes, access.map) if e is not None}
        access = PolyAccess(inner.tensor, tuple(e if e is None else substitute(e, place) for e in inner.map), inner.guards)
    last = nodes[access.tensor].shape[-1].as_int() if access.map else None
    is_in_rows = last is not None and last % 16 == 0 and not access.guards and access.map[-1] == var(k)
    return tuple(chain) if len(chain) >= 2 and is_in_rows else ()


def _is_decoding(node: Node, nodes: Mapping[str, Node]) -> bool:
    return isinstance(node.op, CastOp) and nodes[node.src[0]].dtype.is_fp8


def _is_scaled_tensor(s: Statement, nodes: Mapping[str, Node], statements: Mapping[str, Statement]) -> bool:
    """True if `s` is a tensor in memory times a constant: the factor leaves a contraction by R1."""
    op = nodes[s.value].op
    if not isinstance(op, Elementwise) or op.fn != "mul" or len(s.reads) != 1 or s.reads[0].tensor in statements:
        return False
    return nodes[s.value].dtype.is_float and any(_is_number(v, nodes) for v in nodes[s.value].src)


def _is_number(value: str, nodes: Mapping[str, Node]) -> bool:
    while isinstance(nodes[value].op, ExpandOp | ReshapeOp):
        value = nodes[value].src[0]
    return isinstance(nodes[value].op, ConstOp)
