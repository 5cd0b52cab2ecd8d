"""A call with its arrays fixed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from tatami.runtime.written import count_write


class Array(Protocol):
    """A numpy array, or a device array for a program on a GPU."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements per axis."""


class BoundCall:
    """A call with its arrays fixed. `outputs` are overwritten by each call. For one thread at a time."""

    def __init__(
        self,
        call: Callable[[], None],
        outputs: dict[str, object],
        refresh: tuple[tuple[Array, Callable[[], Array]], ...],
        copy: Callable[[object, Array], None],
    ) -> None:
        self._call = call
        self._copy = copy
        self.outputs = outputs
        self._refresh = refresh
        """(to, the values): inputs that kernels cannot read where they lie, copied again before each call."""
        self._write_back: tuple[tuple[object, Array], ...] = ()
        self._written: tuple[object, ...] = ()
        """Arrays of the caller that each call writes."""
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            for to, source in self._refresh:
                self._copy(to, source())
            self._call()
            for theirs, ours in self._write_back:
                self._copy(theirs, ours)
            for value in self._written:
                count_write(value)
        return self.outputs
