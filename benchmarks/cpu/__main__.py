"""Tatami against PyTorch, torch.compile, ONNX Runtime and numpy on this CPU, by the rules of `blocks.py`.

    python -m benchmarks.cpu                    everything; writes the record of this machine's instruction set,
                                                benchmarks/results/cpu-<isa>.json, and docs/performance.md from all records
    python -m benchmarks.cpu --quick            a small set in some minutes; writes nothing unless --json is given
    python -m benchmarks.cpu --group gemm --threads 1
    python -m benchmarks.cpu --keep FOLDER      everything, and what FOLDER has from a run that was ended is not measured again
    python -m benchmarks.cpu --report           docs/performance.md from the records, without measuring

All contestants take turns. With one thread they share a process, and each peer that comes near the best runs once more alone in
a fresh one; with more threads every contestant has a process of its own, because pools spin, and peers that were far from the
best with one thread are left out. Contestants compile before they are measured, on all cores. Rows that are void are measured
again, up to --rounds times in all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from benchmarks.cpu.blocks import OTHERS, Block, Row, best_probe, judge, may_decide, near_peers
from benchmarks.cpu.case import Case
from benchmarks.cpu.cases import all_cases, chosen
from benchmarks.cpu.contestants import NAMES, OURS, applies
from benchmarks.cpu.folder import Folder, Found
from benchmarks.cpu.machine import describe
from benchmarks.cpu.memory import measure_growth
from benchmarks.cpu.report import Record, table_text, write_report
from benchmarks.cpu.turns import Worker, measure_case
from tatami.runtime.cores import usable_cores
from tatami.runtime.machine.host import detect_host

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
    """Measurements first, then verdicts: which peers run alone depends on what they took in company. `part`: the cases in
    which a contestant takes part."""
    processes = [list(part)] if threads == 1 else [[n] for n in part]
    together = {f.case: f for f in _measured(folder, turn, threads, seconds, processes, cases, part)}
    alone: dict[str, dict[str, list[Block]]] = {c.name: {} for c in cases}
    if threads == 1 and len(part) > 1:
        for name in (n for n in part if n != OURS):
            again = [c for c in cases if name in may_decide(together[c.name].blocks, OURS)]
            for found in _measured(folder, turn, threads, seconds / 2, [[name]], again, part):
                alone[found.case] |= found.blocks
    peak = best_probe(b for f in together.values() for blocks in f.blocks.values() for b in blocks)
    for case in cases:
        ran = together[case.name]
        taken, peer, ratio, void = judge(ran.blocks, alone[case.name], OURS)
        if (ran.others or 0.0) > OTHERS:
            void = f"others used {ran.others:.2f} processors"
        yield Row(
            case.name, case.group, threads, taken, peer, ratio, void, case.flops, case.bytes, peak,
            ran.errors, ran.difference, ran.parked,
        )  # fmt: skip


def _prepare(folder: Folder, threads: int, part: Mapping[str, Sequence[Case]]) -> None:
    """Every contestant makes what it compiles, in a process per core: what is measured later comes from its cache."""
    cores = usable_cores()

    def make(name: str, cases: Sequence[Case]) -> None:
        for _ in _measured(folder, 0, threads, 0.0, [[name]], cases, part):
            pass

    for name in (n for n in part if n == OURS or n.startswith("compile")):
        with ThreadPoolExecutor(cores) as pool:
            for made in [pool.submit(make, name, part[name][k::cores]) for k in range(cores)]:
                made.result()


def _measured(
    folder: Folder,
    turn: int,
    threads: int,
    seconds: float,
    processes: Sequence[Sequence[str]],
    cases: Sequence[Case],
    part: Mapping[str, Sequence[Case]],
) -> Iterator[Found]:
    """The cases by contestants in these processes: first those that the folder has."""
    key = (turn, threads, seconds, tuple(n for names in processes for n in names))
    left = {c.name: c for c in cases}
    for found in folder.found(key):
        if left.pop(found.case, None):
            yield found
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(contextlib.closing(Worker(folder.path, threads, names))) for names in processes]
        for case in left.values():
            present = [w for w in workers if any(case in part[n] and applies(n, case, threads) for n in w.names)]
            found = measure_case(present, case.name, seconds)
            folder.add(key, found)
            print(f"round {turn + 1}, {threads} thread(s), {', '.join(key[-1])}: {case.name}", file=sys.stderr)
            yield found


if __name__ == "__main__":
    main()
