"""Buffers that live together never share bytes; dead ones are reused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tatami.core.expr import shape
from tatami.execution.arena import Interval, Planner, _by_size, _by_time, aligned, place
from tatami.execution.frames import Layouts
from tatami.execution.lower import lower
from tests.execution.regions import chain

intervals = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 12), st.integers(0, 5)).map(lambda t: Interval(t[0], t[1], t[1] + t[2])),
    max_size=40,
)


def clashes(found: list[Interval], offsets: list[int]) -> bool:
    for i, a in enumerate(found):
        for j in range(i):
            b = found[j]
            if a.first <= b.last and b.first <= a.last:
                low, high = max(offsets[i], offsets[j]), min(offsets[i] + a.size, offsets[j] + b.size)
                if low < high:
                    return True
    return False


@given(intervals)
def test_live_buffers_never_overlap(found: list[Interval]) -> None:
    for plan in (place, _by_size, _by_time):
        offsets, peak = plan(found)
        assert not clashes(found, offsets)
        assert all(o % 64 == 0 and o + i.size <= peak for o, i in zip(offsets, found) if i.size)


@given(intervals)
def test_the_arena_is_between_the_largest_wave_and_the_sum(found: list[Interval]) -> None:
    _, peak = place(found)
    for wave in range(20):
        assert sum(aligned(i.size) for i in found if i.first <= wave <= i.last) <= peak
    assert peak <= sum(aligned(i.size) for i in found)


def test_a_chain_of_ten_peaks_at_two_buffers() -> None:
    layouts = Layouts(lower(chain(10), None, None))
    plan = Planner(layouts, 1).plan("main", {"N": 1000})
    assert plan.bytes == 2 * aligned(4000)
    assert plan.bytes_without_reuse == 9 * aligned(4000)


def test_size_zero_takes_no_memory() -> None:
    layouts = Layouts(lower(chain(10), None, None))
    assert Planner(layouts, 1).plan("main", {"N": 0}).bytes == 0


def test_constant_plans_keep_their_offsets() -> None:
    layouts = Layouts(lower(chain(5, shape(10, 3)), None, None))
    plan = Planner(layouts, 1).plan("main", {})
    assert plan.bytes == 2 * 128 and set(plan.offsets) == {0, 128}


def test_many_buffers_reuse_little_memory() -> None:
    offsets, size = place([Interval(64 * (1 + i * 7 % 13), i, i + 3) for i in range(20_000)])
    assert len(offsets) == 20_000 and size < 64 * 13 * 8
