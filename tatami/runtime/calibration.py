"""This machine as the Target that plans are made for: its description, with rates that were measured once and kept.

Clock, multiply-adds a cycle and bytes a second are taken from the best of many short loops (`runtime/peak.py`), in less than
a second, and rounded: a multiply-add unit is there or not, and what a neighbour takes of the memory for a moment should not
make another plan. What was found is an entry of the cache, so that later processes plan by the same numbers.
"""

from __future__ import annotations

import math
import os
import platform
from functools import lru_cache
from pathlib import Path

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.core.target import Target
from tatami.runtime.cache import Cache, content_key, default_cache
from tatami.runtime.host import detect_host

FORM = "rates 1"
"""Of what is kept: another number where `measure_rates` measures otherwise."""
UNITS = (0.5, 1.0, 2.0, 4.0)
"""Multiply-adds of a vector that a core may begin in a cycle."""
TRIES = 10
SWEEPS = 20
FAR_BYTES = 64 << 20, 256 << 20
"""Read to find the rate of memory: at least and at most; between them twice what L3 holds."""
STEPS_PER_DECADE = 10
"""Of rates of memory: a step is a quarter more."""


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """clock: cycles per second of a core. units: vectors it multiplies and adds in a cycle. bandwidth: bytes per second from
    memory, of all cores together."""

    clock: float
    units: float
    bandwidth: float


def this_machine() -> Target:
    """The Target that "cpu" stands for. With TATAMI_CALIBRATE=0, and without a compiler, which no program runs without either,
    rates are the preset's."""
    host = detect_host()
    if os.environ.get("TATAMI_CALIBRATE", "") == "0":
        return host
    try:
        return with_rates(host, _kept(default_cache(), host))
    except TatamiError:
        return host


def calibrate() -> Target:
    """Measures anew and keeps the result. Raises CompilerMissing, CompilerFailed."""
    host = detect_host()
    rates = measure_rates(host)
    default_cache().put(_key(host), msgspec.json.encode(rates))
    _kept.cache_clear()
    return with_rates(host, rates)


def with_rates(target: Target, rates: Rates) -> Target:
    flops = 2.0 * target.lanes * rates.units * rates.clock
    return msgspec.structs.replace(target, clock=rates.clock, flops_fp32=flops, bandwidth=rates.bandwidth)


def measure_rates(target: Target) -> Rates:
    """Of the machine that this is. Raises CompilerMissing, CompilerFailed."""
    import numpy as np

    from tatami.runtime.peak import Probe

    one, all_ = Probe(1), Probe(target.cores)
    clock = max(one.cycles_per_second() for _ in range(TRIES))
    flops = max(one() for _ in range(TRIES)) * 1e9
    least, most = FAR_BYTES
    each = min(max(2 * target.l3_bytes, least), most) // target.cores
    arrays = [np.ones(each // 4, np.float32) for _ in range(target.cores)]
    return rounded(clock, flops / (2.0 * target.lanes), max(all_.bytes_per_second(arrays, 1) for _ in range(SWEEPS)))


def rounded(clock: float, vectors: float, bandwidth: float) -> Rates:
    """clock: two digits. vectors: multiply-adds of one in a second."""
    digit = 10.0 ** (math.floor(math.log10(clock)) - 1)
    step = round(math.log10(bandwidth) * STEPS_PER_DECADE)
    units = min(UNITS, key=lambda u: abs(math.log(vectors / clock / u)))
    return Rates(round(clock / digit) * digit, units, float(f"{10 ** (step / STEPS_PER_DECADE):.2g}"))


@lru_cache(maxsize=4)
def _kept(cache: Cache, host: Target) -> Rates:
    found = cache.get(_key(host))
    if found is not None:
        try:
            return msgspec.json.decode(found, type=Rates)
        except msgspec.MsgspecError:
            pass
    rates = measure_rates(host)
    cache.put(_key(host), msgspec.json.encode(rates))
    return rates


def _key(host: Target) -> str:
    return content_key((FORM, _model(), msgspec.json.encode(host)))


def _model() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = ("model name", "model", "stepping", "CPU part", "CPU variant")
    said = [line for line in dict.fromkeys(lines) if line.partition("\t")[0].partition(":")[0].strip() in names]
    return "\n".join([platform.processor(), *said])
