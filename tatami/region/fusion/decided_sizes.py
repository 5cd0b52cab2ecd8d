"""Sizes that a step between kernels decides, as edges of the graph: values that use such a symbol come after the step.

    n13 = sum of n0;  S = host extent(n13);  n17[i < S] = …      n17 reads nothing of n13, and yet no kernel can hold both

A value uses the symbols of its own extents and those in the indices, guards and extents of its reads.

Exchanges with other processes begin one after another, so that each comes after the one before it: no kernel can hold a value that
an exchange sends and one that needs the result of a later exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr
from tatami.core.numbers.collectives import COLLECTIVES
from tatami.poly_view.ir import Statement
from tatami.tiny.ir import CallOp, Node, Program, SizeOp


class DecidedSizes:
    """The steps that a value comes after without reading them: those whose symbols it uses, and for an exchange the one before it.
    Empty for a program in which no step decides a size, with one exchange at most."""

    def __init__(self, program: Program, statements: Mapping[str, Statement]) -> None:
        owner = {s: n.id for n in program.nodes if isinstance(n.op, CallOp) for s in n.op.new_symbols}
        self.steps: dict[str, tuple[str, ...]] = {}
        for node in program.nodes if owner else ():
            used = [*_of_node(node), *(_of_statement(statements[node.id]) if node.id in statements else ())]
            found = dict.fromkeys(owner[s] for e in used for s in sorted(free_vars(e)) if s in owner)
            found.pop(node.id, None)
            if found:
                self.steps[node.id] = tuple(found)
        self.exchanges = _exchanges(program)
        """Exchanges with other processes, in the order in which all processes begin them."""
        place = {n.id: k for k, n in enumerate(program.nodes)}
        for one, following in pairwise(self.exchanges):
            if place[one] < place[following]:  # else the order of instructions alone keeps to it
                self.steps[following] = tuple(dict.fromkeys((*self.before(following), one)))

    def before(self, value: str) -> tuple[str, ...]:
        """Ids of the steps that must run before `value`; empty if there are none."""
        return self.steps.get(value, ())


def _exchanges(program: Program) -> list[str]:
    """Ids of the exchanges with other processes, in the order in which all processes begin them."""
    numbers = {
        n.id: number
        for n in program.nodes
        if isinstance(n.op, CallOp) and n.op.kind == "host" and n.op.targets[0] in COLLECTIVES
        if isinstance(number := n.op.attrs.get("number", 0), int)
    }
    return sorted(numbers, key=numbers.__getitem__)


def _of_node(node: Node) -> Iterable[Expr]:
    yield from node.shape
    match node.op:
        case SizeOp(value=value):
            yield value
        case CallOp(sizes=sizes):
            yield from sizes.values()
        case _:
            pass


def _of_statement(s: Statement) -> Iterable[Expr]:
    yield from (a.size for a in (*s.axes, *s.reduced))
    for access in s.reads:
        yield from (e for e in access.map if e is not None)
        yield from (e for g in access.guards for e in (g.index, g.size))
