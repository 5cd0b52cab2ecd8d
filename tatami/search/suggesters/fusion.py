"""Another partition of a program into kernels: two kernels that an edge joins as one, or a kernel in two at an edge (G-29).

The decision is a whole partition document; its estimate is the sum of the best plans of the resulting Regions, of which only
the changed ones are planned anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tatami.compilation import Compilation
from tatami.core.algebra.assumed import Assumed
from tatami.core.codec import to_builtins
from tatami.core.cost import estimate
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import product
from tatami.decisions import Decisions
from tatami.poly_view.ir import Edge
from tatami.region.canonicalise import canonical_region
from tatami.region.fusion.check import check_partition
from tatami.region.fusion.partition import program_key
from tatami.region.fusion.regrouped import Regrouping
from tatami.region.ir import Region
from tatami.region.lower import lower_program
from tatami.region.partition_ir import Partition
from tatami.search.proposal import Proposal
from tatami.search.suggesters.pricing import Pricing

MOST_TRIED = 64
"""Maximum number of edges of a program that are cut or joined: those with the most bytes."""
MOST = 20
"""Maximum number of proposals for a program: the fastest by estimate."""
FAR = 4.0
"""Ratio of the changed kernels' time to that of those in their place above which nothing is proposed."""


How: TypeAlias = Literal["apart", "together"]


@dataclass(frozen=True)
class Move:
    """One step from the partition of a program to another: its kernels `replaced` (numbers of groups) give way to `changed`
    (numbers of groups of `made`)."""

    program: str
    edge: Edge
    how: How
    made: Partition
    replaced: tuple[int, ...]
    changed: tuple[int, ...]
    proposal: Proposal


def fusion(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """Partitions that differ from the program's own at one edge, for every program that runs at each call. The subject is the
    hash of the tiny Program. Empty if the model was given as a later stage."""
    return [m.proposal for m in moves(compilation, sizes)]


def moves(compilation: Compilation, sizes: Mapping[str, int]) -> list[Move]:
    """The same as steps from the partition that each program has, the fastest of a program by estimate first."""
    stages = compilation.stages
    if stages.get_made("tiny") is None and "partition" not in stages:
        return []
    out: list[Move] = []
    for name in stages["tiny"].programs:
        if name != "setup" and name in stages["partition"]:
            found = sorted(_OfProgram(compilation, name, sizes).moves(), key=_seconds)
            out += found[:MOST]
    return out


def moved(compilation: Compilation, program: str, wanted: Sequence[Move]) -> tuple[Partition, list[Move]]:
    """(the partition of a program after these steps in order, the steps that were possible): one may stand against another."""
    stages = compilation.stages
    tiny, view = stages["tiny"].programs[program], stages["poly_view"].programs[program]
    found: Partition = stages["partition"][program]
    taken: list[Move] = []
    for m in wanted:
        groups = Regrouping(tiny, view, found, compilation.target.kind)
        made = groups.cut(m.edge) if m.how == "apart" else groups.joined(m.edge)
        if made is not None and not check_partition(made, tiny, view):
            found = made
            taken.append(m)
    return found, taken


def _seconds(m: Move) -> float:
    return float("inf") if m.proposal.estimate is None else m.proposal.estimate


class _OfProgram:
    """The partitions of one program and their estimates."""

    def __init__(self, compilation: Compilation, name: str, sizes: Mapping[str, int]) -> None:
        stages = compilation.stages
        self.name = name
        self.program, self.view = stages["tiny"].programs[name], stages["poly_view"].programs[name]
        self.book, self.partition = stages["indexbook"].programs[name], stages["partition"][name]
        self.assumed = Assumed(self.program.signature.assumptions)
        self.pricing = Pricing(compilation, name, sizes)
        self.own = self.pricing.of_own()
        self.groups = Regrouping(self.program, self.view, self.partition, compilation.target.kind)
        self.subject = program_key(self.program)

    def moves(self) -> Iterator[Move]:
        """One for each edge that can be cut or joined and is not estimated to be far slower."""
        seen = {self.partition.groups}
        for edge in self._edges():
            ways: tuple[tuple[Partition | None, How], ...] = (
                (self.groups.cut(edge), "apart"),
                (self.groups.joined(edge), "together"),
            )
            for made, how in ways:
                if made is None or made.groups in seen:
                    continue
                seen.add(made.groups)
                move = self._move(made, edge, how)
                if move is not None:
                    yield move

    def _edges(self) -> list[Edge]:
        """The edges that may be fused, those with the most bytes first."""
        nodes = {n.id: n for n in self.program.nodes}

        def size(edge: Edge) -> float:
            node = nodes[edge.producer]
            return estimate(product(node.shape), self.pricing.sizes) * node.dtype.itemsize

        return sorted((e for e in self.view.edges if e.fusible), key=size, reverse=True)[:MOST_TRIED]

    def _move(self, made: Partition, edge: Edge, how: How) -> Move | None:
        """The step to a partition; None if the compiler would refuse it, or it is estimated to be far slower."""
        if check_partition(made, self.program, self.view):
            return None
        changed = _others(made, self.partition)
        replaced = _others(self.partition, made)
        proposal = self._proposal(made, changed, {f"r{k}" for k in replaced}, f"{edge.producer} and {edge.consumer} {how}")
        return Move(self.name, edge, how, made, replaced, changed, proposal) if proposal is not None else None

    def _proposal(self, made: Partition, changed: Sequence[int], names: set[str], line: str) -> Proposal | None:
        """The proposal of a partition, whose groups `changed` stand for the Regions `names`."""
        try:
            body = lower_program(self.program, self.book, self.view, made, changed)[0].body
            new = [self.pricing.of_new(canonical_region(r, self.assumed)) for r in body if isinstance(r, Region)]
        except TatamiError:
            return None
        old = [self.own.get(name) for name in sorted(names)]
        rest = [s for name, s in self.own.items() if name not in names]
        decision = Decisions(partitions={self.subject: to_builtins(made)})
        numbers = f"{_text(new)} instead of {_text(old)}"
        known = [s for s in (*new, *old, *rest) if s is not None]
        if len(known) < len(new) + len(old) + len(rest):
            why = f"the cost model has no figure for a kernel: {numbers}"
            return Proposal("fusion", line, self.subject, decision, None, {}, why)
        terms = {k: sum(s or 0.0 for s in group) for k, group in (("changed", new), ("unchanged", rest), ("replaced", old))}
        if terms["changed"] > FAR * terms["replaced"]:
            return None
        return Proposal("fusion", line, self.subject, decision, terms["changed"] + terms["unchanged"], terms, numbers)


def _others(partition: Partition, than: Partition) -> tuple[int, ...]:
    """Numbers of the groups that the other partition does not have."""
    known = {g.values for g in than.groups}
    return tuple(k for k, g in enumerate(partition.groups) if g.values not in known)


def _text(seconds: list[float | None]) -> str:
    count = f"{len(seconds)} kernel{'s' if len(seconds) != 1 else ''}"
    return f"{count} of {' + '.join('?' if s is None else f'{s * 1e6:.3g}' for s in seconds)} us"
