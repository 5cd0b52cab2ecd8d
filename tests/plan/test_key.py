"""Regions that differ in the place of a slice have one search, and keys of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.expr import expr
from tatami.core.target import PRESETS
from tatami.plan.choose_cpu import choose_cpu
from tatami.plan.key import plan_key
from tatami.plan.named_region import facts_of_renamed
from tatami.region.ir import Iter, Ref, Region, Yield
from tatami.region.views.canonical_key import canonical
from tatami.region.views.open_places import without_offsets
from tests.region import examples as ex

TARGET = PRESETS["cpu:avx512"]
PROGRAMS: dict[str, Callable[[tt.Value], tt.Value]] = {
    "product": lambda x: (x @ x.permute(1, 0)).relu(),
    "rows": lambda x: x.softmax(1),
    "columns": lambda x: x.sum((0,)),
    "turn": lambda x: x.permute(1, 0),
    "scan": lambda x: x.cumsum(1),
}


def planned(program: str, place: int) -> tuple[list[Region], list[object]]:
    """The Regions of a program of one slice, and the plans of each when it is searched alone."""
    g = tt.Graph("t")
    x = g.input("x", (128, 9, 160), tt.fp32)
    g.output("y", PROGRAMS[program](x[:, place]))
    stages = prepare(g, target=TARGET).stages
    regions = [item for item in stages["region"].main.body if isinstance(item, Region)]
    found: list[object] = []
    for region, facts in zip(regions, stages["poly_core"].main.regions, strict=True):
        renamed, names = canonical(region)
        found.append(choose_cpu(renamed, facts_of_renamed(facts, names), TARGET, {}))
    return regions, found


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_search_does_not_see_where_a_slice_lies(program: str) -> None:
    regions, plans = planned(program, 1)
    for place in (2, 5, 8):
        others, other_plans = planned(program, place)
        assert other_plans == plans
        assert [plan_key(r, TARGET) for r in others] != [plan_key(r, TARGET) for r in regions]
        assert [form(r) for r in others] == [form(r) for r in regions]


def form(region: Region) -> Region:
    return without_offsets(canonical(region)[0])


def test_places_of_a_tensor_that_is_read_at_two_stay() -> None:
    def read_at(*places: int) -> Region:
        lets = tuple(ex.let(f"v{i}", "i", ex.read("X", "i", place)) for i, place in enumerate(places))
        total = ex.let("s", "i", ex.add(Ref("v0"), Ref("v1")))
        outputs, iters = (ex.target("Y", 4),), (Iter("i", expr(4)),)
        return Region("r", iters, (), (ex.param("X", 4, 9),), outputs, (*lets, total), (Yield("s", "Y"),))

    assert without_offsets(read_at(3, 5)) == read_at(3, 5)
    assert without_offsets(read_at(3, 3)) == read_at(1, 1)
    assert without_offsets(read_at(0, 0)) == read_at(0, 0)
