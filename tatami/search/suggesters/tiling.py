"""Another plan for a Region (G-34): another template, other tiles, other loops."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.compilation import Compilation
from tatami.search.alternatives import plans_of
from tatami.search.proposal import Proposal


def tiling(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """Every plan of every different Region other than the one it has, the fastest of each by estimate first. The subject is
    the key of the plan."""
    out = []
    for a in plans_of(compilation, sizes):
        own = a.chosen[-1].plan
        for c in a.candidates:
            if c.plan == own and len(a.chosen) == 1:
                continue
            total = c.estimate.get("total")
            terms = {k: v for k, v in c.estimate.items() if k != "total" and not k.startswith("at.")}
            reason = c.line if total is not None else "the cost model has no figure for such a plan"
            out.append(Proposal("tiling", c.line, a.key, a.decision(c), total, terms, reason))
    return out
