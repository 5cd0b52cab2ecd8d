"""What looks at every stage as it is made: the verifier, the clock, the log."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from tatami.core.diagnostic import Diagnostic, raise_errors
from tatami.stages import BY_NAME, verify

log = logging.getLogger("tatami")


class Observer:
    """Times each stage and checks it. `seconds` excludes the stages it needed; `warnings` gathers the W-diagnostics."""

    def __init__(self, *, check: bool = True) -> None:
        self.seconds: dict[str, float] = {}
        self.warnings: list[Diagnostic] = []
        self.check = check
        self.others: Callable[[str], Any] = lambda _: None
        self._nested: list[float] = []
        if os.environ.get("TATAMI_LOG"):
            logging.basicConfig(level=os.environ["TATAMI_LOG"].upper(), format="%(name)s: %(message)s")

    def __call__(self, stage: str, make: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        self._nested.append(0.0)
        collecting = gc.isenabled()
        gc.disable()  # nodes are trees without cycles: looking for some costs a third of the time
        try:
            value = make()
            if self.check and stage in BY_NAME:
                found = verify(stage, value, self.others)
                raise_errors(found)
                self.warnings += [d for d in found if d.is_warning]
        finally:
            if collecting:
                gc.enable()
            spent = time.perf_counter() - start
            inner = self._nested.pop()
            if self._nested:
                self._nested[-1] += spent
        self.seconds[stage] = spent - inner
        log.debug("%s in %.1f ms", stage, self.seconds[stage] * 1e3)
        return value
