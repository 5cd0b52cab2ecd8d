"""Everything that a machine with a GPU is asked, in under nine minutes: ``make gpu``.

    python -m benchmarks.gpu                      all steps on target cuda
    python -m benchmarks.gpu --only lanes,gemm    some of them
    python -m benchmarks.gpu --seconds 300        as much as that time allows: each step gets its share
    python -m benchmarks.gpu --resume             go on behind the last case of a run that was cut off
    python -m benchmarks.gpu --dry-run            the same command on the emulated GPU, at tiny sizes, with planted faults
    python -m benchmarks.gpu --report FILE        the table of a record

Each step is a process of its own that says when it begins a case (isolated.py): a case that hangs, faults or ends the process costs
one row. The record and its table are written after every case, to `--results`, else to $OUT if that is set, else to
benchmarks/results; rows as they come lie in a folder next to it. Tuned plans go next to the record, lane tables to
benchmarks/gpu/lanes. It runs from a plain checkout: no network, no installation, whatever Python finds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.isolated import Isolated, Row
from benchmarks.gpu.machine import describe, median_clocks, sample_clocks
from benchmarks.gpu.report import as_planted, table_text, tuned_plans

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = ROOT / ".gpu-cache"
"""Machine code that was made beforehand (cubin_cache.py)."""
ROWS = "gpu-rows"
"""Name of the folder of rows in that of the record; a run without --resume empties it."""
SECONDS = 530.0
"""Maximum seconds of all steps together."""
LEAST = 3.0
"""Seconds below which a step is not begun."""
TOOLS = ("memcheck", "racecheck")
"""Steps that run under compute-sanitizer's tool of that name."""


def main() -> None:
    args = arguments()
    if args.step:
        from benchmarks.gpu.steps import run_step

        run_step(args.step, args.target, args.dry_run, args.lines, args.begin)
        return
    if args.report:
        print(table_text(json.loads(args.report.read_text())))
        return
    record = Record(args)
    record.run()
    print(table_text(record.value))
    print(f"wrote {record.path}")
    raise SystemExit(0 if record.is_well() else 1)


