"""Groups of values while a partition grows: what each has, and the sizes of its values."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.cost import estimate
from tatami.core.expr import Expr, maximum, product
from tatami.poly_view.ir import Edge, PolyView, Statement
from tatami.region.form.axis_classes import AxisClasses
from tatami.region.fusion.group_graph import GroupGraph
from tatami.region.fusion.values import resident_values
from tatami.tiny.ir import (
    Node,
    Program,
    ScanOp,
)


class Growth:
    """Kind, accumulator and reduces of a group while it grows."""

    __slots__ = ("acc", "kind", "reduces")

    def __init__(self, kind: str, acc: str | None, reduces: list[str]) -> None:
        self.kind = kind  # map, rows, contraction, scan, scatter, call
        self.acc = acc
        self.reduces = reduces


class GrowingGroups:
    """The groups of one program: `graph` and `growths` by group; `axes` that values of a group share. `sizes`: usual values
    of size symbols."""

    def __init__(self, program: Program, view: PolyView, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.nodes: dict[str, Node] = {n.id: n for n in program.nodes}
        self.statements: dict[str, Statement] = {s.value: s for s in view.statements}
        self.edges: dict[tuple[str, str], Edge] = {(e.producer, e.consumer): e for e in view.edges}
        self.resident = resident_values(program, view)
        self.uses: dict[str, set[str]] = {v: set() for v in self.nodes}
        """The statements that read each value; none where only an output or a step without a statement does."""
        for s in view.statements:
            for a in s.reads:
                self.uses.setdefault(a.tensor, set()).add(s.value)
        self.graph = GroupGraph()
        self.growths: dict[int, Growth] = {}
        scanned = {v: f"i{n.op.axis}" for v, n in self.nodes.items() if isinstance(n.op, ScanOp)}
        self.axes = AxisClasses(self.statements, scanned)

    def growth_of(self, value: str) -> Growth:
        """The group that holds `value`."""
        return self.growths[self.graph.group_of[value]]

    def has_one_use(self, producer: str, consumer: str) -> bool:
        """True if nothing but `consumer` reads `producer`, and no output or call keeps it in memory."""
        return self.uses[producer] == {consumer} and producer not in self.resident

    def numel(self, v: str) -> Expr:
        """Number of elements of `v`."""
        return product(a.size for a in self.statements[v].axes)

    def domain(self, v: str) -> Expr:
        """Points at which `v` reads its operands (a scatter: the elements of the larger of target and updates)."""
        s = self.statements[v]
        if s.kind == "scatter":
            return maximum(self.numel(v), product(a.size for a in s.reduced))
        return product(a.size for a in (*s.axes, *s.reduced))

    def bytes(self, v: str) -> float:
        """Estimated bytes of `v` in memory."""
        return estimate(self.numel(v), self.sizes) * self.nodes[v].dtype.itemsize
