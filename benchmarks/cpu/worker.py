"""One process of the measurement, which has some contestants and does what it is told, a line of JSON for a line of JSON:

    python -m benchmarks.cpu.worker FOLDER THREADS CONTESTANT,…

    {"make": CASE}        its contestants of a case are made and called once   {"names", "errors", "difference"}
    {"block": NAME}       one of them is timed                                 {"seconds", "before", "after"}
    {"end": CASE}         they are let go                                      {"parked"}

It answers when its threads are at rest, so that those of another process find the cores free. FOLDER has
<number of the case>/<contestant or model>.onnx, as `benchmarks.cpu.folder` writes them. Each answer has "cpu" besides: the seconds it has used so far.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cpu.contestants import OURS, applies, contestant, first_array

if TYPE_CHECKING:
    from tatami.runtime.machine.peak import Probe

REST, REST_CPU, PATIENCE = 2e-3, 2e-4, 0.2
"""Threads are at rest that use so many seconds of the processors in so many; they are waited for so long at most."""


def main() -> None:
    folder, threads, names = sys.argv[1:4]
    told = os.dup(1)
    os.dup2(2, 1)  # text that libraries print is not an answer
    warnings.simplefilter("ignore")
    server = _Server(Path(folder), int(threads), names.split(","))
    with os.fdopen(told, "w") as out:
        for line in sys.stdin:
            ((what, name),) = json.loads(line).items()
            answer = getattr(server, what)(name)
            _come_to_rest()
            answer.setdefault("cpu", time.process_time())
            print(json.dumps(answer), file=out, flush=True)


class _Server:
    def __init__(self, folder: Path, threads: int, names: list[str]) -> None:
        self.folder, self.threads, self.names = folder, threads, names
        self.runs: dict[str, Callable[[], object]] = {}
        self.probe: Probe | None = None

    def make(self, title: str) -> dict[str, Any]:
        from benchmarks.cpu.cases import all_cases

        case = all_cases()[title]
        place = self.folder / f"{list(all_cases()).index(title)}"
        inputs = case.inputs()
        errors, outputs = {}, {}
        for name in self.names:
            if not applies(name, case, self.threads):
                continue
            special = name if name in case.peers else "model"
            try:
                run = contestant(name, case, str(place / f"{special}.onnx"), inputs, self.threads)
                outputs[name] = first_array(run())
                self.runs[name] = run
            except Exception as problem:  # a peer that cannot run a case is a fact of the row
                errors[name] = f"{type(problem).__name__}: {problem}"[:300]
        return {"names": list(self.runs), "errors": errors, "difference": differences(outputs)}

    def block(self, name: str) -> dict[str, Any]:
        import msgspec

        from benchmarks.cpu.blocks import timed_block
        from tatami.runtime.machine.peak import Probe

        if self.probe is None:
            self.probe = Probe(self.threads)
            self.probe()
        found: dict[str, Any] = msgspec.to_builtins(timed_block(self.runs[name], self.probe))
        return found

    def end(self, _: str) -> dict[str, Any]:
        from benchmarks.cpu.blocks import is_parked

        cpu, parked = time.process_time(), None
        if OURS in self.runs:
            with contextlib.suppress(OSError):
                parked = is_parked(self.runs[OURS])
        self.runs.clear()
        return {"cpu": cpu, "parked": parked}


def _come_to_rest() -> None:
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        began = time.process_time()
        time.sleep(REST)
        if time.process_time() - began <= REST_CPU:
            return


def differences(outputs: Mapping[str, object]) -> dict[str, float]:
    """Differences of outputs from the first one, in units of its largest value: finite numbers, so that a line of JSON can hold
    them; NaN or infinity in one of two outputs alone counts as 1."""
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
