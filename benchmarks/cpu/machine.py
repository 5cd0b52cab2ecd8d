"""The machine and the versions a record was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.machine.host import detect_host


def describe() -> dict[str, str]:
    host = detect_host()
    out = {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "instruction set": host.isa,
        "cores": str(host.cores),
        "caches": f"{host.l1_bytes >> 10} KB L1, {host.l2_bytes >> 10} KB L2, {host.l3_bytes >> 20} MB L3",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GB",
        "system": f"{platform.system()} {platform.release()}",
        "compiler": find_compiler().version,
        "python": platform.python_version(),
    }
    for package in ("tatami", "torch", "onnxruntime", "numpy"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "absent"
    if revision := _revision():
        out["revision"] = revision
    return out


def _revision() -> str:
    """The commit that is measured; "" outside of a repository."""
    here = Path(__file__).parents[2]
    try:
        done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
