"""What a user may fix in advance: partitions and plans, as one document (DESIGN §4).

Plans are keyed by the canonical Region's hash and the target class, partitions by the tiny Program's hash, never by a
name or a position. A bare plan (no key) applies to the only Region of its kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tatami.core.codec import dump_text, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.document import read_bytes

if TYPE_CHECKING:
    from tatami.core.target import Target
    from tatami.pipeline import Stages


class Decisions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    partitions: dict[str, Any] = {}
    plans: dict[str, Any] = {}
    """key → plan document; the key "" holds plans without one."""


def load_decisions(source: Decisions | dict[str, Any] | str | Path | None) -> Decisions:
    """From a file, a JSON value or nothing. A plan document given alone becomes the plan without a key."""
    if source is None:
        return Decisions()
    if isinstance(source, Decisions):
        return source
    value = source
    at = "decisions"
    if isinstance(source, str | Path):
        path = Path(source)
        at = path.name
        value = parse_text(read_bytes(path), at)
    if isinstance(value, dict) and ("tile" in value or "kind" in value):
        value = {"plans": {"": value}}
    return from_builtins(value, Decisions, at)


def unmet_decisions(decisions: Decisions, stages: Stages, target: Target) -> list[Diagnostic]:
    """Warnings for decisions that nothing in this program matches; only of stages made so far."""
    from tatami.plan.decide import stale_decisions
    from tatami.region.partition import program_key

    found: list[Diagnostic] = []
    region, tiny = stages.get_made("region"), stages.get_made("tiny")
    if region is not None and decisions.plans:
        found += stale_decisions(region, target, decisions.plans)
    if tiny is not None and decisions.partitions:
        present = {program_key(p) for p in tiny.programs.values()}
        found += [
            diagnostic(
                "UnknownDecision",
                f"partitions: {key}",
                "no program of this model has that key",
                "remove it, or partition the model again",
            )
            for key in sorted(set(decisions.partitions) - present)
        ]
    return found


def decisions_of(stages: Stages) -> Decisions:
    """What a compilation decided, as the decisions that repeat it."""
    from tatami.region.partition import program_key

    partitions, plans = {}, {}
    if stages.get_made("tiny") is not None and "partition" in stages:
        for name, partition in stages["partition"].items():
            partitions[program_key(stages["tiny"].programs[name])] = to_builtins(partition)
    if "plan" in stages:
        for program in stages["plan"].programs.values():
            for r in program.regions:
                plans[r.key] = to_builtins(r.choices[-1].plan)
    return Decisions(partitions, plans)


def decisions_text(decisions: Decisions) -> str:
    return dump_text(to_builtins(decisions))
