"""Another plan for a Region (G-34): another template, other tiles, other loops."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.decisions import Decisions
from tatami.plan.alternatives import alternatives
from tatami.plan.ir import Guarded
from tatami.plan.rename import kept_choices
from tatami.search.proposal import Proposal


def tiling(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """Every plan of every different Region other than the one it has, the fastest of each by estimate first. The subject is
    the key of the plan."""
    stages = compilation.stages
    found = alternatives(
        stages["region"], stages["poly_core"], stages["plan"], compilation.target, {**compilation.hints, **sizes}
    )
    out = []
    for a in found:
        own = a.chosen[-1].plan
        for c in a.candidates:
            if c.plan == own and len(a.chosen) == 1:
                continue
            document = to_builtins(kept_choices((Guarded((), c.plan),), a.region))
            total = c.estimate.get("total")
            terms = {k: v for k, v in c.estimate.items() if k != "total" and not k.startswith("at.")}
            reason = c.line if total is not None else "the cost model has no figure for such a plan"
            out.append(Proposal("tiling", c.line, a.key, Decisions(plans={a.key: document}), total, terms, reason))
    return out
