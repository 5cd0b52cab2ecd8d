"""From IndexBook to PolyView: the statements of each program, and facts about every edge between them (spec 3 §5).

A statement is a base value: anything computed, and in addition a movement or constant that must be in memory (a program
output, an argument of a call, gathered data); inputs and results of calls are memory.
"""

from __future__ import annotations

from typing import Literal, assert_never

from tatami.core.expr import Expr
from tatami.core.module import Module
from tatami.indexbook.ir import Guard, IndexBook, IndexInfo, Operand
from tatami.poly_view.edges import classify_edges
from tatami.poly_view.guards import GuardCache
from tatami.poly_view.ir import Dependence, Excluded, Outside, PolyAccess, PolyView, Statement
from tatami.poly_view.patterns import find_patterns, row_softmaxes
from tatami.tiny import ir as tiny_ir

Kind = Literal["elementwise", "reduce", "scan", "gather", "scatter", "generate", "copy"]


def extract(tiny: Module[tiny_ir.Program], indexbook: Module[IndexBook]) -> Module[PolyView]:
    """The polyhedral view of every program."""
    views = {name: extract_program(p, indexbook.programs[name]) for name, p in tiny.programs.items()}
    return Module(views, tiny.constants, tiny.origins)


def extract_program(program: tiny_ir.Program, book: IndexBook) -> PolyView:
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


def live_values(program: tiny_ir.Program, nodes: dict[str, tiny_ir.Node]) -> set[str]:
    """Values on which an output or a call depends."""
    live: set[str] = set()
    stack = [*program.outputs, *(n.id for n in program.nodes if isinstance(n.op, tiny_ir.CallOp))]
    while stack:
        value = stack.pop()
        if value not in live:
            live.add(value)
            stack.extend(nodes[value].src)
    return live


def resident_values(program: tiny_ir.Program, nodes: dict[str, tiny_ir.Node], book: IndexBook, live: set[str]) -> set[str]:
    """Movements and constants that need memory of their own; movements that are read as they are need it too."""
    out = {v for v in program.outputs if isinstance(nodes[v].op, (*tiny_ir.MOVEMENT, tiny_ir.ConstOp))}
    for node in program.nodes:
        if node.id not in live:
            continue
        if isinstance(node.op, tiny_ir.CallOp):
            out |= {v for v in node.src if isinstance(nodes[v].op, (*tiny_ir.MOVEMENT, tiny_ir.ConstOp))}
        elif (gathered := book.values[node.id].gathered) is not None and isinstance(
            nodes[gathered.value].op, (*tiny_ir.MOVEMENT, tiny_ir.ConstOp)
        ):
            out.add(gathered.value)
        for operand in book.values[node.id].operands:
            read = [p.read.value for p in operand.pieces if p.read is not None]
            out |= {v for v in read if isinstance(nodes[v].op, tiny_ir.MOVEMENT)}
    return out


def _kind(node: tiny_ir.Node, resident: set[str]) -> Kind | None:
    match node.op:
        case tiny_ir.Elementwise() | tiny_ir.CastOp() | tiny_ir.BitcastOp():
            return "elementwise"
        case tiny_ir.ReduceOp():
            return "reduce"
        case tiny_ir.ScanOp():
            return "scan"
        case tiny_ir.GatherOp():
            return "gather"
        case tiny_ir.ScatterOp():
            return "scatter"
        case tiny_ir.IotaOp() | tiny_ir.SizeOp() | tiny_ir.RandOp():
            return "generate"
        case tiny_ir.ConstOp():
            return "generate" if node.id in resident else None
        case tiny_ir.InputOp() | tiny_ir.CallOp() | tiny_ir.ResultOp():
            return None
        case (
            tiny_ir.ExpandOp()
            | tiny_ir.FlipOp()
            | tiny_ir.PadOp()
            | tiny_ir.PermuteOp()
            | tiny_ir.ReshapeOp()
            | tiny_ir.ShrinkOp()
            | tiny_ir.ViewOp()
        ):
            return "copy" if node.id in resident else None
        case _:
            assert_never(node.op)


def _excluded_reason(node: tiny_ir.Node) -> str:
    match node.op:
        case tiny_ir.CallOp(kind=kind):
            return f"call ({kind}): opaque to the compiler, a boundary on both sides"
        case tiny_ir.ResultOp():
            return "result of a call: memory written outside the DAG"
        case _:
            return ""


def _reads(
    node: tiny_ir.Node, kind: Kind, nodes: dict[str, tiny_ir.Node], info: IndexInfo, cache: GuardCache
) -> tuple[PolyAccess, ...]:
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


def _accesses(
    operand: Operand, extents: dict[str, Expr], nodes: dict[str, tiny_ir.Node], cache: GuardCache
) -> list[PolyAccess]:
    out = []
    for piece in operand.pieces:
        if piece.read is None or isinstance(nodes[piece.read.value].op, tiny_ir.ConstOp):
            continue
        guards = cache.needed(piece.guards, extents) if piece.guards else ()
        out.append(PolyAccess(piece.read.value, piece.read.map, guards))
    return out


def _outside(operand: Operand) -> list[Outside]:
    """The pieces of an operand that are a number: the points that no piece before them has."""
    out: list[Outside] = []
    groups: list[tuple[Guard, ...]] = []
    for piece in operand.pieces:
        if piece.fill is not None and groups and not piece.guards:
            out.append(Outside(tuple(groups), piece.fill))
        groups.append(piece.guards)
    return out


def _anti_dependences(
    program: tiny_ir.Program, nodes: dict[str, tiny_ir.Node], statements: list[Statement]
) -> list[Dependence]:
    """Dependences that let a mutable input be overwritten only after all of its readers."""
    inputs = {n.op.tensor_id: n.id for n in nodes.values() if isinstance(n.op, tiny_ir.InputOp)}
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
