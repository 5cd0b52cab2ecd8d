"""The machine that a record was made on."""

from __future__ import annotations

import platform
import re
import shutil
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
