"""One process of the measurement: some contestants on some cases, in turns; a line of JSON per case on standard output.

    python -m benchmarks.cpu.worker FOLDER THREADS SECONDS CONTESTANT,… CASE,…

With SECONDS 0 the contestants are made and called once, so that what they compile is in their caches.
FOLDER has <number of the case>/<contestant or model>.onnx, as `benchmarks.cpu.folder` writes them; a line is a `Found`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from pathlib import Path

from benchmarks.cpu.contestants import OURS, applies, contestant, first_array

MIN_BLOCKS, MAX_BLOCKS = 2, 25
PATIENCE = 3
"""How many times its seconds a case may take while a contestant that counts has no block of a quiet machine."""


def main() -> None:
    folder, threads, seconds, names, cases = sys.argv[1:6]
    sink = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no result
    warnings.simplefilter("ignore")
    with os.fdopen(sink, "w") as out:
        for case in cases.split("\n"):
            print(
                json.dumps(_measure(Path(folder), case, int(threads), float(seconds), names.split(","))), file=out, flush=True
            )


def _measure(folder: Path, title: str, threads: int, seconds: float, names: list[str]) -> dict[str, object]:
    import msgspec

    from benchmarks.cpu.blocks import Block, is_parked, processors_of_others, timed_block, without_quiet_block
    from benchmarks.cpu.cases import all_cases
    from tatami.runtime.peak import Probe

    case = all_cases()[title]
    number = list(all_cases()).index(title)
    inputs = case.inputs()
    runs, errors, outputs = {}, {}, {}
    for name in names:
        if not applies(name, case, threads):
            continue
        special = name if name in case.peers else "model"
        try:
            run = contestant(name, case, str(folder / f"{number}" / f"{special}.onnx"), inputs, threads)
            outputs[name] = first_array(run())
            runs[name] = run
        except Exception as problem:  # a peer that cannot run a case is a fact of the row
            errors[name] = f"{type(problem).__name__}: {problem}"[:300]
    probe = Probe(threads)
    probe()
    blocks: dict[str, list[Block]] = {name: [] for name in runs}
    budget = seconds * max(1, len(runs))

    def take_turns() -> None:
        began = time.perf_counter()
        for turn in range(MAX_BLOCKS):
            spent = time.perf_counter() - began
            if turn >= MIN_BLOCKS and spent > budget and (spent > PATIENCE * budget or not without_quiet_block(blocks, OURS)):
                break
            for name, run in runs.items():
                blocks[name].append(timed_block(run, probe))

    others = processors_of_others(take_turns) if runs and seconds > 0 else None
    result: dict[str, object] = {
        "case": title,
        "blocks": msgspec.to_builtins(blocks),
        "errors": errors,
        "difference": differences(outputs),
        "others": others,
    }
    if OURS in runs and seconds > 0:
        with contextlib.suppress(OSError):
            result["parked"] = is_parked(runs[OURS])
    return result


def differences(outputs: dict[str, object]) -> dict[str, float]:
    """To the first output, in units of its largest value: numbers, so that a line of JSON can say them; what only one of two
    calls no number or infinite is 1 apart."""
    import numpy as np

    if not outputs:
        return {}
    first = np.asarray(next(iter(outputs.values())), np.float64)
    scale = float(np.abs(first[np.isfinite(first)]).max(initial=0.0)) or 1.0

    def difference(output: object) -> float:
        other = np.asarray(output, np.float64).reshape(first.shape)
        same = (other == first) | np.isnan(other) & np.isnan(first)
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(other - first) / scale)
        return float(np.nan_to_num(apart, nan=1.0, posinf=1.0).max(initial=0.0))

    return {name: difference(output) for name, output in outputs.items()}


if __name__ == "__main__":
    main()
