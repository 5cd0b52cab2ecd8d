"""Trained models on GPU targets, without a GPU: every kernel compiled by NVRTC, and executed by the emulator.

    python -m benchmarks.real.gpu                    every model; writes benchmarks/results/real-gpu.json and docs/real-models-gpu.md
    python -m benchmarks.real.gpu --only magika      the models whose name begins so; their rows of the record are replaced
    python -m benchmarks.real.gpu --report           the page from the record

Each step has a process of its own with --seconds of time; a refusal, a crash and an end of time are entries of the row. The whole
list takes some two hours of a processor, most of it in the emulator.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from platformdirs import user_cache_path

import tatami as tt
from benchmarks.cpu.machine import describe
from benchmarks.real.arrays import arrays_of
from benchmarks.real.contestants import moved_sessions, own_error, session
from benchmarks.real.errors import distance
from benchmarks.real.gpu_record import Compiled, Executed, GpuRecord, GpuRow, page, summary
from benchmarks.real.listing import RealModel
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.target import CHIPS as KNOWN
from tatami.runtime.cuda import cubins

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "real-gpu.json"
PAGE = ROOT / "docs" / "real-models-gpu.md"
CHIPS = ("h100", "a100")
EMULATED = ("emulated-sm90", "emulated-sm80")


def compiled(path: Path, chip: str) -> Compiled:
    """The program's kernels as machine code of a chip."""
    begun = time.perf_counter()
    try:
        source = prepare(str(path), target=chip).stages["cu"].main
        planned = time.perf_counter()
        made = cubins.compile_units(source.units, source.headers, KNOWN[chip].target.arch, jobs=1).values()
    except TatamiError as error:
        return Compiled(chip, refused=str(error))
    warned = [line for cubin in made for line in cubin.warnings]
    spilled = [cubin.spill_bytes for cubin in made if cubin.spill_bytes]
    return Compiled(
        chip,
        len(made),
        max((cubin.registers for cubin in made), default=0),
        len(spilled),
        max(spilled, default=0),
        round(planned - begun, 2),
        round(time.perf_counter() - planned, 2),
        warned[0] if warned else "",
    )


def executed(model: RealModel, path: Path, target: str) -> Executed:
    """One call at the model's first size, next to ONNX Runtime's."""
    feed = arrays_of(model.inputs, model.sizes[0], 1)
    begun = time.perf_counter()
    try:
        results: Any = tt.compile(str(path), target=target)(**feed)
    except TatamiError as error:
        return Executed(target, refused=str(error))
    seconds = round(time.perf_counter() - begun, 1)
    results = list(results.values())
    plain = session(str(path), optimised=False)
    reference = plain.run(None, feed)
    own = own_error(feed, reference, session(str(path)), moved_sessions(str(path), plain))
    apart = distance(results, reference)
    return Executed(target, apart if math.isfinite(apart) else None, own, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="models whose name begins so")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="time of one compilation, and of one emulated call")
    parser.add_argument("--report", action="store_true", help="only write the page from the record")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        model = next(m for m in MODELS if m.name == args.only[0])
        path = fetch(model, args.packages)
        answer = compiled(path, args.step) if args.step in CHIPS else executed(model, path, args.step)
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return
    chosen = [m for m in MODELS if not args.only or any(m.name.startswith(n) for n in args.only)]
    if not chosen:
        parser.error(f"no such model; there are {', '.join(m.name for m in MODELS)}")
    record = msgspec.json.decode(RECORD.read_bytes(), type=GpuRecord) if RECORD.exists() else GpuRecord({}, [])
    for model in () if args.report else chosen:
        row = _row(model, args.packages, args.seconds)
        known = {r.name: r for r in record.rows} | {model.name: row}
        record = GpuRecord(describe(), [known[m.name] for m in MODELS if m.name in known])
        RECORD.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
        print(f"{model.name}: {summary([row])}", flush=True)
    PAGE.write_text(page(record, len(MODELS)))
    print(summary(record.rows))


def _row(model: RealModel, packages: Path, seconds: float) -> GpuRow:
    try:
        fetch(model, packages)
    except Absent as absent:
        return GpuRow(model.name, model.kind, [Compiled(chip, refused=str(absent)) for chip in CHIPS])
    row = GpuRow(model.name, model.kind)
    for chip in CHIPS:
        said = _ask(model, packages, chip, seconds)
        row.compiled.append(Compiled(chip, refused=said) if isinstance(said, str) else msgspec.json.decode(said, type=Compiled))
    for target in EMULATED:
        said = _ask(model, packages, target, seconds)
        row.executed.append(
            Executed(target, refused=said) if isinstance(said, str) else msgspec.json.decode(said, type=Executed)
        )
    return row


def _ask(model: RealModel, packages: Path, step: str, seconds: float) -> bytes | str:
    """The answer of a step in a process of its own, or how that ended."""
    command: Sequence[str] = (sys.executable, "-m", "benchmarks.real.gpu", "--only", model.name, "--packages", str(packages))
    try:
        done = subprocess.run([*command, "--step", step], capture_output=True, cwd=ROOT, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {seconds:.0f} s"
    if done.returncode or not done.stdout.strip():
        last = done.stderr.decode(errors="replace").strip().splitlines()
        return f"ended with {done.returncode}: {last[-1] if last else 'no word'}"
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
