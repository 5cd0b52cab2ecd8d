"""Where a cold compilation spends its processor time: each model in a process of its own, by stage and per node.

    python -m benchmarks.compile_time                          every model of benchmarks/real
    python -m benchmarks.compile_time magika piper model.onnx  models whose name begins so, and files

Seconds are processor seconds, which a busy machine changes little; the C compilers' are apart from Tatami's own. `--out`
also writes what was found as JSON, and `--against` prints, next to each model, what such a file says of it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from platformdirs import user_cache_path

from benchmarks.compile_time.process import Spent
from benchmarks.cpu.environment import environment
from benchmarks.real.arrays import arrays_of
from benchmarks.real.measure import read
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch

ROOT = Path(__file__).parents[2]
SHOWN = 0.05
"""Share of the total from which a stage is worth a place in the line."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="beginnings of names, or .onnx files")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    parser.add_argument("--limit", type=float, default=900.0, help="the longest that one model may take, in seconds")
    parser.add_argument("--out", type=Path, help="a JSON file for what was found; models in it are replaced")
    parser.add_argument("--against", type=Path, help="an earlier --out")
    args = parser.parse_args()
    before = _read(args.against) if args.against else {}
    found = _read(args.out) if args.out and args.out.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, path, feed in _chosen(args.models, args.packages, Path(scratch)):
            spent = _ask(path, feed, Path(scratch) / name, Path(scratch) / "rates", args.limit)
            print(line(name, read(path)[1], spent, before.get(name)), flush=True)
            found[name] = spent
            if args.out:
                args.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def line(name: str, nodes: int, spent: Spent, before: Spent | None = None) -> str:
    """One model: its own and the C compiler's seconds, per node, and the stages that take most."""
    if spent.refused:
        return f"{name}: {spent.refused.splitlines()[0]}"
    parts = {**spent.stages, **{f"{n} verified": s for n, s in spent.checks.items()}, "rest": spent.rest}
    most = sorted(parts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{n} {s:.2f}" for n, s in most if s >= SHOWN * spent.own)
    was = f" (was {before.own:.2f} + {before.compiler:.2f})" if before is not None else ""
    return (
        f"{name}: {nodes} nodes, {spent.own:.2f} s + C {spent.compiler:.2f} s{was}, {1e3 * spent.own / max(nodes, 1):.1f} ms per"
        f" node, programs {spent.programs}, wall {spent.wall:.1f} s, peak {spent.peak >> 20} MB: {shown}"
    )


def _chosen(names: Sequence[str], packages: Path, scratch: Path) -> Iterator[tuple[str, Path, Path | None]]:
    """Name, file, and arrays for a call."""
    for path in (Path(n) for n in names if n.endswith(".onnx")):
        yield path.stem, path, None
    begins = tuple(n for n in names if not n.endswith(".onnx"))
    for m in MODELS if begins or not names else ():
        if not names or m.name.startswith(begins):
            try:
                path = fetch(m, packages)
            except Absent as absent:
                print(f"{m.name}: {absent}", flush=True)
                continue
            feed = scratch / f"{m.name}.npz"
            np.savez(feed, allow_pickle=False, **arrays_of(m.inputs, m.sizes[0], 1))
            yield m.name, path, feed


def _ask(path: Path, feed: Path | None, cache: Path, rates: Path, limit: float) -> Spent:
    """The answer of a model's process. Each starts with a cache that holds the rates of the machine, measured once, and what
    measuring them compiled, the thread pool among it."""
    if not rates.exists():
        subprocess.run(
            [sys.executable, "-m", "benchmarks.compile_time.process", "--warm"], env=_variables(rates), cwd=ROOT, check=True
        )
    shutil.copytree(rates, cache)
    command = [sys.executable, "-m", "benchmarks.compile_time.process", str(path), *([str(feed)] if feed else [])]
    try:
        done = subprocess.run(
            command, env=_variables(cache), cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return Spent(refused=f"no end after {limit:.0f} s")
    if done.returncode:
        return Spent(refused=f"ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Spent)


def _variables(cache: Path) -> dict[str, str]:
    """Variables of a model's process. Python's bytecode is kept next to the caches: it is there after an installation, and the rates' process makes most of it."""
    own = {"TATAMI_CACHE_DIR": str(cache), "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    return environment(os.cpu_count() or 1) | own


def _read(file: Path) -> dict[str, Spent]:
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Spent])


if __name__ == "__main__":
    main()
