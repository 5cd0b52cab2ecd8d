"""The calls of a graph inlined, or kept as calls of one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tatami.compilation import Compilation
from tatami.core.module import Module
from tatami.decisions import Decisions
from tatami.frontend.rewrites.inline import CallVerdict
from tatami.region.ir import Program, Step
from tatami.search.proposal import Proposal, with_decisions
from tatami.search.suggesters.pricing import Pricing


def calls(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """For each called graph that may be either, the other answer. The subject is the hash of the graph. Empty if the model was
    given as a later stage than the frontend."""
    if compilation.stages.get_made("frontend") is None or "calls" not in compilation.stages:
        return []
    own: dict[str, CallVerdict] = compilation.stages["calls"]
    out: list[Proposal] = []
    before = seconds_of_run(compilation, sizes) if own else None
    for graph, verdict in own.items():
        answer: Literal["inline", "call"] = "call" if verdict.inlined else "inline"
        decided = {**compilation.decisions.calls, verdict.key: answer}
        other = with_decisions(compilation, msgspec.structs.replace(compilation.decisions, calls=decided))
        if other.stages["calls"][graph].inlined == verdict.inlined:
            continue  # something stands against it
        after = seconds_of_run(other, sizes)
        line = f"{verdict.calls} calls, {'each inlined' if answer == 'inline' else 'one program'}"
        decision = Decisions(calls={verdict.key: answer})
        if before is None or after is None:
            reason = "the cost model has no figure for some kernel"
            out.append(Proposal("calls", line, verdict.key, decision, None, {}, reason))
        else:
            terms = {"kernels": after, "kernels before": before, "compiling": verdict.compile_seconds}
            reason = f"{after * 1e6:.4g} us of kernels instead of {before * 1e6:.4g} us"
            out.append(Proposal("calls", line, verdict.key, decision, after, terms, reason))
    return out


def seconds_of_run(compilation: Compilation, sizes: Mapping[str, int]) -> float | None:
    """Estimated seconds of all kernels of a call of `main`, those of called programs at each call of them; a loop counts as one
    turn, an if as its first branch. None if the model has no figure for one."""
    region: Module[Program] = compilation.stages["region"]
    times: dict[str, float | None] = {}

    def of(name: str) -> float | None:
        if name not in times:
            times[name] = None  # a program that calls itself has no figure
            own = Pricing(compilation, name, sizes).of_own().values()
            steps = [s for s in region.programs[name].body if isinstance(s, Step) and s.kind != "host"]
            every = [*own, *(of(s.targets[0]) for s in steps)]
            known = [s for s in every if s is not None]
            times[name] = sum(known) if len(known) == len(every) else None
        return times[name]

    return of("main")
