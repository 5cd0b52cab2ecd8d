"""The record as a table for the terminal, and the records of all instruction sets as docs/performance.md, with a page of rows
and a plot for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec

from benchmarks.cpu.blocks import Row, geomean
from benchmarks.cpu.contestants import OURS
from benchmarks.cpu.memory import Growth

GOALS = {
    "gemm": (1.0, 0.95), "layer": (1.1, 0.0), "int8": (1.0, 0.0), "16 bits": (1.0, 0.0), "conv 3x3": (1.5, 0.0), "conv depthwise": (2.0, 0.0), "conv 1x1": (1.0, 0.0),
    "conv 7x7": (1.0, 0.0), "rows": (1.3, 0.9), "attention": (1.2, 0.0), "model": (1.3, 1.05),
}  # fmt: skip
"""Geometric mean and least ratio that a group is to reach."""


class Record(msgspec.Struct, frozen=True):
    machine: dict[str, str]
    rows: list[Row]
    memory: list[Growth]


def table_text(record: Record) -> str:
    """All rows, then a line per group."""
    lines = [f"{'case':38} {'thr':>3} {'Tatami ms':>10} {'best peer':>22} {'ms':>10} {'ratio':>6} {'of peak':>7}  remark"]
    for row in record.rows:
        ours, theirs = row.seconds.get(OURS), row.seconds.get(row.best_peer)
        lines.append(
            f"{row.case:38} {row.threads:3} {_ms(ours):>10} {row.best_peer:>22} {_ms(theirs):>10} {row.ratio:6.2f} "
            f"{_share(row):>7}  {_remark(row)}".rstrip()
        )
    lines.append("")
    lines += [
        f"{name:38} {threads:3} geomean {mean:5.2f}, least {least:5.2f}, of {n} rows"
        for name, threads, mean, least, n in groups(record.rows)
    ]
    lines += ["", *(f"{g.case:38} memory of one call: " + _growth(g) for g in record.memory)]
    return "\n".join(lines)


def groups(rows: Iterable[Row]) -> Iterator[tuple[str, int, float, float, int]]:
    """(group, threads, geometric mean, least ratio, rows) over the rows that count."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if not row.void:
            found.setdefault((row.group, row.threads), []).append(row.ratio)
    for (name, threads), ratios in found.items():
        yield name, threads, geomean(ratios), min(ratios), len(ratios)


def write_report(records: Mapping[str, Record], folder: Path) -> None:
    """`records` by instruction set, the first one first."""
    for isa, record in records.items():
        (folder / f"performance-{isa}.svg").write_text(plot(record.rows))
        (folder / f"performance-{isa}.md").write_text(page(isa, record))
    (folder / "performance.md").write_text(summary(records))


MADE = (
    "Made by `python -m benchmarks.cpu` from {}; edit neither. A ratio is the time of the best peer divided by Tatami's: above 1 "
    "Tatami is faster. How blocks are timed and which rows are void is said in `benchmarks/cpu/blocks.py`."
)


def summary(records: Mapping[str, Record]) -> str:
    """The page of ratios by group of rows, machine by machine."""
    out = ["# Performance on the CPU", "", MADE.format("the records of [benchmarks/results](../benchmarks/results)")]
    for isa, record in records.items():
        m = record.machine
        told = f"{m['cpu']}, {m['cores']} cores, {m['caches']}" + (f", at {m['revision']}" if "revision" in m else "")
        out += ["", f"## {isa}", "", f"{told}. [Every row](performance-{isa}.md).", "", *_group_table(record)]
    return "\n".join(out) + "\n"


def _group_table(record: Record) -> Iterator[str]:
    yield "| group | threads | geomean | goal | least | goal | rows | void |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, threads, mean, least, n in groups(record.rows):
        goal = GOALS.get(name, (0.0, 0.0))
        void = sum(r.group == name and r.threads == threads and bool(r.void) for r in record.rows)
        yield f"| {name} | {threads} | {mean:.2f} | {goal[0] or ''} | {least:.2f} | {goal[1] or ''} | {n} | {void} |"


