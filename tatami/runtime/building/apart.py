"""Work that starts compilers and makes temporary files, in a thread that no signal's handler interrupts.

A handler of Python runs in the main thread, between any two instructions: for example between the start of a process and the
line that records it. So the main thread only waits here. Whatever ends its wait (Ctrl-C, a handler of the host program that
raises, its `sys.exit`) tells the work to stop, waits until everything is cleaned up, and then takes its course. SIGTERM and
SIGHUP, if nobody handles them, end the process as usual, also after the clean-up."""

from __future__ import annotations

import contextlib
import contextvars
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

from tatami.runtime.building.leftovers import end_now

T = TypeVar("T")
Step = tuple[Callable[..., object], tuple[Any, ...]]
_ENDING = (signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
"""Signals that end a process at once if it has no handler for them."""

_LOOK_SECONDS = 0.1


class _Ended(BaseException):
    """The exception for a signal that ends the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Apart:
    """The interface of the work to the waiting thread: `stop` is set when the work shall end soon; `tell` calls back in the
    thread that waits."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Have `call(*arguments)` called in the thread that waits."""
        self._steps.put((call, arguments))


class Inner(threading.Event):
    """An event for a part of some work: set by itself, which does not stop the rest of the work, or with the outer event."""

    def __init__(self, outer: threading.Event) -> None:
        super().__init__()
        self._outer = outer

    def is_set(self) -> bool:
        """True if this event or the outer one is set."""
        return super().is_set() or self._outer.is_set()


_inside: contextvars.ContextVar[Apart | None] = contextvars.ContextVar("inside", default=None)


def apart(work: Callable[[Apart], T], meanwhile: Callable[[], object] | None = None) -> T:
    """The result of the work, or its exception. In other threads than the main one the work is just called; inside other such
    work it stops together with that. `meanwhile`: called by the thread that waits, in parallel with the work, before it
    waits; elsewhere than in the main thread before the work. Its exception stops the work."""
    if threading.current_thread() is not threading.main_thread():
        if meanwhile is not None:
            meanwhile()
        return work(_inside.get() or _Direct())
    return _Work(work, meanwhile or _nothing).result()


def _nothing() -> None:
    pass


class _Direct(Apart):
    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)


class _Work(Generic[T]):
    def __init__(self, work: Callable[[Apart], T], meanwhile: Callable[[], object]) -> None:
        self._work = work
        self._meanwhile = meanwhile
        self._seen = Apart()
        self._finished = threading.Event()
        self._value: list[T] = []
        """The result, once there is one."""
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="tatami-apart")

    def _run(self) -> None:
        _inside.set(self._seen)
        try:
            self._value.append(self._work(self._seen))
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()
            self._seen._steps.put(None)

    def result(self) -> T:
        try:
            with _ending_signals():
                try:
                    self._thread.start()
                    self._meanwhile()
                    while (step := self._next()) is not None:
                        step[0](*step[1])
                except BaseException:
                    self._seen.stop.set()
                    self._wait()
                    raise
        except _Ended as ended:
            end_now()
            os.kill(os.getpid(), ended.number)
            raise SystemExit(128 + ended.number) from None
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _next(self) -> Step | None:
        """The next callback of the work; None at its end. A signal that comes just before a wait begins is seen after it."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._seen._steps.get(timeout=_LOOK_SECONDS)

    def _wait(self) -> None:
        """Wait until the work has cleaned up, however often somebody tries to end the wait."""
        while self._thread.ident is not None and not self._finished.is_set():
            with contextlib.suppress(BaseException):
                self._finished.wait()


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """A context in which signals that would end the process raise _Ended instead."""

    def raised(number: int, _: FrameType | None) -> None:
        raise _Ended(number)

    taken = []
    try:
        with contextlib.suppress(ValueError):  # another interpreter than the first has no signals
            for s in _ENDING:
                if signal.getsignal(s) is signal.SIG_DFL:
                    taken.append(s)
                    signal.signal(s, raised)
        yield
    finally:
        with contextlib.suppress(ValueError):
            for s in taken:
                signal.signal(s, signal.SIG_DFL)
