"""`python -m tests.onnx.grid`: run the grid and print what is not right.

`--op NAME` one operator (again and again), `--share K/N` every Nth case from the Kth on, `--list` names the cases and runs
none, `--log FILE` keeps each verdict, `--write` writes docs/onnx-grid.md after a run of the whole grid.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.onnx.grid.cases import cases
from tests.onnx.grid.report import share_of, summary, write_page, write_tables
from tests.onnx.grid.run import verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.grid", description=__doc__)
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--share", default="1/1", help="K/N: every Nth case from the Kth on")
    parser.add_argument("--again", type=Path, help="only the cases that a report of this command names as not right")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tables", action="store_true", help="only the tables of the page anew, without a run")
    parser.add_argument("--all", action="store_true", help="print right cases too")
    options = parser.parse_args()
    if options.tables:
        write_tables()
        return 0
    found = share_of([c for op in options.op or [""] for c in cases(op)], options.share)
    if options.again:
        named = set(
            re.findall(r"^(?:wrong|refused|fault|undecided|not told): (\S+-\d+ .*?): ", options.again.read_text(), re.M)
        )
        found = [c for c in found if c.name in named]
    if options.list:
        print("\n".join(c.name for c in found))
        return 0
    done = []
    for v in verdicts(found):
        done.append(v)
        if options.all or v.outcome != "right":
            print(f"{v.outcome}: {v.case.name}: {v.why}", flush=True)
        if len(done) % 500 == 0:
            print(f"{len(done)} of {len(found)}", file=sys.stderr, flush=True)
    print(summary(done))
    if options.write and not options.op and options.share == "1/1":
        write_page(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
