"""The whole suite on this CPU: `python -m tests.conformance.run` writes docs/conformance.md.

Options: `--group NAME` (again and again) and `--every N` take a part, `--only WORD` the cases with that word in their
name; a part is printed and writes nothing. `--jobs N` runs N at a time, `--update` also writes expected.json. `--log FILE`
keeps each outcome as it comes and takes those that FILE has already: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from tests.conformance.cases import TOTALS, VERSION, Case, Outcome, load_cases, run_case

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected.json"
PAGE = ROOT / "docs" / "conformance.md"
REST = "## Models that NNSmith drew"
"""Heading behind the part of the page that this command writes."""
PATHS = ("kernels only", "with Host steps", "specialised at run time")
Results = list[tuple[Case, Outcome]]
ABOUT_FAILURES = (
    "## Failures",
    "",
    "Some expected values cannot be met, and are counted as failures all the same:",
    "",
    "- Bernoulli and Dropout in training: the values are those of numpy's random generator; ours is Philox.",
    "- `test_dft_inverse`: 1.9e-7 is expected where the exact value is 0 and ours 3e-15 (rounding of numpy's fp32 FFT).",
    "- `test_loop16_seq_none`: the suite's comparison takes the length of a rank-0 element, whatever the backend gives.",
    "",
)
"""Measured once by hand; the rest of the page is measured by every run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", action="append", default=[], choices=list(TOTALS))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--log", type=Path, help="outcomes so far, a JSON line each")
    parser.add_argument("--update", action="store_true", help="write expected.json anew")
    options = parser.parse_args()
    is_whole = not options.group and not options.only and options.every == 1
    cases = [c for c in load_cases(*options.group) if options.only in c.name][:: options.every]
    known = logged(options.log)
    missing = [c for c in cases if key(c) not in known]
    begin = time.monotonic()
    for number, (case, outcome) in enumerate(zip(missing, outcomes(missing, options.jobs), strict=True), 1):
        known[key(case)] = outcome
        if options.log:
            with options.log.open("a") as file:
                file.write(json.dumps([key(case), asdict(outcome)]) + "\n")
        if number % 100 == 0:
            passed = sum(known[key(c)].passed for c in missing[:number])
            print(f"{number}/{len(missing)}: {passed} passed, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    results: Results = [(c, known[key(c)]) for c in cases]
    print(summary(results))
    if is_whole:
        PAGE.write_text(page(results) + kept(PAGE.read_text()))
        if options.update:
            failing = {key(c): o.reason for c, o in results if not o.passed}
            text = json.dumps({"onnx": VERSION, "totals": TOTALS, "failing": failing}, indent=1, ensure_ascii=True)
            EXPECTED.write_text(text + "\n")
    else:
        for case, outcome in results:
            if not outcome.passed:
                print(f"{case.group}/{case.name}: {outcome.reason}")
    return 0


def key(case: Case) -> str:
    return f"{case.group}/{case.name}"


def logged(log: Path | None) -> dict[str, Outcome]:
    """The outcomes that the log holds; of two of one case the later one."""
    if log is None or not log.exists():
        return {}
    found = dict(json.loads(line) for line in log.read_text().splitlines())
    return {name: Outcome(**{**o, "host_steps": tuple(o["host_steps"])}) for name, o in found.items()}


def outcomes(cases: list[Case], jobs: int) -> Iterator[Outcome]:
    """Outcomes of the cases, in order, found by `jobs` processes."""
    if jobs == 1:
        yield from map(run_case, cases)
        return
    global _CASES
    _CASES = cases  # the processes are forks: they have the cases, which cannot be sent to them
    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_run, range(len(cases)), chunksize=4)


_CASES: list[Case] = []


def _run(index: int) -> Outcome:
    return run_case(_CASES[index])


def summary(results: Results) -> str:
    """A row per group."""
    lines = [
        "| group | passed | total | kernels only | with Host steps | specialised at run time |",
        "|---|---|---|---|---|---|",
    ]
    for group in [*TOTALS, "together"]:
        mine = [(c, o) for c, o in results if group in (c.group, "together")]
        if mine:
            ways = Counter(o.path for _, o in mine if o.passed)
            lines.append(
                f"| {group} | {sum(o.passed for _, o in mine)} | {len(mine)} | {' | '.join(str(ways[p]) for p in PATHS)} |"
            )
    return "\n".join(lines)


def page(results: Results) -> str:
    """The score by group and operator, the Host steps used, and every failure with its reason."""
    node = [(c, o) for c, o in results if c.group == "node"]
    steps: dict[str, set[str]] = defaultdict(set)
    for case, outcome in results:
        for step in outcome.host_steps:
            steps[step].add(case.operator or case.name)
    lines = [
        "# ONNX conformance",
        "",
        f"ONNX's own backend test suite (`onnx.backend.test` of onnx {VERSION}) through `tatami.onnx.backend`, by the suite's own",
        "runner and comparison; this page is written by `python -m tests.conformance.run`. No case is left out.",
        "",
        summary(results),
        "",
        '"Kernels only" compiles without knowing any input\'s value and runs no Python between kernels. "With Host steps"',
        'does the same, with steps in Python where data decide sizes; `extent` reads a size that an input holds. "Specialised',
        'at run time" waits for the first run: the axes or lengths that are inputs of the model decide its structure, one',
        "program is compiled for what they hold, kept, and used again when they hold the same.",
        "",
        "## Host steps",
        "",
        "| step | operators |",
        "|---|---|",
        *(f"| {step} | {', '.join(sorted(steps[step]))} |" for step in sorted(steps)),
        "",
        "## Node cases by operator",
        "",
        "| operator | passed | total | with Host steps | specialised |",
        "|---|---|---|---|---|",
        *_operator_rows(node),
        "",
        *ABOUT_FAILURES,
        "| cases | reason |",
        "|---|---|",
        *_failures(results),
    ]
    return "\n".join(lines) + "\n"


def kept(text: str) -> str:
    """The sections that other commands and people write: those after the failures."""
    at = text.find(REST)
    return "" if at < 0 else "\n" + text[at:]


def _operator_rows(results: Results) -> Iterable[str]:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for case, outcome in results:
        row = rows[case.operator]
        row["total"] += 1
        row["passed"] += outcome.passed
        row[outcome.path] += outcome.passed
    for operator in sorted(rows):
        row = rows[operator]
        special = [row[p] or "" for p in PATHS[1:]]
        yield f"| {operator} | {row['passed']} | {row['total']} | {special[0]} | {special[1]} |"


def _failures(results: Results) -> Iterable[str]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for case, outcome in results:
        if not outcome.passed:
            reasons[outcome.reason].append(case.name)
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        cell = reason.replace("|", "\\|")
        yield f"| {', '.join(f'`{n}`' for n in sorted(names))} | {cell} |"


if __name__ == "__main__":
    sys.exit(main())
