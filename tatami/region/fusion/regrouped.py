"""Partitions that differ from a given one at one edge: its two groups as one, or its group in two.

groups  (a b) (c)      join b -> c    (a b c)
        (a b c)        cut  b -> c    (a b) (c)      c and what needs it of the group follow; cheap values are repeated
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tatami.poly_view.ir import Edge, PolyView
from tatami.region.fusion.decided_sizes import DecidedSizes
from tatami.region.fusion.values import resident_values, virtual_values
from tatami.region.partition_ir import Group, Partition
from tatami.tiny.ir import Program

Values = frozenset[str]


class Regrouping:
    """The groups of one program and the values that its edges join."""

    def __init__(self, program: Program, view: PolyView, partition: Partition, target_kind: str) -> None:
        self.order = {n.id: k for k, n in enumerate(program.nodes)}
        self.sources: dict[str, tuple[str, ...]] = {n.id: n.src for n in program.nodes}
        self.sources |= {s.value: tuple(a.tensor for a in s.reads) for s in view.statements}
        decided = DecidedSizes(program, {s.value: s for s in view.statements})
        self.sources = {v: (*read, *decided.before(v)) for v, read in self.sources.items()}
        self.groups = [frozenset(g.values) for g in partition.groups]
        self.virtual = virtual_values(program, view, resident_values(program, view), target_kind)
        self.homes: dict[str, list[int]] = {}
        for k, group in enumerate(self.groups):
            for v in group:
                self.homes.setdefault(v, []).append(k)

    def home(self, value: str) -> int | None:
        """The number of the only group that computes a value; None if several repeat it, or none computes it."""
        places = self.homes.get(value, [])
        return places[0] if len(places) == 1 and value not in self.virtual else None

    def joined(self, edge: Edge) -> Partition | None:
        """The two groups of the edge as one; None if that closes a circle or the edge is inside a group."""
        producer, consumer = self.home(edge.producer), self.home(edge.consumer)
        if producer is None or consumer is None or producer == consumer:
            return None
        others = [g for k, g in enumerate(self.groups) if k not in (producer, consumer)]
        return self._ordered([*others, self.groups[producer] | self.groups[consumer]])

    def cut(self, edge: Edge) -> Partition | None:
        """The group of the edge in two; None if the edge joins two groups or its producer needs the consumer too."""
        home = self.home(edge.producer)
        if home is None or self.home(edge.consumer) != home:
            return None
        group = self.groups[home]
        after = {edge.consumer}
        for v in sorted(group, key=self.order.__getitem__):
            if after & {*self.sources[v]}:
                after.add(v)
        before = group - after
        if edge.producer in after:
            return None
        others = [g for k, g in enumerate(self.groups) if k != home]
        return self._ordered([*others, self._with_virtual(before - self.virtual, group), self._with_virtual(after, group)])

    def _with_virtual(self, own: Iterable[str], group: Values) -> Values:
        """The values with the virtual ones of `group` that they read."""
        found = set(own)
        stack = [*found]
        while stack:
            for v in self.sources[stack.pop()]:
                if v in group and v in self.virtual and v not in found:
                    found.add(v)
                    stack.append(v)
        return frozenset(found)

    def _ordered(self, groups: Sequence[Values]) -> Partition | None:
        """The groups in data-flow order; None if they form a circle."""
        makers: dict[str, set[int]] = {}
        for k, g in enumerate(groups):
            for v in g:
                makers.setdefault(v, set()).add(k)
        waiting = {k: self._needs(g, makers) for k, g in enumerate(groups)}
        first = {k: min(self.order[v] for v in g) for k, g in enumerate(groups) if g}
        if len(first) < len(groups):
            return None
        out: list[Group] = []
        done: set[int] = set()
        while waiting:
            ready = [k for k, needs in waiting.items() if needs <= done]
            if not ready:
                return None
            k = min(ready, key=first.__getitem__)
            out.append(Group(tuple(sorted(groups[k], key=self.order.__getitem__))))
            done.add(k)
            del waiting[k]
        return Partition(tuple(out))

    def _needs(self, group: Values, makers: Mapping[str, set[int]]) -> set[int]:
        """Numbers of the groups that a group reads. A value that several groups repeat is read from the group itself."""
        needs: set[int] = set()
        for v in group:
            for read in self.sources[v]:
                if read not in group:
                    needs |= self._makers_of(read, makers)
        return needs

    def _makers_of(self, value: str, makers: Mapping[str, set[int]]) -> set[int]:
        """The groups that a value in memory comes from, through movement that no group computes."""
        found: set[int] = set()
        stack = [value]
        while stack:
            v = stack.pop()
            if v in makers:
                found.add(min(makers[v]))
            else:
                stack += self.sources.get(v, ())
        return found
