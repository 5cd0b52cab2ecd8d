"""Everything that a machine with a GPU is asked, in under nine minutes: ``make gpu``.

    python -m benchmarks.gpu                      all steps on target cuda
    python -m benchmarks.gpu --only lanes,gemm    some of them
    python -m benchmarks.gpu --dry-run            the same command on the emulated GPU, at tiny sizes
    python -m benchmarks.gpu --report FILE        the table of a record

Each step is a process of its own with a limit; one that fails or is stopped keeps its rows and costs no other step its
run. The record goes to benchmarks/results/<device>-<date>.json, tuned plans next to it, lane tables to benchmarks/gpu/lanes.
It runs from a plain checkout: no network, no installation, whatever Python finds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import describe
from benchmarks.gpu.report import table_text, tuned_plans
from benchmarks.gpu.steps import STEPS, run_step

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SECONDS = 530.0
"""Maximum seconds of all steps together."""


def main() -> None:
    args = arguments()
    if args.step:
        run_step(args.step, args.target, args.dry_run, args.out, args.seconds)
        return
    if args.report:
        print(table_text(json.loads(args.report.read_text())))
        return
    record = run_all(args)
    text = table_text(record)
    print(text)
    folder = args.results
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['machine']['slug']}-{record['date'][:10]}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".txt").write_text(text + "\n")
    plans = tuned_plans(record)
    if plans:
        path.with_name(f"plans-{record['machine']['slug']}.json").write_text(json.dumps(plans, indent=1) + "\n")
    print(f"wrote {path}")
    raise SystemExit(0 if all(s["ended"] == "done" for s in record["steps"]) else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="", help="cuda (default), cuda:1, cuda:sm80; emulated-… with --dry-run")
    parser.add_argument("--only", default="", help=f"steps, with commas: {', '.join(STEPS)}")
    parser.add_argument("--dry-run", action="store_true", help="on the emulated GPU, at tiny sizes")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the record")
    parser.add_argument("--report", type=Path, help="only print the table of a record")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all steps together")
    parser.add_argument("--step", choices=list(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.target = args.target or ("emulated-sm90" if args.dry_run else "cuda")
    args.only = [s for s in args.only.split(",") if s] or list(STEPS)
    unknown = [s for s in args.only if s not in STEPS]
    if unknown:
        parser.error(f"no step {unknown[0]!r}: they are {', '.join(STEPS)}")
    return args


def run_all(args: argparse.Namespace) -> dict[str, Any]:
    """Every step in turn; the record."""
    end = time.monotonic() + args.seconds
    steps: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            left = end - time.monotonic()
            limit = min(STEPS[name][1] if not args.dry_run else args.seconds, left)
            if limit < 3:
                steps.append({"step": name, "ended": "no time left", "rows": []})
                continue
            steps.append(one_step(name, args, limit, Path(folder) / f"{name}.jsonl"))
            print(f"{name}: {steps[-1]['ended']} in {steps[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "target": args.target,
        "dry_run": args.dry_run,
        "machine": describe(args.target),
        "steps": steps,
    }


def one_step(name: str, args: argparse.Namespace, limit: float, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--step", name, "--target", args.target, "--out", str(out)]
    command += ["--seconds", str(limit)] + (["--dry-run"] if args.dry_run else [])
    if name in ("memcheck", "racecheck"):
        tool = shutil.which("compute-sanitizer")
        if tool is None or args.dry_run:
            return {"step": name, "ended": "done", "seconds": 0.0, "rows": [], "remark": "compute-sanitizer is not here"}
        command = [tool, "--tool", name, "--error-exitcode", "9", *command]
    began = time.monotonic()
    ended, said = run_process(command, limit)
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")] if out.exists() else []
    step: dict[str, Any] = {"step": name, "ended": ended, "seconds": time.monotonic() - began, "rows": rows}
    return step if ended == "done" else {**step, "said": said}


def run_process(command: Sequence[str], limit: float) -> tuple[str, str]:
    """How a process ended, and its last words."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}
    with tempfile.TemporaryFile("w+") as log:
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, timeout=limit, check=False)
            ended = "done" if done.returncode == 0 else f"failed ({done.returncode})"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {limit:.0f} s"
        log.seek(0)
        return ended, log.read()[-4000:]


if __name__ == "__main__":
    main()
