"""A worker with planted faults, in the place of `tatami.search.measuring.worker`: `python -m tests.search.planted_worker FILE`.

FILE has a JSON object: `faults`, from a part of a candidate's document to what it does (wrong, hang, crash, late, noise; at sizes
above 100, large: slow, and large wrong), and `log`, a file that gets a line for each timing of a candidate. Times are made up: a program's document decides them, so that no test
depends on the machine.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tatami.ledger.records import decision_text
from tatami.runtime.function import Function
from tatami.search.measuring.messages import OWN, Add, Reply, Timed, Turns
from tatami.search.measuring.worker import Worker, serve
from tatami.search.strategy import TEST

OWN_SECONDS = 1e-3
GOOD = 0.5
"""Time of a candidate without a fault over the own one's."""


class Planted(Worker):
    """A worker whose candidates misbehave as the file says."""

    def fault(self, name: str) -> str:
        """The fault of a program; "" for none."""
        setup = json.loads(Path(sys.argv[1]).read_text())
        text = self.texts[name]
        return next((what for part, what in setup["faults"].items() if part in text), "")

    @property
    def is_large(self) -> bool:
        """True if the program runs at sizes above 100."""
        return max(self.request.hints.values(), default=0) > 100

    @property
    def texts(self) -> dict[str, str]:
        """Program -> its document."""
        return self.__dict__.setdefault("_texts", {OWN: ""})

    def add(self, request: Add) -> Reply:
        if request.name != OWN:
            self.texts[request.name] = "kind: partition" if request.folder else decision_text(request.decisions)
        return super().add(request)

    def bound(self, name: str, function: Function) -> Callable[[], dict[str, np.ndarray]]:
        call, what = super().bound(name, function), self.fault(name)

        def planted() -> dict[str, np.ndarray]:
            if what == "hang":
                time.sleep(3600)
            if what == "crash":
                ctypes.string_at(0)
            found = call()
            is_wrong = what == "wrong" or (what == "large wrong" and self.is_large)
            return {n: 2 * a + 1 if is_wrong else a for n, a in found.items()}

        return planted

    def turns(self, request: Turns) -> Reply:
        log = Path(json.loads(Path(sys.argv[1]).read_text())["log"])
        found: dict[str, list[float]] = {}
        for name in request.names:
            self._at(name, "turn")
            what = self.fault(name)
            if what == "late":
                ctypes.string_at(0)
            with log.open("a") as out:
                out.write(f"{name} {request.count} {request.seed} {self.request.folder}\n")
            rng = np.random.default_rng(zlib.crc32(f"{name}{request.seed}".encode()))
            if name == OWN:
                factors = np.ones(request.count)
            elif what == "noise":  # now twice as fast and now half as fast, and lucky in the first rounds
                factors = np.where(np.arange(request.count) % 2 == 0, 0.5, 2.0)
                factors = np.full(request.count, 0.4) if request.seed < TEST else factors
            elif what == "large" and self.is_large:
                factors = np.full(request.count, 2.0)
            else:
                factors = GOOD + rng.uniform(0.0, 0.01, request.count)
            found[name] = [float(OWN_SECONDS * f) for f in factors]
        return Timed(found)


if __name__ == "__main__":
    serve(Planted)
