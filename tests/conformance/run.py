"""The whole suite on the compiled CPU target: `python -m tests.conformance.run` writes docs/conformance.md.

Options: `--every N` takes each N-th case and writes nothing; `--update` also writes expected.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.conformance.cases import TOTAL, VERSION, Outcome, load_cases, operator_of, run_case

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected.json"
PAGE = ROOT / "docs" / "conformance.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--update", action="store_true", help="write expected.json anew")
    options = parser.parse_args()
    cases = load_cases()[:: options.every]
    outcomes: dict[str, Outcome] = {}
    operators: dict[str, str] = {}
    begin = time.monotonic()
    for number, case in enumerate(cases, 1):
        outcomes[case.name] = run_case(case, options.target)
        operators[case.name] = operator_of(case)
        if number % 50 == 0:
            passed = sum(o.passed for o in outcomes.values())
            print(f"{number}/{len(cases)}: {passed} passed, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    passed = sum(o.passed for o in outcomes.values())
    print(f"{passed} of {len(cases)} passed, {sum(o.passed and o.specialised for o in outcomes.values())} of them specialised")
    if options.every == 1:
        PAGE.write_text(page(outcomes, operators))
        if options.update:
            failing = {name: o.reason for name, o in sorted(outcomes.items()) if not o.passed}
            text = json.dumps({"onnx": VERSION, "total": TOTAL, "failing": failing}, indent=1, ensure_ascii=True)
            EXPECTED.write_text(text + "\n")
    else:
        for name, outcome in outcomes.items():
            if not outcome.passed:
                print(f"{name}: {outcome.reason}")
    return 0


def page(outcomes: dict[str, Outcome], operators: dict[str, str]) -> str:
    """The score by operator, and every failure with its reason."""
    passed = sum(o.passed for o in outcomes.values())
    special = sum(o.passed and o.specialised for o in outcomes.values())
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, outcome in outcomes.items():
        row = rows[operators[name]]
        row["total"] += 1
        row["passed"] += outcome.passed
        row["specialised"] += outcome.passed and outcome.specialised
        if not outcome.passed:
            reasons[outcome.reason].append(name)
    lines = [
        "# ONNX conformance",
        "",
        f"The {len(outcomes)} node cases of `onnx.backend.test` (onnx {VERSION}) on the compiled CPU target; this page is",
        "written by `python -m tests.conformance.run`. Dtypes and shapes have to match exactly, values within the suite's",
        "own tolerance. No case is left out.",
        "",
        f"**{passed} of {len(outcomes)} pass.** {passed - special} of them compile without knowing any input's value;",
        f"{special} take axes, shapes or counts as inputs and are compiled for the values of these inputs",
        "(`tatami.compile(model, example_inputs=…)`).",
        "",
        "## By operator",
        "",
        "| operator | passed | total | of these specialised |",
        "|---|---|---|---|",
    ]
    for operator in sorted(rows):
        row = rows[operator]
        lines.append(f"| {operator} | {row['passed']} | {row['total']} | {row['specialised'] or ''} |")
    lines += ["", "## Failures", "", "| cases | reason |", "|---|---|"]
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        cell = reason.replace("|", "\\|")
        lines.append(f"| {', '.join(f'`{n}`' for n in sorted(names))} | {cell} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
