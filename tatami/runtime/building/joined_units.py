"""Small units of one program, compiled by one run of the compiler.

    #include "tatami.h"              every header that a unit includes, before any name changes
    #define chunk0 chunk0_of_u3      the names that the unit defines for itself
    #include "u3.c"
    #undef chunk0

A compiler reads its own tables, the headers and the first vector types in 20 ms, a third of a small kernel's time. A unit's
functions are compiled as they would be alone: its own names stay its own, and it calls no function of another unit.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

SMALL = 24_000
"""Maximum bytes of a unit that is compiled with others: longer ones take long anyway, and cores rather share the work."""
TOGETHER = 60_000
"""Maximum bytes of units that are compiled together: about as much work as the longest units are alone."""
LEAST_RUNS = 8
"""Minimum number of runs that joinable units are divided into, so that every core has some."""
EARLY = 24_000
"""Minimum bytes of a run that starts before all units are known."""

_DEFINED = re.compile(
    r"""^(?:static\ (?:inline\ )?(?:__attribute__\(\(\w+\)\)\ )?(?:const\ )?(?:struct\ )?\w+\ ?\*?\ ?(\w+)\(
      |typedef\ [\w\ ]+?\ (\w+)(?:\ __attribute__|;)
      |struct\ (\w+)\ \{
      |[ ]*\#[ ]*define\ (\w+))""",
    re.MULTILINE | re.VERBOSE,
)
_INCLUDED = re.compile(r"^#include .*$", re.MULTILINE)


def may_join(text: str) -> bool:
    """True if a unit is small and has no pragma, which would apply to the units after it too."""
    return len(text) <= SMALL and "#pragma" not in text


class Runs:
    """Runs of the compiler for units that become known one after the other: a run starts when it is long enough, and the rest is
    divided when all units are known. The runs depend on the units and their order alone."""

    def __init__(self, least: int = LEAST_RUNS) -> None:
        self.least = least
        """Minimum number of runs that joinable units are divided into; 1: all of a kind together, and none before the end."""
        self._open: dict[Hashable, tuple[list[int], int]] = {}
        self._joined = 0
        self._has_started = False
        self._lengths: dict[int, int] = {}

    def add(self, number: int, text: str, kind: Hashable | None) -> list[tuple[int, ...]]:
        """The runs that the unit of this number completes: it alone if its kind is None, else units of its kind that are long
        enough."""
        if kind is None:
            return [(number,)]
        self._lengths[number] = len(text)
        self._joined += len(text)
        run, length = self._open.get(kind, ([], 0))
        run, length = [*run, number], length + len(text)
        full = self.least > 1 and length >= min(TOGETHER, max(EARLY, self._joined // self.least))
        self._open[kind] = ([], 0) if full else (run, length)
        self._has_started |= full
        return [tuple(run)] if full else []

    def rest(self) -> list[tuple[int, ...]]:
        """The runs of the other units: adjacent ones of one kind, up to `TOGETHER`."""
        left = {kind: run for kind, (run, _) in self._open.items() if run}
        self._open = {}
        most = sum(self._lengths[i] for run in left.values() for i in run) // self.least
        most = min(TOGETHER, max(most, EARLY // 2) if self._has_started else most)
        found: list[list[int]] = []
        for run in left.values():
            length = most
            for i in run:
                if length + self._lengths[i] > most:
                    found.append([])
                    length = 0
                found[-1].append(i)
                length += self._lengths[i]
        return sorted(tuple(run) for run in found)


def joined_text(files: Sequence[str], texts: Sequence[str]) -> str:
    """The text that compiles the units in `files` one after the other, each under names of its own."""
    lines = sorted({line for text in texts for line in _INCLUDED.findall(text)})
    for file, text in zip(files, texts, strict=True):
        suffix = file.partition(".")[0]
        own = list(_DEFINED.finditer(text))
        names = dict.fromkeys(name for m in own for name in m.groups()[:3] if name)
        macros = dict.fromkeys(m[4] for m in own if m[4])
        lines += [f"#define {name} {name}_of_{suffix}" for name in names]
        lines.append(f'#include "{file}"')
        lines += [f"#undef {name}" for name in (*names, *macros)]
    return "\n".join((*lines, ""))
