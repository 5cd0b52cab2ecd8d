"""The cases of every group of the benchmark."""

from __future__ import annotations

from functools import cache

from benchmarks.cpu import attention, convolution, gemm, integers, models, rows
from benchmarks.cpu.case import Case


@cache
def all_cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for part in (gemm, integers, convolution, rows, attention, models):
        for case in part.cases():
            assert case.name not in found, case.name
            found[case.name] = case
    return found


def chosen(groups: tuple[str, ...], names: tuple[str, ...], quick: bool) -> list[Case]:
    """The cases of the groups (all when none is given), those named, and only the small set when `quick`."""
    out = [c for c in all_cases().values() if (not groups or c.group in groups) and (not names or c.name in names)]
    return [c for c in out if c.quick or names] if quick else out
