"""Subjects of a search in the lanes of a crew. Results are told in the order of the subjects, so that a search with the same
measurements decides the same, however many lanes it has."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Generic, TypeVar

from tatami.core.diagnostic import TatamiError
from tatami.search.measuring.crew import Crew, NoPlace
from tatami.search.measuring.measurer import Measurer
from tatami.search.measuring.messages import Open

Item = TypeVar("Item")
Found = TypeVar("Found")
LOOK = 0.2
"""Seconds between two looks at the lanes."""


class Lanes:
    """The lanes of a crew. `opened`: the program to begin with. A context manager."""

    def __init__(self, crew: Crew, opened: Open) -> None:
        self.crew = crew
        self.opened = opened
        self.lock = threading.RLock()
        """The lock of all that lanes share: the compilation and the state of the search."""
        self.count = 1
        """Number of lanes that measure at the same time."""
        self._own: Measurer | None = None

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def run(self, items: Sequence[Item], work: Callable[[Item, Measurer], Found], tell: Callable[[Item, Found], None]) -> None:
        """Do the work for each item, and tell what was found, in the order of the items. Ctrl-C and an exception of the work end
        all lanes, after what was found before is told. Raises TatamiError if every place is lost."""
        self.count = max(1, min(self.crew.lanes(), len(items)))
        if self.count > 1:
            self._close()
            _AtOnce(self, items, work, tell).run(self.count)
            return
        if self._own is None:
            self._own = self.crew.measurer(self.opened, is_alone=True)
        for item in items:
            try:
                found = work(item, self._own)
            except NoPlace as lost:
                raise lost.fault from None
            tell(item, found)

    def _close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.close()


class _AtOnce(Generic[Item, Found]):
    """Items that several lanes take from one queue."""

    def __init__(
        self, lanes: Lanes, items: Sequence[Item], work: Callable[[Item, Measurer], Found], tell: Callable[[Item, Found], None]
    ) -> None:
        self._lanes = lanes
        self._items = items
        self._work = work
        self._tell = tell
        self._waiting: queue.PriorityQueue[int] = queue.PriorityQueue()
        for number in range(len(items)):
            self._waiting.put(number)
        self._found: dict[int, Found] = {}
        self._told: set[int] = set()
        self._open: list[Measurer] = []
        self._lost: list[TatamiError] = []
        self._is_over = False

    def run(self, count: int) -> None:
        """Work until all items are done. A lane that lost its place gives its item back and ends; the others take it, or new
        lanes, as long as these find places and finish something."""
        while not self._waiting.empty():
            before = len(self._found)
            with ThreadPoolExecutor(count) as pool:
                try:
                    self._watch([pool.submit(self._lane) for _ in range(count)])
                except BaseException:
                    self._is_over = True
                    for measurer in list(self._open):
                        measurer.close()
                    self._tell_found(sorted(self._found))
                    raise
            if len(self._found) == before:
                raise self._lost[-1]

    def _watch(self, futures: Sequence[Future[None]]) -> None:
        left = set(futures)
        while left:
            done, left = wait(left, LOOK, FIRST_EXCEPTION)
            for future in done:
                future.result()
            self._tell_found(range(len(self._items)))

    def _tell_found(self, numbers: Iterable[int]) -> None:
        """Tell what is found of these items, up to the first that is not done."""
        for number in numbers:
            if number not in self._found:
                return
            if number not in self._told:
                self._told.add(number)
                self._tell(self._items[number], self._found[number])

    def _lane(self) -> None:
        lanes = self._lanes
        measurer = lanes.crew.measurer(lanes.opened, is_alone=True)
        self._open.append(measurer)
        try:
            while not self._is_over:
                try:
                    number = self._waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    self._found[number] = self._work(self._items[number], measurer)
                except NoPlace as lost:
                    self._waiting.put(number)
                    self._lost.append(lost.fault)
                    return
        finally:
            self._open.remove(measurer)
            measurer.close()
