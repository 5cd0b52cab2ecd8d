"""Edits of documents of every stage: each is obeyed or refused, and nothing ends a process or leaves its arrays.

    python -m tests.fuzz.documents --seeds 0-2000 [--jobs 2] [--stage loop] [--sample 400] [--all]
    python -m tests.fuzz.documents --every plan,region [--programs gemm80,gemm90] [--part 0/10 | --compare 300]
    python -m tests.fuzz.documents --every plan,region --record tests/fuzz/edits/record.json [--seconds 600]

A seed makes one or two edits of a document. `--every` makes every single edit of a field, and every deletion, in the documents of
the programs of `edits/every_edit.py`, on a CPU and on emulated GPUs; `--record` goes on behind what a record says was run.

Programs on a CPU are compiled with AddressSanitizer and UndefinedBehaviorSanitizer. The kinds of outcome: `refused` (a diagnostic),
`obeyed` (the results are those of the meaning of what was edited), `label` (what people read), `default` (a field left out that says
what the compiler takes without it), `uncalled` (it asks for arrays that no test makes).
All others are findings, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.sanitizer import sanitizer_library
from tests.fuzz import pool
from tests.fuzz.edits.document_edits import draw
from tests.fuzz.edits.document_programs import EDITED, documents
from tests.fuzz.edits.every_edit import EVERY, ON_CPU, ON_GPU, STAGES_EDITED, cases, changes_of
from tests.fuzz.edits.record import Record
from tests.fuzz.edits.record import table as summary

FINE = ("refused", "obeyed", "checked", "label", "default", "uncalled")
SECONDS = 180.0
"""Time of one edit, its compilation and its runs."""
BLOCK = 1000
"""Edits that one set of workers tries: programs that were loaded stay in memory until it ends."""
WORKER = "tests.fuzz.edits.document_worker"


def environment(documents_file: Path) -> dict[str, str]:
    return {
        "TATAMI_CALIBRATE": "0",
        "TATAMI_QUICK_BUILD": "1",
        "TATAMI_PROGRAM_CACHE": "0",
        "TATAMI_NUM_THREADS": "2",
        "TATAMI_FUZZ_DOCUMENTS": str(documents_file),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:handle_segv=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=0",
    }


def sanitized() -> dict[str, str]:
    """The variables with which programs are compiled and run under the sanitizers. Raises TatamiError if there are none."""
    return {"LD_PRELOAD": sanitizer_library(find_compiler()), "TATAMI_SANITIZE": "1"}


def campaign(seeds: list[int], *, jobs: int, seconds: float = SECONDS, every: bool = False) -> dict[int, dict[str, Any]]:
    """Outcomes by seed."""
    out: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "documents.json"
        programs = {name: documents(name) for name in EDITED}
        file.write_text(json.dumps(programs))

        def take(seed: int, outcome: dict[str, Any]) -> None:
            if "stage" not in outcome:
                program, stage, _, edits = draw(seed, programs)
                outcome |= {"program": program, "stage": stage, "edits": list(map(str, edits))}
            out[seed] = outcome
            if every or outcome["kind"] not in FINE:
                print(f"{seed} {outcome['kind']} {outcome['program']} {outcome['stage']}: {'; '.join(outcome['edits'])}")
                print(f"    {outcome['why']}", flush=True)

        pool.run(WORKER, environment(file) | sanitized(), seeds, take, jobs=jobs, seconds=seconds)
    return out


def every(
    chosen: list[dict[str, Any]],
    *,
    jobs: int,
    show: bool = False,
    noted: Callable[[dict[str, Any], dict[str, Any]], None] = lambda case, outcome: None,
    whole: bool = False,
) -> dict[int, dict[str, Any]]:
    """Outcomes of single edits, by number. `whole`: each goes the whole way by itself, and shares nothing with other edits."""
    out: dict[int, dict[str, Any]] = {}

    def take(case: Any, outcome: dict[str, Any]) -> None:
        found = {**case, **outcome}
        if "edits" not in found:
            found["edits"] = [changes_of(case["program"], case["stage"])[case["number"]][0]]
        out[len(out)] = found
        noted(case, found)
        if show or found["kind"] not in FINE:
            print(f"{found['kind']} {found['program']} {found['stage']} {found['number']}: {'; '.join(found['edits'])}")
            print(f"    {found['why']}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        none = Path(folder) / "documents.json"
        none.write_text("{}")
        plain = environment(none)
        for group in (ON_GPU, ON_CPU):
            mine = [case for case in chosen if case["program"] in group]
            if mine and group is ON_GPU:
                way = {"way": "whole"} if whole else {}
                pool.run(WORKER, plain, [{**c, **way} for c in mine], take, jobs=jobs, seconds=SECONDS)
            elif mine and whole:
                pool.run(WORKER, plain | sanitized(), [{**c, "way": "whole"} for c in mine], take, jobs=jobs, seconds=SECONDS)
            elif mine:
                early, runs = [{**c, "way": "first"} for c in mine], plain | sanitized()
                pool.run(WORKER, plain, early, take, jobs=jobs, seconds=SECONDS, again=runs)
    return out


def recorded(chosen: list[dict[str, Any]], file: Path, *, jobs: int, seconds: float, show: bool) -> int:
    """Edits that the record lacks, until `seconds` have passed; 1 if the record has a finding."""
    record = Record(file)
    begin = saved = time.monotonic()

    def left() -> Iterator[dict[str, Any]]:
        in_time = time.monotonic() - begin < seconds
        return (c for c in chosen if in_time and c["number"] >= record.entry(c["program"], c["stage"])["next"])

    def note(case: dict[str, Any], outcome: dict[str, Any]) -> None:
        nonlocal saved
        record.take(case, outcome, outcome["kind"] in FINE)
        if time.monotonic() - saved > 5:
            record.save()
            saved = time.monotonic()

    try:
        while block := list(itertools.islice(left(), BLOCK)):
            every(block, jobs=jobs, show=show, noted=note)
    finally:
        record.save()
    print(summary(record))
    return int(any(e["findings"] for entries in record.found.values() for e in entries.values()))


def compared(chosen: list[dict[str, Any]], count: int, *, jobs: int) -> int:
    """A sample of edits both ways: 1 if an outcome that shares work differs from the one that does not."""
    sample = Random(count).sample(chosen, min(count, len(chosen)))
    ways = [every(sample, jobs=jobs, whole=whole) for whole in (False, True)]
    by_case = [{(o["program"], o["stage"], o["number"]): (o["kind"], o["why"]) for o in outcomes.values()} for outcomes in ways]
    differ = [case for case in by_case[0] if not _alike(by_case[0][case], by_case[1].get(case, ("", "")))]
    for case in differ:
        print(case, by_case[0][case], by_case[1].get(case))
    print(table(ways[0]))
    print(f"{len(differ)} of {len(sample)} outcomes differ from those of the whole way")
    return int(bool(differ))


def _alike(fast: tuple[str, str], whole: tuple[str, str]) -> bool:
    return fast == whole if fast[0] == "refused" else fast[0] == whole[0]


def table(outcomes: dict[int, dict[str, Any]]) -> str:
    """Outcomes by stage and kind."""
    counts = Counter((o["stage"], o["kind"]) for o in outcomes.values())
    kinds = sorted({k for _, k in counts}, key=lambda k: (k not in FINE, k))
    stages = list(dict.fromkeys(s for s, _ in sorted(counts)))
    lines = [f"{'stage':16}" + "".join(f"{k:>18}" for k in kinds)]
    lines += [f"{s:16}" + "".join(f"{counts[s, k]:18}" for k in kinds) for s in stages]
    lines.append(f"{'all':16}" + "".join(f"{sum(counts[s, k] for s in stages):18}" for k in kinds))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.documents", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default="0-500", help="first-last, the last left out")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="print every outcome")
    parser.add_argument("--stage", default="", help="only the seeds of one stage")
    parser.add_argument("--sample", type=int, default=0, help="so many of the seeds, the same in every run")
    parser.add_argument("--every", default="", metavar="STAGES", help="every single edit of these stages, comma separated")
    parser.add_argument("--programs", default=",".join(EVERY), help="with --every: names, comma separated")
    parser.add_argument("--part", default="0/1", help="with --every: which edits, number/parts")
    parser.add_argument("--record", type=Path, help="with --every: what was run and what is left, as JSON")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="with --record: begin nothing after so many")
    parser.add_argument("--compare", type=int, default=0, help="with --every: so many edits also without shared work")
    given = parser.parse_args()
    if given.every:
        number, _, parts = given.part.partition("/")
        names, stages = given.programs.split(","), given.every.split(",")
        if unknown := [*(set(names) - {*EVERY}), *(set(stages) - {*STAGES_EDITED})]:
            parser.error(f"{unknown[0]!r} is none of {', '.join((*EVERY, *STAGES_EDITED))}")
        chosen = cases(names, stages, (int(number), int(parts)))
        if given.compare:
            return compared(chosen, given.compare, jobs=given.jobs)
        if given.record:
            return recorded(chosen, given.record, jobs=given.jobs, seconds=given.seconds, show=given.all)
        return report(every(chosen, jobs=given.jobs, show=given.all))
    first, _, last = given.seeds.partition("-")
    seeds = list(range(int(first), int(last or int(first) + 1)))
    if given.stage:
        programs = {name: documents(name) for name in EDITED}
        seeds = [s for s in seeds if draw(s, programs)[1] == given.stage]
    if given.sample:
        seeds = sorted(Random(len(seeds)).sample(seeds, min(given.sample, len(seeds))))
    return report(campaign(seeds, jobs=given.jobs, every=given.all))


def report(outcomes: dict[int, dict[str, Any]]) -> int:
    """Prints the table of outcomes; 1 if there is a finding."""
    print(table(outcomes))
    return int(any(o["kind"] not in FINE for o in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
