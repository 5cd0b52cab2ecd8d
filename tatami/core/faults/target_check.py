"""Checks of a Target that comes from outside: plans divide by its numbers, and its words are printed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tatami.core.diagnostic import Diagnostic, diagnostic, raise_errors
from tatami.core.target import Target

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,79}")
_ARCH = re.compile(r"(sm_[0-9]{2,3}[a-z]?)?")
_FEATURE = re.compile(r"[a-z0-9_]{1,40}")
MAX_FEATURES = 64
"""Maximum number of features of a target."""
GREATEST: dict[str, float] = {
    "vector_bytes": 256,
    "vector_registers": 256,
    "cores": 1 << 16,
    "l1_bytes": 1 << 30,
    "l2_bytes": 1 << 36,
    "l3_bytes": 1 << 40,
    "sms": 1 << 16,
    "clock": 1e12,
    "l2_bytes_per_clock": 1e9,
    "smem_per_sm": 1 << 30,
    "smem_per_block": 1 << 30,
    "registers_per_sm": 1 << 30,
    "max_threads_per_sm": 1 << 16,
    "max_blocks_per_sm": 1 << 16,
    "flops_fp32": 1e18,
    "flops_fp16": 1e18,
    "flops_tf32": 1e18,
    "flops_fp8": 1e18,
    "bandwidth": 1e16,
    "launch_seconds": 10.0,
}
"""Field -> the greatest number that is accepted, in its own unit: some hundred times the largest machine's. The least is 0."""
CPU_NUMBERS = ("vector_bytes", "vector_registers", "cores", "l1_bytes", "l2_bytes", "l3_bytes", "flops_fp32", "bandwidth")
"""Fields that CPU plans divide by."""


def check_target(target: Target) -> Target:
    """`target`, unchanged. Raises UnknownTarget with each field that no machine can have."""
    raise_errors(list(_faults(target)))
    return target


def _faults(t: Target) -> Iterator[Diagnostic]:
    for field, pattern in (("name", _NAME), ("arch", _ARCH)):
        text = getattr(t, field)
        if not isinstance(text, str) or pattern.fullmatch(text) is None:
            yield _fault(field, text, "letters, digits, '_', '.', ':' and '-'" if field == "name" else "such as sm_90a")
    if len(t.features) > MAX_FEATURES:
        yield _fault("features", f"{len(t.features)} words", f"at most {MAX_FEATURES}")
    for word in t.features:
        if not isinstance(word, str) or _FEATURE.fullmatch(word) is None:
            yield _fault("features", word, "words such as vnni")
    for field, most in GREATEST.items():
        number = getattr(t, field)
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            yield _fault(field, number, "a number")
        elif not 0 <= number <= most:
            yield _fault(field, number, f"0 to {most:g}")
        elif not number and t.kind == "cpu" and field in CPU_NUMBERS:
            yield _fault(field, number, f"more than 0, at most {most:g}")
    if t.vector_bytes & (t.vector_bytes - 1) if isinstance(t.vector_bytes, int) else True:
        yield _fault("vector_bytes", t.vector_bytes, "a power of two")


def _fault(field: str, value: object, wanted: str) -> Diagnostic:
    return diagnostic(
        "UnknownTarget", f"target.{field}", f"{field} is {str(value)[:60]!r}; wanted: {wanted}", "start from a preset"
    )
