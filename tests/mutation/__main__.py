"""``python -m tests.mutation [--only loop/verify …] [--changed] [--update]``: faults put into the verifiers, and the tests that notice them.

Without `--only`, every verifier; with `--changed`, those whose statements are not those of the record. `--update` writes what was found to `tests/mutation/record.json` and the page `docs/mutation.md`;
`--match TEXT` tries the mutants whose function, line or change has the text, and `--extra FILE` runs more tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
from collections.abc import Iterable

import pytest

from tests.mutation.areas import AREAS, ROOT, digest_of, mutants_of
from tests.mutation.page import Row, read_record, write_page, write_record
from tests.mutation.runner import Campaign, Outcome
from tests.mutation.survivors import REASONS

QUICK = ("--assert=plain", "--tb=native")
"""Options of pytest: what a failure looks like takes five times as long as most of the tests."""


def count_of(path: str) -> int:
    return len(mutants_of(ast.parse((ROOT / path).read_text()), AREAS[path]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="VERIFIER", help="parts of names of files")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants with this text")
    parser.add_argument(
        "--again", action="store_true", help="only the survivors of the record; tests may have changed, not files"
    )
    parser.add_argument("--changed", action="store_true", help="only files that have changed since their record")
    parser.add_argument("--extra", nargs="+", default=[], metavar="FILE", help="test files to run in addition")
    parser.add_argument("--update", action="store_true", help="write the record and the page")
    given = parser.parse_args()
    os.chdir(ROOT)
    os.environ["TATAMI_PROGRAM_CACHE"] = "0"
    paths = [p for p in AREAS if not given.only or any(part in p for part in given.only)]
    if not paths:
        parser.error(f"no verifier is named so; there are {', '.join(AREAS)}")
    rows = read_record()
    if given.changed:
        paths = [p for p in paths if p not in rows or rows[p].digest != digest_of(p)]
    if given.again and (other := [p for p in paths if p in rows and rows[p].digest != digest_of(p)]):
        parser.error(f"{other[0]} has changed since its record: run it without --again")
    tests = sorted({t for p in paths for t in AREAS[p].tests} | set(given.extra))
    bad = 0

    def told(path: str, outcomes: Iterable[Outcome]) -> None:
        nonlocal bad
        made = timed = 0
        lost: list[tuple[str, str]] = []
        for o in outcomes:
            made += 1
            timed += o.killed_by == "time"
            if o.killed_by:
                continue
            lost.append((o.mutant.function, o.mutant.what))
            reason = REASONS.get((path, *lost[-1]), "")
            bad += not reason
            print(f"{path}:{o.mutant.line} {o.mutant.function}: {o.mutant.what}  ({o.tests} tests) {reason}", flush=True)
        print(f"{path}: {made} mutants, {timed} ended by time, {len(lost)} survive", flush=True)
        if not given.match:
            if again is not None:
                made, timed = count_of(path), rows[path].timed
            rows[path] = Row(digest_of(path), made, timed, lost)
            if given.update:
                write_record({**read_record(), path: rows[path]})
                write_page(read_record())

    again = {p: set(rows[p].survivors) for p in paths if p in rows} if given.again else None
    print(f"{len(tests)} test files", flush=True)
    campaign = Campaign(ROOT, [p for p in paths if again is None or again.get(p)], told, given.match, again)
    begin = time.process_time()
    status = pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-q", *QUICK, *tests], plugins=[campaign])
    for name in campaign.broken:
        print(f"left out, since it fails or is skipped as it is: {name}")
    print(f"{time.process_time() - begin + sum(os.times()[2:4]):.0f} s of processor time; {bad} survivors without a reason")
    return 1 if bad or status not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
