"""Another partition of a program into kernels: two kernels that an edge joins as one, or a kernel in two at an edge (G-29).

The decision is a whole partition document; its estimate is the sum of the best plans of the resulting Regions, of which only
the changed ones are planned anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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


def fusion(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """Partitions that differ from the program's own at one edge, for every program that runs at each call. The subject is the
    hash of the tiny Program. Empty if the model was given as a later stage."""
    stages = compilation.stages
    if stages.get_made("tiny") is None and "partition" not in stages:
        return []
    out: list[Proposal] = []
    for name in stages["tiny"].programs:
        if name != "setup" and name in stages["partition"]:
            found = sorted(_OfProgram(compilation, name, sizes).proposals(), key=_seconds)
            out += found[:MOST]
    return out


def _seconds(p: Proposal) -> float:
    return float("inf") if p.estimate is None else p.estimate


class _OfProgram:
    """The partitions of one program and their estimates."""

    def __init__(self, compilation: Compilation, name: str, sizes: Mapping[str, int]) -> None:
        stages = compilation.stages
        self.program, self.view = stages["tiny"].programs[name], stages["poly_view"].programs[name]
        self.book, self.partition = stages["indexbook"].programs[name], stages["partition"][name]
        self.assumed = Assumed(self.program.signature.assumptions)
        self.pricing = Pricing(compilation, name, sizes)
        self.own = self.pricing.of_own()
        self.groups = Regrouping(self.program, self.view, self.partition, compilation.target.kind)
        self.subject = program_key(self.program)

    def proposals(self) -> Iterator[Proposal]:
        """One for each edge that can be cut or joined and is not estimated to be far slower."""
        seen = {self.partition.groups}
        for edge in self._edges():
            for made, how in ((self.groups.cut(edge), "apart"), (self.groups.joined(edge), "together")):
                if made is None or made.groups in seen:
                    continue
                seen.add(made.groups)
                proposal = self._proposal(made, f"{edge.producer} and {edge.consumer} {how}")
                if proposal is not None:
                    yield proposal

    def _edges(self) -> list[Edge]:
        """The edges that may be fused, those with the most bytes first."""
        nodes = {n.id: n for n in self.program.nodes}

        def size(edge: Edge) -> float:
            node = nodes[edge.producer]
            return estimate(product(node.shape), self.pricing.sizes) * node.dtype.itemsize

        return sorted((e for e in self.view.edges if e.fusible), key=size, reverse=True)[:MOST_TRIED]

    def _proposal(self, made: Partition, line: str) -> Proposal | None:
        """The proposal of a partition; None if the compiler would refuse it, or it is estimated to be far slower."""
        if check_partition(made, self.program, self.view):
            return None
        kept = {g.values: f"r{k}" for k, g in enumerate(self.partition.groups)}
        changed = [k for k, g in enumerate(made.groups) if g.values not in kept]
        names = {name for values, name in kept.items() if values not in {g.values for g in made.groups}}
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


def _text(seconds: list[float | None]) -> str:
    count = f"{len(seconds)} kernel{'s' if len(seconds) != 1 else ''}"
    return f"{count} of {' + '.join('?' if s is None else f'{s * 1e6:.3g}' for s in seconds)} us"
