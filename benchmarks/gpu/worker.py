"""The process that runs the cases of a step, from one of them on, and says so line by line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class OneCase:
    """One case: its name and what makes its row. `wanted`: what the row of a planted fault is to say."""

    name: str
    make: Callable[[], Row]
    wanted: str = ""


def work(cases: Sequence[OneCase], begin: int, lines: Path) -> None:
    """Run the cases from number `begin` on. After a fault of the device the process ends: its context is lost."""
    with lines.open("a") as file:

        def tell(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        for k, case in enumerate(cases):
            if k < begin:
                continue
            tell({"begin": k, "name": case.name})
            began = time.perf_counter()
            row = {"name": case.name, **guarded(case.make), "k": k, "seconds": round(time.perf_counter() - began, 3)}
            if case.wanted:
                row["wanted"] = case.wanted
            if "DeviceFault" in str(row.get("why", "")):
                tell({**row, "dead": True})
                sys.exit(3)
            tell(row)
        tell({"end": len(cases)})


def guarded(make: Callable[[], Row]) -> Row:
    """The row, or why there is none: a case that fails ends neither the step nor the process."""
    try:
        return make()
    except Exception as error:
        return {"ok": False, "why": f"{type(error).__name__}: {error}"[:800]}
