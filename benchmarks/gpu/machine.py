"""The machine that a record was made on."""

from __future__ import annotations

import platform
import re
import shutil
import statistics
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cudnn-cu13", "numpy")
FIELDS = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"


def describe(target: str) -> dict[str, str]:
    """Names, versions, clocks and the commit. `slug`: for file names."""
    out = {"python": platform.python_version(), "system": platform.platform(), "commit": commit()}
    for name in PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    device = target
    if not target.startswith("emulated"):
        found = said(["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader"]).splitlines()
        if found:
            out |= dict(zip(FIELDS.split(","), (x.strip() for x in found[0].split(","))))
            device = out["name"]
    out["device"] = device
    out["slug"] = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "gpu"
    return out


def commit() -> str:
    """The checkout's commit, with + where files differ; empty outside of git."""
    here = Path(__file__).parent
    head = said(["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"])
    changed = said(["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no"])
    return head + ("+" if changed else "") if head else ""


def said(command: list[str]) -> str:
    """The text that a command prints; empty if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


CLOCKS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu"


def sample_clocks(to: Path) -> subprocess.Popen[bytes] | None:
    """Write clocks and power five times a second to a file, until the process is ended; None without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader,nounits", "-lms", "200"]
    with to.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)


def median_clocks(samples: Path, since: int) -> dict[str, float]:
    """Medians of the clock of the SMs in MHz and of the power in W, of the lines from number `since` on."""
    if not samples.exists():
        return {}
    lines = [line.split(", ") for line in samples.read_text(errors="replace").splitlines()[since:]]
    rows = [line for line in lines if len(line) == len(CLOCKS.split(","))]
    try:
        found = [(float(r[1]), float(r[3])) for r in rows]
    except ValueError:
        return {}
    return {"sm_mhz": statistics.median(a for a, _ in found), "watts": statistics.median(b for _, b in found)} if found else {}
