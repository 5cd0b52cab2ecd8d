"""Subjects in several lanes: told in their order, and none lost when a lane loses its place."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

from tatami.core.diagnostic import TatamiError, fail
from tatami.search.measuring.crew import NoPlace
from tatami.search.measuring.lanes import Lanes
from tatami.search.measuring.measurer import Measurer
from tatami.search.measuring.messages import Open

OPENED = Open("", {}, {}, 1, 0, 0)


@dataclass
class Places:
    """A crew whose measurers measure nothing. `made`: all measurers that it made."""

    count: int
    made: list[Measurer] = field(default_factory=list)

    def lanes(self) -> int:
        return self.count

    def measurer(self, opened: Open, *, is_alone: bool) -> Measurer:
        self.made.append(Measurer(opened))
        return self.made[-1]

    def close(self) -> None:
        pass


def lost() -> NoPlace:
    return NoPlace(fail("InvalidAttribute", "ray", "no node is left", "start one"))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_is_found_is_told_in_order(count: int) -> None:
    told: list[tuple[int, int]] = []

    def work(item: int, measurer: Measurer) -> int:
        time.sleep(0.02 * (3 - item % 4))
        return item * item

    with Lanes(Places(count), OPENED) as lanes:
        lanes.run(range(9), work, lambda item, found: told.append((item, found)))
    assert told == [(n, n * n) for n in range(9)]


def test_one_lane_keeps_its_measurer() -> None:
    places = Places(1)
    used: list[Measurer] = []
    with Lanes(places, OPENED) as lanes:
        for _ in range(2):
            lanes.run([1, 2], lambda item, measurer: used.append(measurer), lambda item, found: None)
    assert len(places.made) == 1 and all(m is places.made[0] for m in used)


def test_a_lost_place_costs_no_item() -> None:
    places = Places(2)
    told: list[int] = []
    gone: set[int] = set()

    def work(item: int, measurer: Measurer) -> int:
        if measurer is places.made[0] or (item in (3, 4) and item not in gone):  # one place is gone, others lose one item each
            gone.add(item)
            raise lost()
        return item

    with Lanes(places, OPENED) as lanes:
        lanes.run(range(6), work, lambda item, found: told.append(found))
    assert told == [*range(6)]


@pytest.mark.parametrize("count", [1, 2])
def test_without_any_place_there_is_one_diagnostic(count: int) -> None:
    def work(item: int, measurer: Measurer) -> int:
        raise lost()

    with Lanes(Places(count), OPENED) as lanes, pytest.raises(TatamiError, match="no node is left"):
        lanes.run(range(4), work, lambda item, found: None)


def test_an_exception_ends_all_lanes_after_what_was_found_is_told() -> None:
    told: list[int] = []
    begun = threading.Barrier(2)

    def work(item: int, measurer: Measurer) -> int:
        if item < 2:
            begun.wait(10)
        time.sleep(0.3 if item == 1 else 0.01)
        if item == 1:
            raise ValueError("planted")
        return item

    with Lanes(Places(2), OPENED) as lanes, pytest.raises(ValueError, match="planted"):
        lanes.run(range(400), work, lambda item, found: told.append(item))
    assert told[0] == 0 and 1 not in told and len(told) < 400 and told == sorted(told)