def arguments() -> argparse.Namespace:
    from benchmarks.gpu.steps import PLANTED, STEPS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="", help="cuda (default), cuda:1, cuda:sm80; emulated-… with --dry-run")
    parser.add_argument("--only", default="", help=f"steps, with commas: {', '.join((*STEPS, *PLANTED))}")
    parser.add_argument("--dry-run", action="store_true", help="on the emulated GPU, at tiny sizes, with planted faults")
    parser.add_argument("--results", type=Path, help="folder of the record (default: $OUT, else benchmarks/results)")
    parser.add_argument("--resume", action="store_true", help="keep the rows of the last run, and go on behind them")
    parser.add_argument("--report", type=Path, help="only print the table of a record")
    parser.add_argument("--seconds", type=float, default=0.0, help=f"of all steps together (default {SECONDS:.0f})")
    parser.add_argument("--step", choices=[*STEPS, *PLANTED], help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.target = args.target or ("emulated-sm90" if args.dry_run else "cuda")
    args.seconds = args.seconds or (SECONDS if not args.dry_run else 3600.0)
    args.results = args.results or (Path(os.environ["OUT"]) if os.environ.get("OUT") else RESULTS)
    every = [*STEPS, *(PLANTED if args.dry_run else ())]
    args.only = [s for s in args.only.split(",") if s] or every
    unknown = [s for s in args.only if s not in (*STEPS, *PLANTED)]
    if unknown:
        parser.error(f"no step {unknown[0]!r}: they are {', '.join((*STEPS, *PLANTED))}")
    return args


@dataclass
class Record:
    """The record of a run, which is written after every row."""

    args: argparse.Namespace
    value: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.args.results.mkdir(parents=True, exist_ok=True)
        self.value = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "target": self.args.target,
            "dry_run": self.args.dry_run,
            "machine": describe(self.args.target),
            "steps": [],
        }

    @property
    def path(self) -> Path:
        """The file of the record."""
        folder: Path = self.args.results
        return folder / f"{self.value['machine']['slug']}-{self.value['date'][:10]}.json"

    def write(self) -> None:
        """Put the record and its table in place of the last ones: whoever cuts the run off finds whole files."""
        plans = tuned_plans(self.value)
        texts = {
            self.path: json.dumps(self.value, indent=1) + "\n",
            self.path.with_suffix(".txt"): table_text(self.value) + "\n",
        }
        if plans:
            texts[self.path.with_name(f"plans-{self.value['machine']['slug']}.json")] = json.dumps(plans, indent=1) + "\n"
        for path, text in texts.items():
            part = path.with_name(path.name + ".part")
            part.write_text(text)
            part.replace(path)

    def is_well(self) -> bool:
        """True if every step was done, the device class is well in a dry run, and planted faults cost what they were to cost."""
        steps = self.value["steps"]
        planted = [r for s in steps if s["step"] == "planted" for r in s["rows"]]
        is_well = all(r.get("ok", "skipped" in r) for s in steps if s["step"] == "device" for r in s["rows"])
        return is_well and all(s["ended"] == "done" for s in steps) and all(map(as_planted, planted))

    def run(self) -> None:
        """Every step in turn. Time that a step leaves goes to those after it."""
        from benchmarks.gpu.steps import PLANTED, STEPS

        known = {**STEPS, **PLANTED}
        folder = self.args.results / ROWS
        self.begin(folder)
        self.write()
        samples = folder / "clocks.csv"
        clocks = sample_clocks(samples) if not self.args.dry_run else None
        end = time.monotonic() + self.args.seconds
        try:
            for k, name in enumerate(self.args.only):
                left = end - time.monotonic()
                share = known[name].seconds / sum(known[n].seconds for n in self.args.only[k:])
                since = len(samples.read_text().splitlines()) if samples.exists() else 0
                self.step(name, known[name].each, max(left * share, 0.0), folder)
                self.value["steps"][-1] |= {"clocks": median_clocks(samples, since)} if clocks is not None else {}
                self.write()
                step = self.value["steps"][-1]
                print(f"{name}: {step['ended']} in {step['seconds']:.1f} s", file=sys.stderr, flush=True)
        finally:
            if clocks is not None:
                clocks.terminate()

    def begin(self, folder: Path) -> None:
        """Make the folder of rows ready: empty, or with the rows that a run of the same kind left. Ends the process if they are
        of another target."""
        own = {"target": self.args.target, "dry_run": self.args.dry_run}
        says = folder / "run.json"
        if not self.args.resume:
            shutil.rmtree(folder, ignore_errors=True)
        elif says.exists() and (found := json.loads(says.read_text())) != own:
            raise SystemExit(f"the rows in {folder} are those of {found}, this run is {own}: leave --resume out, or name it so")
        folder.mkdir(exist_ok=True)
        says.write_text(json.dumps(own))

    def step(self, name: str, each: float, limit: float, folder: Path) -> None:
        """One step; its rows are in the record as they come."""
        step: dict[str, Any] = {"step": name, "ended": "running", "seconds": 0.0, "rows": []}
        self.value["steps"].append(step)
        command = worker(name, self.args, folder / f"{name}.jsonl")
        if not command:
            step |= {"ended": "done", "remark": "compute-sanitizer is not here"}
            return
        if limit < LEAST:
            seen = Isolated(command, folder / f"{name}.jsonl", each)
            is_done = any("end" in r for r in seen.earlier())
            step |= {"ended": "done" if is_done else "no time left", "rows": seen.rows}
            return
        began = time.monotonic()

        def told(rows: list[Row]) -> None:
            step.update(rows=rows, seconds=time.monotonic() - began)
            self.write()

        isolated = Isolated(command, folder / f"{name}.jsonl", each if name != "planted" or self.args.dry_run else 15.0, told)
        ended = isolated.run(limit, environment(), ROOT)
        step.update(ended=ended, rows=isolated.rows, seconds=time.monotonic() - began)
        if ended != "done" or isolated.said:
            step["said"] = isolated.said


def worker(name: str, args: argparse.Namespace, lines: Path) -> Sequence[str]:
    """The command of a step's process; none if its tool is not here."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--step", name, "--target", args.target, "--lines", str(lines)]
    command += ["--dry-run"] if args.dry_run else []
    if name not in TOOLS:
        return command
    tool = shutil.which("compute-sanitizer")
    return [] if tool is None or args.dry_run else [tool, "--tool", name, "--error-exitcode", "9", *command]


def environment() -> dict[str, str]:
    """The environment of a step's process."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    made = {"TATAMI_CACHE_DIR": str(CACHE)} if CACHE.is_dir() and not os.environ.get("TATAMI_CACHE_DIR") else {}
    return {**os.environ, "PYTHONPATH": path, **made}


if __name__ == "__main__":
    main()
