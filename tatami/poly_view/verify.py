"""Checks of a PolyView: its structure against tiny and indexbook, and contractions that were lost."""

from __future__ import annotations

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ONE
from tatami.core.module import Module
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import ContractionPattern, PolyView, Statement
from tatami.tiny.ir import BitcastOp, CallOp, CastOp, Elementwise, Node, Program, ReduceOp

MAX_PIECES = 16
"""Maximum number of reads of one statement through different guards without the warning W2101."""


def verify(module: Module[PolyView], tiny: Module[Program], indexbook: Module[IndexBook]) -> list[Diagnostic]:
    """All faults and warnings, program by program."""
    found: list[Diagnostic] = []
    for name, view in module.programs.items():
        if name not in tiny.programs or name not in indexbook.programs:
            found.append(_broken(name, "no tiny program has that name", "give the view of a program of the module"))
            continue
        found.extend(verify_view(view, tiny.programs[name], indexbook.programs[name]))
    return found


def verify_view(view: PolyView, program: Program, book: IndexBook) -> list[Diagnostic]:
    """All faults and warnings of one view."""
    nodes = {n.id: n for n in program.nodes}
    statements = {s.value: s for s in view.statements}
    found: list[Diagnostic] = []
    sizes = {v for n in program.nodes for size in n.shape for v in free_vars(size)}
    sizes |= {v for n in program.nodes if isinstance(n.op, CallOp) for v in n.op.new_symbols}
    for s in view.statements:
        found.extend(_statement(s, nodes, book, sizes))
    for p in view.patterns:
        found.extend(_pattern(p, statements))
    order = {n.id: k for k, n in enumerate(program.nodes)}
    known = statements.keys() & order.keys()
    for e in view.edges:
        if e.producer not in known or e.consumer not in known:
            found.append(_broken(e.producer, f"the edge to {e.consumer} ends at no statement", "remove the edge"))
        elif order[e.producer] >= order[e.consumer]:
            found.append(_broken(e.producer, f"the edge to {e.consumer} runs against program order", "swap its ends"))
        elif not e.fusible and not e.rule:
            found.append(_broken(e.producer, f"the edge to {e.consumer} is forbidden by no rule", "name the rule"))
    found.extend(lost_contractions(view, program))
    return found


def _statement(s: Statement, nodes: dict[str, Node], book: IndexBook, sizes: set[str]) -> list[Diagnostic]:
    if s.value not in nodes or s.value not in book.values:
        return [_broken(s.value, "the statement computes a value that the program lacks", "remove it")]
    found = []
    info = book.values[s.value]
    if s.axes != info.axes or s.reduced != info.reduced:
        found.append(_broken(s.value, "its axes differ from the IndexBook's", "keep the axes of the IndexBook (spec 3 §5.2)"))
    known = sizes | {a.name for a in (*s.axes, *s.reduced)}
    for a in s.reads:
        if a.tensor not in nodes:
            found.append(_broken(s.value, f"it reads {a.tensor}, which does not exist", "read a value of the program"))
        elif len(a.map) != len(nodes[a.tensor].shape):
            why = f"it reads {a.tensor} with {len(a.map)} coordinates of {len(nodes[a.tensor].shape)}"
            found.append(_broken(s.value, why, "give one coordinate per axis of the tensor"))
        loose = {v for e in a.map if e is not None for v in free_vars(e)} - known
        if loose:
            found.append(
                _broken(
                    s.value, f"a coordinate names {sorted(loose)[0]}, which is neither an axis nor a size", "use its own axes"
                )
            )
    if len({a.guards for a in s.reads}) > MAX_PIECES:
        why = f"it has {len({a.guards for a in s.reads})} pieces; more than {MAX_PIECES} make slow kernels"
        found.append(diagnostic("ExcessivePiecewise", s.value, why, "join pads and slices, or store an intermediate value"))
    return found


def _pattern(p: ContractionPattern, statements: dict[str, Statement]) -> list[Diagnostic]:
    s = statements.get(p.value)
    if s is None or s.kind != "reduce":
        return [_broken(p.value, "a contraction pattern stands at a value that is not a reduce", "remove it")]
    roles = (*p.batch, *p.m, *p.n, *p.k)
    axes = [a.name for a in (*s.axes, *s.reduced) if a.size != ONE]
    if sorted(roles) != sorted(axes):
        why = f"its roles cover {', '.join(roles)} but its axes are {', '.join(axes)}"
        return [_broken(p.value, why, "give every axis of the reduce one role")]
    return []


def lost_contractions(view: PolyView, program: Program) -> list[Diagnostic]:
    """W2201 for every sum over a product with a free axis on both sides that no pattern holds, with the reason."""
    nodes = {n.id: n for n in program.nodes}
    statements = {s.value: s for s in view.statements}
    patterns = {p.value for p in view.patterns}
    uses: dict[str, int] = {}
    for s in view.statements:
        for tensor in {a.tensor for a in s.reads}:
            uses[tensor] = uses.get(tensor, 0) + 1
    found = []
    for s in view.statements:
        op = nodes[s.value].op if s.value in nodes else None
        if not isinstance(op, ReduceOp) or op.op.lower() != "sum" or s.value in patterns or len(s.reads) != 1:
            continue
        source, through_cast = s.reads[0].tensor, False
        while source in statements and isinstance(nodes[source].op, CastOp | BitcastOp) and statements[source].reads:
            source, through_cast = statements[source].reads[0].tensor, True
        mul = nodes[source].op if source in statements else None
        if not isinstance(mul, Elementwise) or mul.fn != "mul" or not _has_two_sides(statements[source]):
            continue
        if through_cast:
            why = f"a conversion stands between product {source} and the sum, so the product is rounded on its own"
        elif uses[source] > 1 or source in program.outputs:
            why = f"product {source} is used elsewhere too, so it has to be stored"
        elif s.reads[0].guards:
            why = f"product {source} is padded or sliced before the sum"
        else:
            why = "the summed axes do not occur in both operands"
        found.append(diagnostic("LostContraction", s.value, why, "let the sum alone read the product, directly"))
    return found


def _has_two_sides(product: Statement) -> bool:
    """True if each operand lacks an axis of the other, as in a matrix product."""
    if len(product.reads) != 2:
        return False
    names = {a.name for a in product.axes if a.size != ONE}
    left, right = ({v for e in a.map if e is not None for v in free_vars(e)} & names for a in product.reads)
    return bool(left - right) and bool(right - left) and bool(left & right)


def _broken(at: str, why: str, suggestion: str) -> Diagnostic:
    return diagnostic("InvalidDocument", at, why, suggestion)
