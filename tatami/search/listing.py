"""All candidates of a compilation, as text and as JSON values: what `tatami explain --candidates` prints."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.plan.show import show_estimate, show_plan
from tatami.search.alternatives import plans_of
from tatami.search.suggesters import SUGGESTERS
from tatami.search.suggesters.tiling import tiling


def candidates_text(compilation: Compilation, sizes: Mapping[str, int]) -> str:
    """A block of lines for each different Region: the plan it has, with the estimate by which it was chosen, all from the fastest by
    estimate at `sizes` on, and refused plans with the rule. Then the proposals of the other suggesters."""
    at = ", ".join(f"{name}={value}" for name, value in sorted(sizes.items()))
    lines: list[str] = [f"estimates of candidates at {at}", ""] if at else []
    for a in plans_of(compilation, sizes):
        lines.append(f"{a.program} {a.region.name}  key {a.key}")
        for own in a.chosen:
            lines.append(f"  has      {'; '.join(line.strip() for line in show_plan(own.plan))}")
            if own.estimate:
                lines.append(f"           {show_estimate(own.estimate)}")
        for c in a.candidates:
            lines.append(f"  {_total(c.estimate.get('total'))}  {c.line}")
        lines += [f"  refused  {r.plan}: {r.why}" for r in a.refused]
        lines.append("")
    for suggester in (s for s in SUGGESTERS if s is not tiling):
        found = suggester(compilation, sizes)
        if found:
            lines.append(suggester.__name__)
            lines += [f"  {_total(p.estimate)}  {p.line}: {p.reason}" for p in found]
            lines.append("")
    return "\n".join(lines) or "no Region has a plan to choose\n"


def candidates_json(compilation: Compilation, sizes: Mapping[str, int]) -> list[dict[str, object]]:
    """The same as JSON values, an object for each Region and suggester; `decision` is a document for `--decisions`."""
    out: list[dict[str, object]] = []
    for a in plans_of(compilation, sizes):
        out.append(
            {
                "suggester": "tiling",
                "program": a.program,
                "region": a.region.name,
                "key": a.key,
                "has": [to_builtins(own) for own in a.chosen],
                "candidates": [
                    {"line": c.line, "estimate": c.estimate, "decision": to_builtins(a.decision(c))} for c in a.candidates
                ],
                "refused": [to_builtins(r) for r in a.refused],
            }
        )
    for suggester in (s for s in SUGGESTERS if s is not tiling):
        found = [to_builtins(p) for p in suggester(compilation, sizes)]
        out.append({"suggester": suggester.__name__, "candidates": found})
    return out


def _total(seconds: float | None) -> str:
    return "      -" if seconds is None else f"{seconds * 1e6:7.3g} us"
