"""Tatami beside PyTorch, torch.compile, ONNX Runtime and numpy on this CPU, by the rules of `blocks.py`.

    python -m benchmarks.cpu                    everything; writes benchmarks/results/cpu.json and docs/performance.md
    python -m benchmarks.cpu --quick            a small set in some minutes; writes nothing unless --json is given
    python -m benchmarks.cpu --group gemm --threads 1
    python -m benchmarks.cpu --keep FOLDER      everything, and what FOLDER has from a run that was ended is not measured again
    python -m benchmarks.cpu --report           docs/performance.md from the record, without measuring

With one thread all contestants take turns in one process, and each peer that comes near the best runs once more alone in a
fresh one; with more threads every contestant has a process of its own, because pools spin, and peers that were far from the
best with one thread are left out. What contestants compile they compile before, on all cores: so that a whole run takes
some twenty minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from benchmarks.cpu.blocks import Block, Row, best_probe, judge, may_decide, near_peers
from benchmarks.cpu.cases import Case, all_cases, chosen
from benchmarks.cpu.contestants import NAMES, OURS, applies
from benchmarks.cpu.environment import environment
from benchmarks.cpu.folder import Folder, Found
from benchmarks.cpu.machine import describe
from benchmarks.cpu.memory import measure_growth
from benchmarks.cpu.report import Record, table_text, write_report
from tatami.runtime.host import usable_cores

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "cpu.json"


def main() -> None:
    args = arguments()
    if not args.report:
        record = measure(args)
        print(table_text(record))
        if args.json is not None:
            print(f"wrote {args.json}")
        if args.json != RECORD:
            return
    write_report(msgspec.json.decode(RECORD.read_bytes(), type=Record), ROOT / "docs")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small set of cases, with one thread")
    parser.add_argument("--group", action="append", default=[], help="gemm, layer, rows, attention, model, conv 3x3, …")
    parser.add_argument("--case", action="append", default=[], help="one case by its name")
    parser.add_argument("--contestant", action="append", default=[], choices=NAMES)
    parser.add_argument("--threads", type=int, action="append", default=[], help="1 and 2 when not given")
    parser.add_argument("--seconds", type=float, default=0.25, help="per contestant and case, at least")
    parser.add_argument(
        "--json", type=Path, default=None, help=f"the record (default {RECORD.relative_to(ROOT)} of a full run)"
    )
    parser.add_argument("--keep", type=Path, default=None, help="go on in this folder where a run of the same code was ended")
    parser.add_argument("--report", action="store_true", help="only write docs/performance.md from the record")
    args = parser.parse_args()
    whole = not (args.quick or args.group or args.case or args.contestant or args.threads)
    args.threads = args.threads or ([1] if args.quick else [1, 2])
    args.json = args.json or (RECORD if whole else None)
    return args


def measure(args: argparse.Namespace) -> Record:
    cases = chosen(tuple(args.group), tuple(args.case), args.quick)
    names = args.contestant or list(NAMES)
    if not cases:
        groups = ", ".join(dict.fromkeys(f"{c.group!r}" for c in all_cases().values()))
        raise SystemExit(f"no case: groups are {groups}")
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Folder(args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory())))
        folder.write_models(cases)
        growth = measure_growth(str(folder.path), [c.name for c in cases if c.group == "model"])
        for threads in args.threads:
            near = {r.case: near_peers(r.seconds, OURS) for r in rows if r.threads == 1} if threads > 1 else {}
            rows += _rows(folder, cases, names, threads, args.seconds, near)
            record = Record(describe(), rows, growth)
            if args.json is not None:  # after each number of threads: a run that is ended keeps what is whole
                args.json.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
    return record


def _rows(
    folder: Folder, cases: Sequence[Case], names: Sequence[str], threads: int, seconds: float, near: Mapping[str, Sequence[str]]
) -> Iterator[Row]:
    """Processes first, then verdicts: which peers run alone depends on what they took in company. `near`: by case the peers
    that take part, where some are left out."""
    titles = [c.name for c in cases]
    together: dict[str, list[Found]] = {t: [] for t in titles}
    alone: dict[str, dict[str, list[Block]]] = {t: {} for t in titles}
    part = {n: [c for c in cases if n == OURS or c.name not in near or n in near[c.name]] for n in names}
    _prepare(folder, threads, part)
    processes = [(list(names), list(cases))] if threads == 1 else [([n], part[n]) for n in names]
    for process, own in processes:
        for found in _worker(folder, threads, seconds, process, own):
            together[found.case].append(found)
    if threads == 1 and len(names) > 1:
        for name in names:
            if name == OURS:
                continue
            again = [c for c in cases if any(name in may_decide(f.blocks, OURS) for f in together[c.name])]
            for found in _worker(folder, threads, seconds / 2, [name], again):
                alone[found.case].update(found.blocks)
    peak = max((best_probe(f.blocks) for all_ in together.values() for f in all_), default=0.0)
    for case in cases:
        blocks: dict[str, list[Block]] = {}
        errors: dict[str, str] = {}
        difference: dict[str, float] = {}
        parked = None
        for f in together[case.name]:
            blocks |= f.blocks
            errors |= f.errors
            difference |= f.difference
            parked = parked if f.parked is None else f.parked
        taken, peer, ratio, void = judge(blocks, alone[case.name], OURS)
        yield Row(
            case.name, case.group, threads, taken, peer, ratio, void, case.flops, case.bytes, peak, errors, difference, parked
        )  # fmt: skip


def _prepare(folder: Folder, threads: int, part: Mapping[str, Sequence[Case]]) -> None:
    """Every contestant makes what it compiles, in a process per core: what is measured later comes from its cache."""
    cores = usable_cores()
    for name in (n for n in part if n == OURS or n.startswith("compile")):
        with ThreadPoolExecutor(cores) as pool:
            shares = [part[name][k::cores] for k in range(cores)]
            for made in [pool.submit(lambda s, n: list(_worker(folder, threads, 0.0, [n], s)), s, name) for s in shares]:
                made.result()


def _worker(folder: Folder, threads: int, seconds: float, names: Sequence[str], cases: Sequence[Case]) -> Iterator[Found]:
    """The results of one process, case by case: first those that the folder has. A case that ends the process is left out
    and the rest goes on."""
    left = [c.name for c in cases if any(applies(n, c, threads) for n in names)]
    key = (threads, seconds, tuple(names))
    for found in folder.found(key):
        if found.case in left:
            left.remove(found.case)
            yield found
    while left:
        command = [
            sys.executable, "-m", "benchmarks.cpu.worker", str(folder.path), str(threads), str(seconds), ",".join(names),
            "\n".join(left),
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment(threads)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = msgspec.json.decode(line, type=Found)
                folder.add(key, found)
                left.remove(found.case)
                print(f"{threads} thread(s), {', '.join(names)}: {found.case}", file=sys.stderr)
                yield found
        if left and process.returncode != 0:
            print(f"{', '.join(names)}: {left[0]} ended the process ({process.returncode})", file=sys.stderr)
            left.pop(0)


if __name__ == "__main__":
    main()
