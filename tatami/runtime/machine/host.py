"""This machine as a Target. A target that it cannot run is refused by name."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import lru_cache
from pathlib import Path

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS, Target
from tatami.runtime.cores import usable_cores

_NEEDS = {
    "avx2": frozenset({"avx2", "fma", "f16c", "bmi2"}),
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"}),
}

FEATURES = {
    ("avx2", "vnni"): "avx_vnni",
    ("avx512", "vnni"): "avx512_vnni",
    ("avx512", "bf16"): "avx512_bf16",
    ("avx512", "amx_int8"): "amx_int8",
}
"""(instruction set, feature of a Target) -> Linux's flag for it."""
_TILES = frozenset({"amx_tile", "amx_int8"})


@lru_cache(maxsize=1)
def detect_host() -> Target:
    """The Target of this CPU: instruction set, cores that this process may use, cache sizes."""
    isa = next((i for i in ("avx512", "avx2", "neon") if _has(i)), "generic")
    base = PRESETS[f"cpu:{isa}"]
    caches = _cache_sizes()
    return msgspec.structs.replace(
        base,
        features=tuple(name for (set_, name), flag in FEATURES.items() if set_ == isa and flag in _cpu_flags()),
        cores=usable_cores(),
        l1_bytes=caches.get("l1", base.l1_bytes),
        l2_bytes=caches.get("l2", base.l2_bytes),
        l3_bytes=caches.get("l3", base.l3_bytes),
    )


def as_this_machine(preset: Target) -> Target:
    """The preset of a CPU with the cores and caches of this machine, if it has the preset's instructions."""
    if not _has(preset.isa):
        return preset
    host = detect_host()
    fields = {"cores": host.cores, "l1_bytes": host.l1_bytes, "l2_bytes": host.l2_bytes, "l3_bytes": host.l3_bytes}
    return msgspec.structs.replace(preset, **fields)


def runs_here(target: Target) -> bool:
    """True if this machine has everything that code for `target` needs."""
    return target.kind == "reference" or target.emulated or (target.kind == "cpu" and not _missing(target))


def check_runs_here(target: Target) -> None:
    """Raise UnknownTarget if this CPU lacks instructions of `target`."""
    missing = _missing(target) if target.kind == "cpu" else []
    if missing:
        raise fail(
            "UnknownTarget",
            target.name,
            f"this machine ({platform.machine()}) lacks {', '.join(missing)}",
            f"compile for `cpu` (here {detect_host().name}), or run on a machine that has it",
        )


WORTH_A_TRIM = 1 << 20
"""Minimum bytes of weights for which `trim_heap` pays: looking for free memory takes 50 ms in a fragmented heap of a gigabyte."""


def trim_heap() -> None:
    """Return free memory of the process's heap to the system, if the C library can do so (glibc). Otherwise it keeps up to 64
    MB of freed blocks, which a process that has loaded its model does not need."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim.argtypes = [ctypes.c_size_t]
        trim(0)


def _missing(target: Target) -> list[str]:
    """Flags that the code for a CPU needs and this one lacks."""
    if not _has(target.isa):
        return sorted(_NEEDS.get(target.isa, frozenset({target.isa})) - _cpu_flags())
    flags = (FEATURES.get((target.isa, feature), feature) for feature in target.features)
    return [flag for flag in flags if flag not in _cpu_flags()]


def _has(isa: str) -> bool:
    machine = platform.machine().lower()
    if isa == "generic":
        return True
    if isa == "neon":
        return machine in ("aarch64", "arm64")
    needs = _NEEDS.get(isa)
    return needs is not None and machine in ("x86_64", "amd64") and needs <= _cpu_flags()


@lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            flags = frozenset(line.partition(":")[2].split())
            return flags if _has_tiles(flags) else flags - _TILES
    return frozenset()


def _has_tiles(flags: frozenset[str]) -> bool:
    """True if Linux grants this process tile registers, for all of its threads. It does from 5.16 on, if every thread's signal
    stack is large enough."""
    if not flags >= _TILES or platform.machine().lower() != "x86_64":
        return False
    system_call, arch_prctl, ask_for, tile_data = ctypes.CDLL(None).syscall, 158, 0x1023, 18
    return int(system_call(ctypes.c_long(arch_prctl), ctypes.c_long(ask_for), ctypes.c_long(tile_data))) == 0


def _cache_sizes() -> dict[str, int]:
    """Bytes of the data caches of the first CPU, as the kernel reports them."""
    out: dict[str, int] = {}
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = (folder / "level").read_text().strip()
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
        except OSError:
            continue
        number = size.rstrip("KMG")
        if kind in ("Data", "Unified") and number.isdigit() and int(number) > 0:
            out[f"l{level}"] = int(number) * units.get(size[-1], 1)
    return out
