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


def runs(texts: Sequence[str], kinds: Sequence[Hashable | None], least: int = LEAST_RUNS) -> list[tuple[int, ...]]:
    """Numbers of the units in each run of the compiler: adjacent ones of one kind, up to `TOGETHER`; a unit of kind None
    alone. `least`: minimum number of runs that joinable units are divided into."""
    joined = sum(len(t) for t, kind in zip(texts, kinds, strict=True) if kind is not None)
    most = min(TOGETHER, joined // least)
    found: list[list[int]] = []
    open_: dict[Hashable, tuple[list[int], int]] = {}
    for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        run, length = open_.get(kind, ([], most)) if kind is not None else ([], most)
        if length + len(text) > most:
            run, length = [], 0
            found.append(run)
        run.append(i)
        if kind is not None:
            open_[kind] = run, length + len(text)
    return [tuple(run) for run in found]


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
