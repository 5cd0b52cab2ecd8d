"""A pause of Python's search for cycles of objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """A context in which no cycles are looked for. Nodes are trees without cycles, and each search looks at all objects of the
    process: a third of the time of a compilation, more in a host with many modules."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
