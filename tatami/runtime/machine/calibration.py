"""This machine as the Target that plans are made for: its description, with rates that are measured once and kept.

Clock, multiply-adds per cycle and bytes per second are the best of many short loops (`runtime/machine/peak.py`), measured in less than
a second, and rounded: a multiply-add unit exists or not, and a neighbour's momentary use of the memory should not change a
plan. The result is an entry of the cache, so that later processes plan with the same numbers."""

from __future__ import annotations

import math
import os
import platform
from functools import lru_cache
from pathlib import Path

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.core.target import Target
from tatami.runtime.building.cache import Cache, content_key, default_cache
from tatami.runtime.machine.host import detect_host

FORM = "rates 1"
"""Version of the entries in the cache, to be changed whenever `measure_rates` measures something else."""
UNITS = (0.5, 1.0, 2.0, 4.0)
"""Numbers of vector multiply-adds that a core may begin per cycle."""
TRIES = 10
"""Number of measurements of clock and multiply-adds, of which the best counts."""
SWEEPS = 20
"""Number of measurements of the bandwidth, of which the best counts."""
FAR_BYTES = 64 << 20, 256 << 20
"""Minimum and maximum bytes that are read to measure the bandwidth of memory; between them twice the size of L3."""
STEPS_PER_DECADE = 10
"""Steps per factor of ten to which bandwidths are rounded: a step is a quarter more."""


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured rates. clock: cycles per second of a core. units: vectors that it multiplies and adds per cycle. bandwidth:
    bytes per second from memory, for all cores together."""

    clock: float
    units: float
    bandwidth: float


def this_machine() -> Target:
    """The Target for "cpu". With TATAMI_CALIBRATE=0, and without a compiler (which every program needs), rates are the
    preset's."""
    host = detect_host()
    if os.environ.get("TATAMI_CALIBRATE", "") == "0":
        return host
    try:
        return with_rates(host, _kept(default_cache(), host))
    except TatamiError:
        return host


def calibrate() -> Target:
    """Measure the rates again, keep them, and return this machine with them. Raises CompilerMissing, CompilerFailed."""
    host = detect_host()
    rates = measure_rates(host)
    default_cache().put(_key(host), msgspec.json.encode(rates))
    _kept.cache_clear()
    return with_rates(host, rates)


def with_rates(target: Target, rates: Rates) -> Target:
    """The target with these rates in place of its own."""
    flops = 2.0 * target.lanes * rates.units * rates.clock
    return msgspec.structs.replace(target, clock=rates.clock, flops_fp32=flops, bandwidth=rates.bandwidth)


def measure_rates(target: Target) -> Rates:
    """The rates of this machine, measured now and rounded. Raises CompilerMissing, CompilerFailed."""
    import numpy as np

    from tatami.runtime.machine.peak import Probe

    one, all_ = Probe(1), Probe(target.cores)
    clock = max(one.cycles_per_second() for _ in range(TRIES))
    flops = max(one() for _ in range(TRIES)) * 1e9
    least, most = FAR_BYTES
    each = min(max(2 * target.l3_bytes, least), most) // target.cores
    arrays = [np.ones(each // 4, np.float32) for _ in range(target.cores)]
    return rounded(clock, flops / (2.0 * target.lanes), max(all_.bytes_per_second(arrays, 1) for _ in range(SWEEPS)))


def rounded(clock: float, vectors: float, bandwidth: float) -> Rates:
    """The rates as plans use them; the clock has two digits. vectors: multiply-adds of a vector per second."""
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
    """The processor's own name and version, as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = ("model name", "model", "stepping", "CPU part", "CPU variant")
    said = [line for line in dict.fromkeys(lines) if line.partition("\t")[0].partition(":")[0].strip() in names]
    return "\n".join([platform.processor(), *said])
