"""Processes and paths that end with this process, even if it ends without running Python to its end (`interrupts`)."""

from __future__ import annotations

import atexit
from collections.abc import Callable

_endings: dict[int, Callable[[], object]] = {}


def at_end(ending: Callable[[], object]) -> Callable[[], None]:
    """Have `ending` called once, when the process ends; the function that cancels this."""
    key = id(ending)
    _endings[key] = ending  # held, so that its id stays unique
    return lambda: _endings.pop(key, None) and None


@atexit.register
def end_now() -> None:
    """Call all registered endings; one that fails does not stop the others."""
    while _endings:
        _, ending = _endings.popitem()
        try:
            ending()
        except OSError:
            continue