def page(isa: str, record: Record) -> str:
    """Every row of the record of an instruction set."""
    out = [
        f"# Performance on the CPU: {isa}",
        "",
        MADE.format(f"[the record](../benchmarks/results/cpu-{isa}.json)"),
        "",
        *(f"- {name}: {value}" for name, value in record.machine.items()),
        "",
        f"![ratios](performance-{isa}.svg)",
        "",
        *_group_table(record),
    ]
    out += [
        "",
        "| case | threads | Tatami ms | best peer | its ms | ratio | share of the peak | remark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in record.rows:
        ours, theirs = row.seconds.get(OURS), row.seconds.get(row.best_peer)
        out.append(
            f"| {row.case} | {row.threads} | {_ms(ours)} | {row.best_peer} | {_ms(theirs)} | {row.ratio:.2f} | {_share(row)} | {_remark(row)} |"
        )
    if record.memory:
        out += [
            "",
            "Growth of the peak of memory over the first call after load:",
            "",
            "| model | Tatami | ONNX Runtime |",
            "|---|---|---|",
        ]
        out += [f"| {g.case} | {_mb(g.bytes.get('Tatami'))} | {_mb(g.bytes.get('ORT'))} |" for g in record.memory]
    return "\n".join(out) + "\n"


def plot(rows: Sequence[Row]) -> str:
    """Ratios on a logarithmic axis, a dot per row: filled for one thread, hollow for more, grey where void."""
    shown = [r for r in rows if r.ratio > 0]
    names = list(dict.fromkeys(r.case for r in shown))
    left, width, pitch, top = 260, 560, 15, 30
    low, high = 1 / 8, 8.0

    def x(ratio: float) -> float:
        clipped = min(max(ratio, low), high)
        return left + width * (math.log(clipped) - math.log(low)) / (math.log(high) - math.log(low))

    height = top + pitch * len(names) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{height}" font-family="sans-serif" font-size="10">'
    ]
    out.append('<rect width="100%" height="100%" fill="white"/>')
    for mark in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        colour = "#555" if mark == 1.0 else "#ddd"
        out.append(f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{top - 6}" y2="{height - 16}" stroke="{colour}"/>')
        out.append(f'<text x="{x(mark):.1f}" y="{top - 12}" text-anchor="middle" fill="#333">{mark:g}</text>')
    for i, name in enumerate(names):
        y = top + pitch * i + pitch / 2
        out.append(f'<text x="{left - 8}" y="{y + 3:.1f}" text-anchor="end" fill="#333">{escape(name)}</text>')
        for row in (r for r in shown if r.case == name):
            colour = "#aaa" if row.void else "#1a7f37" if row.ratio >= 1 else "#b3261e"
            fill = colour if row.threads == 1 else "white"
            title = f"{escape(name)}, {row.threads} thread(s): {row.ratio:.2f}"
            out.append(
                f'<circle cx="{x(row.ratio):.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"><title>{title}</title></circle>'
            )
    return "\n".join([*out, "</svg>"]) + "\n"


def _share(row: Row) -> str:
    """Share of the measured multiply-add peak for rows that compute; GB/s for rows that move data."""
    ours = row.seconds.get(OURS)
    if not ours:
        return ""
    if row.flops:
        return f"{row.flops / ours / 1e9 / row.peak:.2f}" if row.peak else ""
    return f"{row.bytes / ours / 1e9:.1f} GB/s" if row.bytes else ""


def _remark(row: Row) -> str:
    notes = [f"void: {row.void}"] if row.void else []
    notes += [f"{name} differs by {d:.1e}" for name, d in row.difference.items() if d > 1e-3]
    notes += [f"{name}: {why}" for name, why in row.errors.items()]
    if row.parked is False:
        notes.append("threads not parked after 1 ms")
    return "; ".join(notes).replace("|", "/").replace("\n", " ")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.4g}"


def _growth(g: Growth) -> str:
    return ", ".join(f"{name} {_mb(b)}" for name, b in g.bytes.items())


def _mb(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f} MB"
