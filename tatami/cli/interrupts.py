"""Ctrl-C and SIGTERM while a command is deep in native code, a kernel for instance, where Python runs no signal handler.

Python notes a signal at once but acts on it between two of its own instructions; a kernel may work for minutes before the
next. So a second thread waits for signals. One that the main thread does not take within `GRACE` seconds ends the process
from there. Kernels stay free of checks, and files appear whole or not at all (`dump.write_pieces`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tatami.runtime.building.leftovers import end_now

GRACE = 1.5
"""Seconds for the main thread to take a signal and end in good order: more than numpy or the planner spend outside Python."""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Signal -> exit code: 128 and its number, as in a shell."""


@contextmanager
def ended_by_signals(say_interrupted: Callable[[], None]) -> Iterator[None]:
    """A context in which signals with a Python handler end the process soon. `say_interrupted` tells the user. Only the main
    thread gets signals: in other threads the block just runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(say_interrupted)
    try:
        yield
    finally:
        watch.close()


class _Watch:
    def __init__(self, say_interrupted: Callable[[], None]) -> None:
        self._say = say_interrupted
        self._taken = threading.Event()
        self._before = {s: h for s in CODES if callable(h := signal.getsignal(s))}  # an ignored signal stays ignored
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in self._before:
            signal.signal(number, self._take)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._wait, name="tatami-signals", daemon=True)
        self._thread.start()

    def _take(self, number: int, frame: FrameType | None) -> object:
        """The handler in the main thread, which is in Python: it calls the earlier handler."""
        self._taken.set()
        before = self._before[signal.Signals(number)]
        assert callable(before)
        return before(number, frame)

    def _wait(self) -> None:
        while data := os.read(self._read, 1):
            number = data[0]
            if number == 0:
                return
            if number not in self._before:
                continue
            if self._taken.wait(GRACE):
                self._drain()
                self._taken.clear()
            else:
                self._end(signal.Signals(number))

    def _drain(self) -> None:
        """Take signals that came together at once."""
        while select.select([self._read], [], [], 0)[0]:
            if os.read(self._read, 1) == b"\0":
                os.write(self._write, b"\0")
                return

    def _end(self, number: signal.Signals) -> None:
        if number == signal.SIGINT:
            self._say()
        end_now()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(CODES[number])

    def close(self) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)
