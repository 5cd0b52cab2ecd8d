"""The observer of stages as they are made: the verifier, the clock, the log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tatami.core.collector import without_collector
from tatami.core.diagnostic import Diagnostic, TatamiError, fail, raise_errors
from tatami.core.faults.internal_fault import described, internal_fault
from tatami.stages import BY_NAME, verify

log = logging.getLogger("tatami")
Progress = Callable[[str, int, int], None]
"""progress(what, done, total): the stage being made, or "kernels"; how many are done, and how many there are."""


@contextmanager
def explained(stage: str, from_document: bool) -> Iterator[None]:
    """A context in which unforeseen faults become one diagnostic: of the document if the model is one, else of Tatami."""
    try:
        yield
    except (TatamiError, MemoryError):
        raise
    except RecursionError as error:
        raise fail("InputTooLarge", stage, "expressions are nested too deeply", "flatten them") from error
    except Exception as error:
        if from_document:
            why = f"the documents contradict each other: {described(error)}"
            raise fail("InvalidDocument", stage, why, "undo the last edit, or restart from an earlier stage") from error
        raise TatamiError(internal_fault(stage, error)) from error


class Observer:
    """The clock and verifier of each stage. `seconds`: stage -> time without the stages that it needed; `warnings`: the
    W-diagnostics."""

    def __init__(self, *, check: bool = True, from_document: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.warnings: list[Diagnostic] = []
        self.of_model: list[Diagnostic] = []
        """Warnings of the importer about the model's file."""
        self.check = check
        self.from_document = from_document
        self.progress: Progress | None = None
        self.others: Callable[[str], Any] = lambda _: None
        self.count: Callable[[], int] = lambda: 0
        """How many stages there are."""
        self._nested: list[float] = []
        if os.environ.get("TATAMI_LOG"):
            logging.basicConfig(level=os.environ["TATAMI_LOG"].upper(), format="%(name)s: %(message)s")

    def __call__(self, stage: str, make: Callable[[], object]) -> Any:
        start = time.perf_counter()
        self._nested.append(0.0)
        self._report(stage)
        try:
            with without_collector(), explained(stage, self.from_document):
                value = make()
                if self.check and stage in BY_NAME and not BY_NAME[stage].facts:
                    found = verify(stage, value, self.others)
                    raise_errors(found)
                    self.warnings += [d for d in found if d.is_warning]
        finally:
            spent = time.perf_counter() - start
            inner = self._nested.pop()
            if self._nested:
                self._nested[-1] += spent
        self.seconds[stage] = spent - inner
        self._report(stage)
        log.debug("%s in %.1f ms", stage, self.seconds[stage] * 1e3)
        return value

    def _report(self, stage: str) -> None:
        if self.progress is not None:
            self.progress(stage, len(self.seconds), self.count())
