"""The pages that the records become."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.real.record import LEAST_ERROR, LIMIT, Record, Row

BUSY = 1.5
"""Load average per core above which a page says that a row was measured next to other work: the benchmark's own is 1 at most."""
NO_CAUSE = "not examined."
"""Cause of a row that has no other."""
COMPARED_BYTES = 8 << 20
"""Memory of a session that the summary compares: below it a page of the allocator decides."""
HOW = f"""Each model runs in a process of its own, with one thread and an empty program cache at first. *error* is the greatest
over outputs and sizes: the Frobenius norm of the difference from ONNX Runtime without graph optimisations, relative to the norm
of its result; for integers and words the share that differs. *own* is ONNX Runtime's own error by the same measure: the
greatest, over the sizes too, of that of its optimised session and those of the same model with floats of its weights and
inputs moved by one unit in the last place, or of its inputs moved by eight where that changes the shape of a result. A row is right when no size is off by more than {LIMIT:.0f} times *own*, or {LEAST_ERROR:.0e} where that is less. *cold* and
*cached* are seconds of compilation with an empty cache and in a fresh process that finds the program. *new size* is the
longest first call at a size other than the first, with the number of programs compiled for such sizes. *ratio* is the time of ONNX Runtime's default session, called in turns, over
ours at each size; calls take up to 256 feeds in turn (1 MB together), since a processor learns every branch of a few rows that come again. *memory* is what loading from the cache and the first call add to the resident memory of a process, in MB,
and next to it the memory that ONNX Runtime's session adds."""


def summary(rows: Sequence[Row]) -> str:
    """One line: verdicts, speed, memory."""
    verdicts = Counter(r.verdict for r in rows)
    words = ", ".join(f"{verdicts[v]} {v}" for v in ("right", "wrong", "refused", "crashed"))
    ratios = {r.name: r.ratio for r in rows if r.verdict == "right" and r.ratio > 0}
    line = f"{len(rows)} models of {len({r.kind for r in rows})} kinds: {words}."
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least = min(ratios, key=lambda n: ratios[n])
        line += f" Speed against ONNX Runtime: {mean:.2f} in the mean (geometric), least {ratios[least]:.2f} ({least})."
    memory = {r.name: r.memory_ratio for r in rows if r.resident_theirs >= COMPARED_BYTES}
    if memory:
        most = max(memory, key=lambda n: memory[n])
        line += f" Memory against ONNX Runtime's: at most {memory[most]:.2f} times ({most})."
    return line


def table(rows: Sequence[Row]) -> list[str]:
    head = ["model", "kind", "opset", "nodes", "result", "error", "own", "cold", "cached", "new size", "ratio", "memory"]
    return [_line(head), _line(["---"] * len(head)), *(_line(_cells(r)) for r in rows)]


def _cells(row: Row) -> list[str]:
    known = [s for s in row.sizes if not s.refused]
    first = [row.name, row.kind, str(row.opset), str(row.nodes), row.verdict]
    if not known:
        return [*first, *[""] * 7]
    later = [s.first_call for s in known[1:]]
    mega = 1 << 20
    memory = f"{row.resident / mega:.0f} / {row.resident_theirs / mega:.0f}" if row.resident_theirs else ""
    return [
        *first,
        f"{max(s.error for s in known):.1e}",
        f"{row.own:.1e}",
        f"{row.cold:.1f} s",
        f"{row.cached:.2f} s",
        (f"{max(later) * 1e3:.0f} ms" if later else "") + (f", {row.compilations} compiled" if row.compilations else ""),
        ", ".join(f"{s.ratio:.2f}" for s in known),
        memory,
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def refusals(rows: Sequence[Row]) -> list[str]:
    """The first diagnostic of each model that is not right."""
    out: list[str] = []
    for row in rows:
        said = row.refused or next((s.refused for s in row.sizes if s.refused), "")
        if said:
            out.append(f"- **{row.name}**: {' '.join(said.split())[:300]}")
    return out


def behind(rows: Sequence[Row], speed: Mapping[str, str], memory: Mapping[str, str]) -> list[str]:
    """A line for each right row that is slower than ONNX Runtime at a size, or takes more of COMPARED_BYTES and more: the ratio
    and the cause. `speed`, `memory`: causes by model."""
    out: list[str] = []
    for row in rows:
        ratios = [s.ratio for s in row.sizes if not s.refused and s.seconds]
        if row.verdict != "right":
            continue
        if ratios and round(min(ratios), 2) < 1:
            out.append(f"- **{row.name}**, {min(ratios):.2f}: {speed.get(row.name, NO_CAUSE)}")
        if row.resident_theirs >= COMPARED_BYTES and round(row.memory_ratio, 2) > 1:
            out.append(f"- **{row.name}**, {row.memory_ratio:.2f} times the memory: {memory.get(row.name, NO_CAUSE)}")
    return out


def page(
    title: str, intro: str, record: Record, origins: Mapping[str, str], causes: Sequence[Mapping[str, str]] | None = None
) -> str:
    """A Markdown page. origins: what stands below the table for each origin of models, such as its licence. causes: those of a
    row's speed and memory, by model; None: the page has no such section."""
    machine = ", ".join(f"{k} {v}" for k, v in record.machine.items())
    lines = [f"# {title}", "", intro, "", f"**{summary(record.rows)}**", "", HOW, "", f"Machine: {machine}.", ""]
    lines += table(record.rows)
    busy = [r for r in record.rows if r.load > BUSY]
    if busy:
        most = max(r.load for r in busy)
        lines += [
            "",
            f"Measured next to other work, with load averages of up to {most:.1f} per core, so that *cold* and *new size* are several",
        ]
        lines += [f"times those of an idle machine: {', '.join(r.name for r in busy)}."]
    slow = [] if causes is None else behind(record.rows, *causes)
    if slow:
        lines += ["", "## Behind ONNX Runtime", "", *slow]
    said = refusals(record.rows)
    if said:
        lines += ["", "## What the others were told", "", *said]
    if origins:
        lines += ["", "## Packages", "", *(f"- {name}: {what}" for name, what in origins.items())]
    return "\n".join(lines) + "\n"
