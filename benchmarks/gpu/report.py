"""A record as a table, and the plans that ran fastest as a decisions document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def table_text(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    lines = [f"{machine['device']}, commit {machine['commit'] or '?'}, {record['date']}"]
    limits = {r["name"]: r for s in record["steps"] if s["step"] == "limits" for r in s["rows"]}
    copy, product = limits.get("copy", {}).get("gbytes"), limits.get("cuBLAS bf16 8192", {}).get("tflops")
    for name, row in limits.items():
        lines.append(f"  {name}: " + (row.get("skipped") or f"{row.get('gbytes') or row.get('tflops'):.0f}"))
    for step in record["steps"]:
        rows = step["rows"]
        bad = [r for r in rows if r.get("ok") is False]
        late = sum("skipped" in r for r in rows)
        lines.append("")
        lines.append(
            f"{step['step']}: {step['ended']}, {len(rows)} rows, {len(bad)} wrong"
            + (f", {late} skipped" if late else "")
            + (f"; {step['remark']}" if "remark" in step else "")
        )
        lines += [f"  {r['name']}: {r.get('why') or 'error ' + str(r.get('error'))}" for r in bad]
        lines += timings(rows, copy, product)
        if "said" in step:
            lines += [f"  | {line}" for line in step["said"].splitlines()[-6:]]
    return "\n".join(lines)


def timings(rows: list[dict[str, Any]], copy: float | None, product: float | None) -> Iterator[str]:
    """A line per timed case: ours, the best peer, the ratio, and the share of what the machine reached."""
    for r in rows:
        if "median" not in r:
            continue
        ours = r["median"]["Tatami"]
        peer = f"{r['best_peer']} {r['median'][r['best_peer']] * 1e6:.1f} us" if r["best_peer"] else "no peer"
        ratio = f"{r['ratio']:.2f}" if r["ratio"] else "-"
        share = ""
        if r["tflops"] and product:
            share = f"{r['tflops'] / product:.0%} of cuBLAS at 8192"
        elif copy:
            share = f"{r['gbytes'] / copy:.0%} of copying"
        speed = f"{r['tflops']:.0f} TFLOP/s" if r["tflops"] else f"{r['gbytes']:.0f} GB/s"
        yield f"  {r.get('plan', ''):44} {r['name']:44} {ours * 1e6:9.1f} us  {speed:>12}  {peer:>26}  {ratio:>5}  {share}".rstrip()


def fastest_plans(record: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], int]]:
    """key → the row of the plan that ran fastest and right, and how many did run right."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for step in record["steps"]:
        for r in step["rows"] if step["step"] == "plans" else ():
            if r.get("ok") and "median" in r:
                rows.setdefault(r["key"], []).append(r)
    return {key: (min(some, key=lambda r: r["median"]["Tatami"]), len(some)) for key, some in rows.items()}


def tuned_plans(record: Mapping[str, Any]) -> dict[str, Any]:
    """key → the plan that ran fastest and right, as `tt.compile(..., decisions=...)` takes it."""
    best = fastest_plans(record)
    return {"plans": {key: row["document"] for key, (row, _) in best.items()}} if best else {}


SAME = {"no answer": ("KernelDeadlock",), "fault": ("OutOfBounds", "DeviceFault", "E18"), "differ": (), "ended with": ()}
"""Names of a planted fault besides its own: the emulated GPU finds some before they happen."""
WANTED = {
    "planted: a kernel hangs": "no answer",
    "planted: the process hangs": "no answer",
    "planted: the process ends": "ended with",
}
"""Words of the rows that a case's own process cannot write."""


def as_planted(row: Mapping[str, Any]) -> bool:
    """True if a row of the step `planted` says what its fault was to cost."""
    wanted, why = str(row.get("wanted") or WANTED.get(row["name"], "right")), str(row.get("why", ""))
    if wanted == "right":
        return row.get("ok") is True
    return row.get("ok") is False and any(word in why for word in (wanted, *SAME[wanted]))
