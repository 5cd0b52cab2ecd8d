"""Seeds of a fuzz campaign on the command line: `--seeds a-b` runs each, prints what is wrong and how many are."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def run_campaign(doc: str | None, check: Callable[..., str], run_help: str = "", arguments: list[str] | None = None) -> int:
    """1 where a seed is wrong. `check(seed)` says what is wrong with one; with `run_help` it takes `run` too."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--seeds", default="0-100", help="first-last, the last one left out")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    if run_help:
        parser.add_argument("--run", action="store_true", help=run_help)
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    options: dict[str, Any] = {"run": given.run} if run_help else {}
    begin, faults, seeds = time.monotonic(), 0, range(int(first), int(last or int(first) + 1))
    ran = 0
    for seed in seeds:
        if time.monotonic() - begin > given.seconds:
            break
        ran += 1
        fault = outcome_of(check, seed, options)
        if fault:
            faults += 1
            print(f"{seed}: {fault}", flush=True)
    print(f"{faults} wrong of {ran} seeds, {time.monotonic() - begin:.0f} s")
    return 1 if faults else 0


def outcome_of(check: Callable[..., str], seed: int, options: dict[str, Any]) -> str:
    """The verdict of the check, or the exception that ended it, with the line that raised it."""
    try:
        return check(seed, **options)
    except Exception as error:
        place = traceback.extract_tb(sys.exc_info()[2])[-1]
        lines = str(error).splitlines() or [""]
        return f"{type(error).__name__} at {place.filename.rsplit('/', 1)[-1]}:{place.lineno}: {lines[0][:200]}"
