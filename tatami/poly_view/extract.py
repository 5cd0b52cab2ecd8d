"""From IndexBook to PolyView: the statements of each program, and facts about every edge between them (spec 3 §5).

A statement is a base value: anything computed, and in addition a movement or constant that must be in memory (a program
output, an argument of a call, gathered data); inputs and results of calls are memory.
"""

from __future__ import annotations

from typing import Literal, assert_never

from tatami.core.expr import Expr
from tatami.core.module import Module
from tatami.indexbook.ir import IndexBook, IndexInfo, Operand
from tatami.poly_view.edges import classify_edges
from tatami.poly_view.guards import GuardCache
from tatami.poly_view.ir import Dependence, Excluded, Outside, PolyAccess, PolyView, Statement
from tatami.poly_view.patterns import find_patterns, row_softmaxes
from tatami.tiny.ir import (
    MOVEMENT,
    BitcastOp,
    CallOp,
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    FlipOp,
    GatherOp,
    InputOp,
    IotaOp,
    Node,
    PadOp,
    PermuteOp,
    Program,
    RandOp,
    ReduceOp,
    ReshapeOp,
    ResultOp,
    ScanOp,
    ScatterOp,
    ShrinkOp,
    SizeOp,
    ViewOp,
)

Kind = Literal["elementwise", "reduce", "scan", "gather", "scatter", "generate", "copy"]


def extract(tiny: Module[Program], indexbook: Module[IndexBook]) -> Module[PolyView]:
    """The polyhedral view of every program."""
    views = {name: extract_program(p, indexbook.programs[name]) for name, p in tiny.programs.items()}
    return Module(views, tiny.constants, tiny.origins)


def extract_program(program: Program, book: IndexBook) -> PolyView:
    """The polyhedral view of one program."""
    nodes = {node.id: node for node in program.nodes}
    live = live_values(program, nodes)
    resident = resident_values(program, nodes, book, live)
    statements: list[Statement] = []
    excluded: list[Excluded] = []
    cache = GuardCache()
    for node in program.nodes:
        if node.id not in live:
            continue
        kind = _kind(node, resident)
        if kind is None:
            reason = _excluded_reason(node)
            if reason:
                excluded.append(Excluded(node.id, reason))
            continue
        info = book.values[node.id]
        reads = _reads(node, kind, nodes, info, cache)
        outside = tuple(dict.fromkeys(o for x in info.operands for o in _outside(x)))
        statements.append(Statement(node.id, kind, info.axes, info.reduced, reads, outside))
        if kind in ("gather", "scatter"):
            excluded.append(Excluded(node.id, f"{kind}: the index is data, so the access is a may-access of whole axes"))
    by_value = {s.value: s for s in statements}
    patterns = find_patterns(program, nodes, by_value)
    edges = classify_edges(by_value, nodes, {p.value: p for p in patterns})
    dependences = [Dependence("true", e.producer, e.consumer) for e in edges]
    dependences.extend(_anti_dependences(program, nodes, statements))
    softmaxes = row_softmaxes(patterns, by_value)
    return PolyView(tuple(statements), patterns, edges, tuple(dependences), tuple(excluded), softmaxes)


def live_values(program: Program, nodes: dict[str, Node]) -> set[str]:
    """Values on which an output or a call depends."""
    live: set[str] = set()
    stack = [*program.outputs, *(n.id for n in program.nodes if isinstance(n.op, CallOp))]
    while stack:
        value = stack.pop()
        if value not in live:
            live.add(value)
            stack.extend(nodes[value].src)
    return live


def resident_values(program: Program, nodes: dict[str, Node], book: IndexBook, live: set[str]) -> set[str]:
    """Movements and constants that need memory of their own."""
    out = {v for v in program.outputs if isinstance(nodes[v].op, (*MOVEMENT, ConstOp))}
    for node in program.nodes:
        if node.id not in live:
            continue
        if isinstance(node.op, CallOp):
            out |= {v for v in node.src if isinstance(nodes[v].op, (*MOVEMENT, ConstOp))}
        elif (gathered := book.values[node.id].gathered) is not None and isinstance(
            nodes[gathered.value].op, (*MOVEMENT, ConstOp)
        ):
            out.add(gathered.value)
    return out


def _kind(node: Node, resident: set[str]) -> Kind | None:
    match node.op:
        case Elementwise() | CastOp() | BitcastOp():
            return "elementwise"
        case ReduceOp():
            return "reduce"
        case ScanOp():
            return "scan"
        case GatherOp():
            return "gather"
        case ScatterOp():
            return "scatter"
        case IotaOp() | SizeOp() | RandOp():
            return "generate"
        case ConstOp():
            return "generate" if node.id in resident else None
        case InputOp() | CallOp() | ResultOp():
            return None
        case ExpandOp() | FlipOp() | PadOp() | PermuteOp() | ReshapeOp() | ShrinkOp() | ViewOp():
            return "copy" if node.id in resident else None
        case _:
            assert_never(node.op)


def _excluded_reason(node: Node) -> str:
    match node.op:
        case CallOp(kind=kind):
            return f"call ({kind}): opaque to the compiler, a boundary on both sides"
        case ResultOp():
            return "result of a call: memory written outside the DAG"
        case _:
            return ""


def _reads(node: Node, kind: Kind, nodes: dict[str, Node], info: IndexInfo, cache: GuardCache) -> tuple[PolyAccess, ...]:
    extents = {a.name: a.size for a in (*info.axes, *info.reduced)}
    out: list[PolyAccess] = []
    if info.gathered is not None:
        out.append(PolyAccess(info.gathered.value, info.gathered.map, may=True))
    for position, operand in enumerate(info.operands):
        for access in _accesses(operand, extents, nodes, cache):
            if kind == "scatter" and position:
                access = PolyAccess(access.tensor, access.map, access.guards, may=True)
            out.append(access)
    return tuple(dict.fromkeys(out))


def _accesses(operand: Operand, extents: dict[str, Expr], nodes: dict[str, Node], cache: GuardCache) -> list[PolyAccess]:
    out = []
    for piece in operand.pieces:
        if piece.read is None or isinstance(nodes[piece.read.value].op, ConstOp):
            continue
        guards = cache.needed(piece.guards, extents) if piece.guards else ()
        out.append(PolyAccess(piece.read.value, piece.read.map, guards))
    return out


def _outside(operand: Operand) -> list[Outside]:
    """The pieces of an operand that are a number: the points that no piece before them has."""
    out, groups = [], []
    for piece in operand.pieces:
        if piece.fill is not None and groups and not piece.guards:
            out.append(Outside(tuple(groups), piece.fill))
        groups.append(piece.guards)
    return out


def _anti_dependences(program: Program, nodes: dict[str, Node], statements: list[Statement]) -> list[Dependence]:
    """Dependences that let a mutable input be overwritten only after all of its readers."""
    inputs = {n.op.tensor_id: n.id for n in nodes.values() if isinstance(n.op, InputOp)}
    readers: dict[str, list[str]] = {}
    for s in statements:
        for access in s.reads:
            readers.setdefault(access.tensor, []).append(s.value)
    out: dict[Dependence, None] = {}
    for output, value in zip(program.signature.outputs, program.outputs):
        if output.updates and output.updates in inputs:
            for reader in readers.get(inputs[output.updates], ()):
                if reader != value:
                    out.setdefault(Dependence("anti", reader, value))
    return list(out)
