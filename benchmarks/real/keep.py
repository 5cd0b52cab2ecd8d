"""The record of a table: rows that are measured replace those it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.cpu.machine import describe
from benchmarks.real.record import Record, Row


def keep(file: Path, steps: Sequence[tuple[str, Callable[[], Row]]], names: Sequence[str]) -> Record:
    """The record with new rows for these steps, written after each; `names` is the order of rows."""
    record = msgspec.json.decode(file.read_bytes(), type=Record) if file.exists() else Record({}, [])
    for name, step in steps:
        row = step()
        known = {r.name: r for r in record.rows} | {name: row}
        record = Record(describe(), [known[n] for n in names if n in known])
        file.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
        speed = ", ".join(f"{s.ratio:.2f}" for s in row.sizes)
        print(f"{name}: {row.verdict} {speed} {' '.join(row.refused.split())[:160]}", flush=True)
    return record
