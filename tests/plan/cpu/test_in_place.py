"""Columns of a product that are read in place, and the side of a product that places of a small image are."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.plan.choose import choose
from tatami.plan.cpu.contraction_estimate import contraction_estimate
from tatami.plan.ir import CpuContraction
from tatami.poly_core.analyse import analyse
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region


def planned(filters: int, channels: int, height: int, width: int) -> tuple[Region, RegionFacts, CpuContraction]:
    """The Region of a 1x1 convolution, its facts, and its plan for AVX-512."""
    g = tt.Graph("places")
    w = np.ones((filters, channels, 1, 1), np.float32)
    g.output("y", g.input("x", (1, channels, height, width), tt.fp32).conv(g.constant(w)))
    module = tt.compile(g, target="cpu:generic").stages["region"].value
    facts = analyse(module)
    (made,) = choose(module, facts, PRESETS["cpu:avx512"]).main.regions
    plan = made.choices[-1].plan
    assert isinstance(plan, CpuContraction)
    (region,) = module.main.body
    return region, facts.main.regions[0], plan


def plan_of(filters: int, channels: int, height: int, width: int) -> CpuContraction:
    return planned(filters, channels, height, width)[2]


@pytest.mark.parametrize(("side", "in_place"), [(60, ("n",)), (100, ("n",)), (122, ()), (240, ())])
def test_columns_are_copied_in_bands_where_the_tlb_does_not_hold_their_pages(side: int, in_place: tuple[str, ...]) -> None:
    plan = plan_of(48, 64, side, side)
    assert plan.in_place == in_place
    assert (plan.nc > plan.nr) == (not in_place)


def test_one_panel_of_rows_reads_its_columns_in_place_at_any_size() -> None:
    assert plan_of(12, 64, 400, 400).in_place == ("n",)


def test_lookups_of_pages_make_columns_in_place_slower_than_copied_ones() -> None:
    region, facts, copied = planned(48, 64, 122, 122)
    lying = msgspec.structs.replace(copied, nc=copied.nr, in_place=("n",))
    seconds = [contraction_estimate(region, facts, p, PRESETS["cpu:avx512"], {})["total"] for p in (copied, lying)]
    assert seconds[1] > 1.2 * seconds[0]


@pytest.mark.parametrize(
    ("filters", "channels", "height", "width", "swap"),
    [
        (48, 192, 8, 8, True),
        (48, 192, 10, 20, True),
        (512, 512, 7, 7, False),
        (256, 256, 14, 14, False),
        (96, 96, 14, 14, False),
    ],
)
def test_places_of_a_small_image_are_rows_unless_filters_leave_tiles_unfilled(
    filters: int, channels: int, height: int, width: int, swap: bool
) -> None:
    assert plan_of(filters, channels, height, width).swap == swap
