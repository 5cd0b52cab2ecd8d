"""The place in the user's text or program at which a part of a graph is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_BUILDERS = ("tatami.frontend.graph", "tatami.derivative")
"""Beginnings of the names of modules that build a graph for a caller."""
_PLACE: ContextVar[str | None] = ContextVar("place", default=None)


@contextmanager
def placed(at: str) -> Iterator[None]:
    """A context in which nodes are traced to `at`, a place in a text, instead of to the Python line that builds them."""
    token = _PLACE.set(at)
    try:
        yield
    finally:
        _PLACE.reset(token)


def caller() -> str:
    """The Python line that called the modules that build graphs: ``model.py:12``; within `placed`, its place."""
    place = _PLACE.get()
    if place is not None:
        return place
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BUILDERS):
        frame = frame.f_back
    path = frame.f_code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{path}:{frame.f_lineno}"
