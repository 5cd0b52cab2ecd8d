"""Every small graph of the operations on an emulated GPU, compared with the reference.

    python -m tests.emulated.every_case --target emulated-sm80 --jobs 2 --record every_case.json

A record names the cases that agreed; a later call with the same record goes on with the others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.report.playback import compare_outputs
from tests.frontend.cases import CASES
from tests.frontend.test_meaning import built

NO_CUDA_BODY = {"kernel_body"}
"""Cases whose custom kernel has a C body only."""


def difference(name: str, target: str) -> str:
    """The difference between the target and the reference; "" if there is none."""
    try:
        module, inputs, sizes = built(name)
        compilation = prepare(module, target=target)
        with np.errstate(all="ignore"):
            want = compilation.reference_run(inputs, sizes)
        got = build(compilation, 1, sizes)({n: a.copy() for n, a in inputs.items()})
        found = compare_outputs(module.main.signature, got, want)
        return "; ".join(str(a.difference) for a in found if a.difference is not None)
    except TatamiError as error:
        return str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"


def examined(work: tuple[str, str]) -> tuple[str, str]:
    return work[0], difference(*work)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="emulated-sm80")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    agreed: set[str] = set()
    if options.record is not None and options.record.exists():
        agreed = set(json.loads(options.record.read_text())["agreed"])
    left = [n for n in options.names or CASES if n not in agreed | NO_CUDA_BODY]
    failures = 0
    work = [(n, options.target) for n in left]
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool:  # each case maps a machine's memory
        for name, fault in pool.imap_unordered(examined, work):
            if fault:
                failures += 1
                print(f"{name}: {fault}", flush=True)
                continue
            agreed.add(name)
            if options.record is not None:
                options.record.write_text(json.dumps({"target": options.target, "agreed": sorted(agreed)}, indent=1) + "\n")
    print(f"{len(left)} cases, {failures} differ; {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
