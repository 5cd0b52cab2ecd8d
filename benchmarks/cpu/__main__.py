"""Tatami beside PyTorch, torch.compile, ONNX Runtime and numpy on this CPU, by the rules of `blocks.py`.

    python -m benchmarks.cpu                    everything; writes the record of this machine's instruction set,
                                                benchmarks/results/cpu-<isa>.json, and docs/performance.md from all records
    python -m benchmarks.cpu --quick            a small set in some minutes; writes nothing unless --json is given
    python -m benchmarks.cpu --group gemm --threads 1
    python -m benchmarks.cpu --keep FOLDER      everything, and what FOLDER has from a run that was ended is not measured again
    python -m benchmarks.cpu --report           docs/performance.md from the records, without measuring

With one thread all contestants take turns in one process, and each peer that comes near the best runs once more alone in a
fresh one; with more threads every contestant has a process of its own, because pools spin, and peers that were far from the
best with one thread are left out. What contestants compile they compile before, on all cores. Rows that are void are measured
again, up to --rounds times in all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.cpu.blocks import OTHERS, Row, best_probe, judge, may_decide, near_peers
from benchmarks.cpu.cases import Case, all_cases, chosen
from benchmarks.cpu.contestants import NAMES, OURS, applies
from benchmarks.cpu.environment import environment
from benchmarks.cpu.folder import Folder, Found
from benchmarks.cpu.machine import describe
from benchmarks.cpu.memory import measure_growth
from benchmarks.cpu.report import Record, table_text, write_report
from tatami.runtime.host import detect_host, usable_cores

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SETS = ("avx512", "avx2", "neon", "generic")
RECORDS = {isa: RESULTS / f"cpu-{isa}.json" for isa in SETS}
RECORD = RECORDS[detect_host().isa or "generic"]


def main() -> None:
    args = arguments()
    if not args.report:
        record = measure(args)
        print(table_text(record))
        if args.json is not None:
            print(f"wrote {args.json}")
        if args.json != RECORD:
            return
    records = {isa: msgspec.json.decode(p.read_bytes(), type=Record) for isa, p in RECORDS.items() if p.exists()}
    write_report(records, ROOT / "docs")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small set of cases, with one thread")
    parser.add_argument("--group", action="append", default=[], help="gemm, layer, rows, attention, model, conv 3x3, …")
    parser.add_argument("--case", action="append", default=[], help="one case by its name")
    parser.add_argument("--contestant", action="append", default=[], choices=NAMES)
    parser.add_argument("--threads", type=int, action="append", default=[], help="1 and 2 when not given")
    parser.add_argument("--seconds", type=float, default=0.25, help="per contestant and case, at least")
    parser.add_argument("--rounds", type=int, default=3, help="how often at most a row is measured that is void")
    parser.add_argument(
        "--json", type=Path, default=None, help=f"the record (default {RECORD.relative_to(ROOT)} of a full run)"
    )
    parser.add_argument("--keep", type=Path, default=None, help="go on in this folder where a run of the same code was ended")
    parser.add_argument("--report", action="store_true", help="only write docs/performance.md from the records")
    args = parser.parse_args()
    whole = not (args.quick or args.group or args.case or args.contestant or args.threads)
    args.threads = args.threads or ([1] if args.quick else [1, 2])
    args.json = args.json or (RECORD if whole else None)
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    return args


def measure(args: argparse.Namespace) -> Record:
    cases = chosen(tuple(args.group), tuple(args.case), args.quick)
    names = args.contestant or list(NAMES)
    if not cases:
        groups = ", ".join(dict.fromkeys(f"{c.group!r}" for c in all_cases().values()))
        raise SystemExit(f"no case: groups are {groups}")
    rows: dict[tuple[int, str], Row] = {}
    with contextlib.ExitStack() as stack:
        folder = Folder(args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory())))
        folder.write_models(cases)
        growth = measure_growth(str(folder.path), [c.name for c in cases if c.group == "model"])
        for threads in args.threads:
            near = {r.case: near_peers(r.seconds, OURS) for r in rows.values() if r.threads == 1} if threads > 1 else {}
            part = {n: [c for c in cases if n == OURS or c.name not in near or n in near[c.name]] for n in names}
            _prepare(folder, threads, part)
            left = cases
            for turn in range(args.rounds):
                rows |= {(threads, row.case): row for row in _rows(folder, left, part, turn, threads, args.seconds)}
                record = Record(describe(), list(rows.values()), growth)
                if args.json is not None:  # a run that is ended keeps what is whole
                    args.json.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
                left = [c for c in left if (row := rows[threads, c.name]).void and row.ratio > 0]
    return record


def _rows(
    folder: Folder, cases: Sequence[Case], part: Mapping[str, Sequence[Case]], turn: int, threads: int, seconds: float
) -> Iterator[Row]:
    """Processes first, then verdicts: which peers run alone depends on what they took in company. `part`: the cases in which
    a contestant takes part."""
    together: dict[str, list[Found]] = {c.name: [] for c in cases}
    alone: dict[str, list[Found]] = {c.name: [] for c in cases}
    processes = [list(part)] if threads == 1 else [[n] for n in part]
    for names in processes:
        own = [c for c in cases if any(c in part[n] for n in names)]
        for found in _worker(folder, turn, threads, seconds, names, own):
            together[found.case].append(found)
    if threads == 1 and len(part) > 1:
        for name in (n for n in part if n != OURS):
            again = [c for c in cases if any(name in may_decide(f.blocks, OURS) for f in together[c.name])]
            for found in _worker(folder, turn, threads, seconds / 2, [name], again):
                alone[found.case].append(found)
    peak = best_probe(b for all_ in together.values() for f in all_ for blocks in f.blocks.values() for b in blocks)
    for case in cases:
        ran = together[case.name]
        blocks = _united(f.blocks for f in ran)
        taken, peer, ratio, void = judge(blocks, _united(f.blocks for f in alone[case.name]), OURS)
        others = max((f.others or 0.0 for f in ran), default=0.0)
        if others > OTHERS:
            void = f"others used {others:.2f} processors"
        parked = next((f.parked for f in ran if f.parked is not None), None)
        yield Row(
            case.name, case.group, threads, taken, peer, ratio, void, case.flops, case.bytes, peak,
            _united(f.errors for f in ran), _united(f.difference for f in ran), parked,
        )  # fmt: skip


def _united(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {name: value for part in parts for name, value in part.items()}


def _prepare(folder: Folder, threads: int, part: Mapping[str, Sequence[Case]]) -> None:
    """Every contestant makes what it compiles, in a process per core: what is measured later comes from its cache."""
    cores = usable_cores()
    for name in (n for n in part if n == OURS or n.startswith("compile")):
        with ThreadPoolExecutor(cores) as pool:
            shares = [part[name][k::cores] for k in range(cores)]
            for made in [pool.submit(lambda s, n: list(_worker(folder, 0, threads, 0.0, [n], s)), s, name) for s in shares]:
                made.result()


def _worker(
    folder: Folder, turn: int, threads: int, seconds: float, names: Sequence[str], cases: Sequence[Case]
) -> Iterator[Found]:
    """The results of one process, case by case: first those that the folder has. A case that ends the process is left out
    and the rest goes on."""
    left = [c.name for c in cases if any(applies(n, c, threads) for n in names)]
    key = (turn, threads, seconds, tuple(names))
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
                print(f"round {turn + 1}, {threads} thread(s), {', '.join(names)}: {found.case}", file=sys.stderr)
                yield found
        if left and process.returncode != 0:
            print(f"{', '.join(names)}: {left[0]} ended the process ({process.returncode})", file=sys.stderr)
            left.pop(0)


if __name__ == "__main__":
    main()
