"""The maximum depth of calls between the graphs of a model: 10 (spec 1 "Entry point"), or TATAMI_CALL_DEPTH.

A chain of calls that no data decide is refused when it is longer. A recursion that data end is cut at this depth when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from tatami.core.diagnostic import TatamiError, fail

USUAL_DEPTH, GREATEST_DEPTH = 10, 100
"""The depth without a setting, and the largest that can be set."""
VARIABLE = "TATAMI_CALL_DEPTH"
"""Name of the environment variable that sets the depth."""


def most_calls() -> int:
    """The maximum depth. Raises InvalidAttribute for any other setting."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return USUAL_DEPTH
    if not (given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= GREATEST_DEPTH):
        why = f"{given[:40]!r} is not a depth of calls"
        raise fail("InvalidAttribute", VARIABLE, why, f"set it to a number from 1 to {GREATEST_DEPTH}, or leave it out")
    return int(given)


def reached(calls: Mapping[str, Collection[str]], start: str) -> set[str]:
    """Names that `start` reaches by one call or more; `start` itself if it is in a circle."""
    out: set[str] = set()
    work = list(calls.get(start, ()))
    while work:
        name = work.pop()
        if name not in out:
            out.add(name)
            work += calls.get(name, ())
    return out


def without_ends(calls: Mapping[str, Collection[str]], certain: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The calls of each graph without those that close a circle which data may end. `certain`: calls that are made whenever
    the graph runs; branches and bodies of loops are not. A circle of certain calls never ends, and stays."""
    every = {name: reached(calls, name) for name in calls}
    endless = {name: reached(certain, name) for name in calls}

    def stays(name: str, callee: str) -> bool:
        is_circle = name in every.get(callee, ()) or name == callee
        return not is_circle or (callee in certain.get(name, ()) and (name in endless.get(callee, ()) or name == callee))

    return {name: [c for c in callees if stays(name, c)] for name, callees in calls.items()}


def too_deep(calls: Mapping[str, Collection[str]], callee: str, at: str) -> TatamiError:
    """The error for a call of `callee` at `at` that is one too many."""
    most = most_calls()
    why = f"programs call each other more than {most} deep: {_chain_text(calls, callee)}"
    more = f", or set {VARIABLE} to more than {most}" if most < GREATEST_DEPTH else ""
    return fail("RecursionDepth", at, why, f"end the recursion earlier{more}")


def _chain_text(calls: Mapping[str, Collection[str]], name: str) -> str:
    """The shortest chain of calls from main to `name`, and once around its circle: ``main -> f -> step -> f -> …``."""
    chain = _path(calls, "main", name) if name != "main" else ["main"]
    around = _path(calls, name, name)[1:]
    return " -> ".join([*(n[:40] for n in (*chain, *around)), "…"])


def _path(calls: Mapping[str, Collection[str]], start: str, end: str) -> list[str]:
    """The shortest chain of at least one call from `start` to `end`; [end] if there is none."""
    before: dict[str, str] = {}
    work = [start]
    for name in work:
        for callee in calls.get(name, ()):
            if callee not in before:
                before[callee] = name
                work.append(callee)
    out = [end]
    while out[0] in before and (len(out) == 1 or out[0] != start):
        out.insert(0, before[out[0]])
    return out
