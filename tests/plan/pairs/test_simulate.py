"""The simulation of two products in one kernel against what is published of FlashAttention-3 on an H100 (notes: gpu §1.3).

Its paper's ablation (table 2): 4 x 16 heads of 8448 x 128, fp16, every key seen; tiles of 128 x 176 and two slots are read
from its source. No duration of the simulation comes from these times.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from benchmarks.gpu.cases import attention
from tatami.api import prepare
from tatami.core.target import PRESETS
from tatami.plan.ir import Sm80Pair, Sm90Pair
from tatami.plan.pairs.choose import choose_pair, pair_plans
from tatami.plan.pairs.estimate import pair_estimate
from tatami.plan.pairs.simulate import run_whole_pair, simulate_pair
from tatami.plan.pairs.sm_load import PairPipeline, pair_pipeline_of
from tatami.plan.pairs.work import PairWork, balanced_section, pair_work
from tatami.plan.views.pair_limits import PairPlan, needs_of_pair
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view

H100 = PRESETS["h100"]
BATCH, LENGTH, WIDTH = 64, 8448, 128


def kernel(tile: tuple[int, int, int] = (128, WIDTH, 176), **other: object) -> PairPipeline:
    bm, _, bk = tile
    plan = Sm90Pair("s", "o", tile, tile[1], bm // 64, 2, (), in_turns=True)
    count = BATCH * -(-LENGTH // bm)
    blocks = -(-LENGTH // bk)
    work = PairWork((blocks,) * -(-count // H100.sms), count, count * blocks, 0.0, bm / LENGTH)
    return msgspec.structs.replace(pair_pipeline_of(plan, work, H100), **other)


def tflops(p: PairPipeline) -> float:
    return 4 * BATCH * LENGTH**2 * WIDTH / (simulate_pair(p, H100).cycles / H100.clock + H100.launch_seconds) / 1e12


ABLATION = [
    (570, kernel(specialised=False, in_turns=False)),
    (582, kernel(overlap=False)),
    (661, kernel()),
]
"""TFLOP/s: no roles; no softmax under the products of the same warpgroup; all of it."""


def test_the_ablation_has_the_published_order() -> None:
    found = [tflops(p) for _, p in ABLATION]
    assert found == sorted(found), found


def test_no_kernel_of_the_ablation_is_four_tenths_off() -> None:
    assert [tflops(p) for _, p in ABLATION] == [pytest.approx(measured, rel=0.4) for measured, _ in ABLATION]


def test_without_roles_and_overlap_softmax_and_products_come_one_after_the_other() -> None:
    slowest = kernel(specialised=False, in_turns=False, overlap=False)
    assert tflops(slowest) < 0.9 * tflops(ABLATION[0][1])


def test_turns_pay_where_exponentials_take_as_long_as_products() -> None:
    """Depth 64: while one warpgroup exponentiates the others multiply."""
    tile = (192, 64, 128)
    assert tflops(kernel(tile)) > 1.03 * tflops(kernel(tile, in_turns=False))


@pytest.mark.parametrize("how", [{}, {"overlap": False}, {"specialised": False}, {"in_turns": False}])
def test_a_few_tiles_and_blocks_tell_the_time_of_all(how: dict[str, Any]) -> None:
    for tiles in ((48,) * 4, (10, 7, 5, 3, 2, 1) * 3, (200,)):
        p = kernel(tiles=tiles, **how)
        assert simulate_pair(p, H100).cycles == pytest.approx(run_whole_pair(p, H100).cycles, rel=0.03)


def test_nothing_is_quicker_than_its_units() -> None:
    for _, p in ABLATION:
        found, blocks = simulate_pair(p, H100), sum(p.tiles)
        assert found.cycles >= blocks * p.groups * (p.scores.cycles + p.result.cycles)
        assert found.cycles >= blocks * p.groups * p.weighing.exponentials
        assert max(found.busy.values()) <= 1


def test_deeper_rings_never_cost() -> None:
    cycles = [simulate_pair(kernel((64, WIDTH, 64), stages=s), H100).cycles for s in (1, 2, 4)]
    assert all(before >= after for before, after in pairwise(cycles)) and cycles[0] > 1.1 * cycles[2]


# -- tiles and their blocks --------------------------------------------------------------------------


def pair(length: int, causal: bool, batch: int = 64, width: int = 128) -> tuple[Region, PairView]:
    stages = prepare(attention(1, batch, length, width, causal).make(), target="h100").stages
    (region,) = (r for r in stages["realised"].main.body if isinstance(r, Region))
    view = pair_view(region)
    assert isinstance(view, PairView)
    return region, view


def work(plan: PairPlan, length: int, causal: bool, batch: int = 64) -> PairWork:
    return pair_work(*pair(length, causal, batch), plan, H100, {})


def roles(section: int = 0, bm: int = 128, bk: int = 128) -> Sm90Pair:
    return Sm90Pair("s", "o", (bm, 128, bk), 128, bm // 64, 2, (), section=section)


def test_rows_see_the_blocks_up_to_their_own() -> None:
    assert work(roles(), 1024, False).blocks == 64 * 8 * 8
    assert work(roles(), 1024, True).blocks == 64 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)
    assert work(roles(bk=64), 1024, True).blocks == 64 * 2 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)


def test_the_longest_share_holds_every_tile_of_its_sm() -> None:
    for section in (0, 1, 5, 16):
        found = work(roles(section), 4096, True)
        assert found.count == 64 * 32 and len(found.tiles) in (15, 16)
        assert sum(found.tiles) * H100.sms >= found.blocks
    plain = Sm80Pair("s", "o", (128, 128, 64), 128, 32, 1, ())
    assert sum(work(plain, 4096, False).tiles) == 16 * 64


def test_so_many_batches_are_mixed_that_the_sms_are_even() -> None:
    """16 batches of 4096 rows fill L2; then one SM has 1.3 times the blocks of the mean, with 11 of them 1.02."""
    region, view = pair(4096, True)
    assert balanced_section(region, view, roles(), H100, {}, 16) == 11
    for section, most in ((16, 1.4), (11, 1.03)):
        found = work(roles(section), 4096, True)
        assert 1 <= sum(found.tiles) * H100.sms / found.blocks < most
    plans = [p for p, _ in pair_plans(region, H100, {}) if isinstance(p, Sm90Pair) and p.tile == (128, 128, 128)]
    assert {p.section for p in plans} == {11}


def test_the_planner_takes_the_quickest_or_the_first_that_is_not_told_from_it() -> None:
    region, _ = pair(2048, False)
    (_, best), *others = pair_plans(region, H100, {})
    assert best["total"] <= 1.01 * min(e["total"] for _, e in others)
    assert all(0 < e["pipeline_eff"] <= 1 and e["total"] >= e["memory"] for _, e in others)


def test_warp_roles_come_before_threads_where_nothing_is_between_them() -> None:
    region, _ = pair(16, False, 2, 64)
    (plan, best), *others = pair_plans(region, H100, {})
    assert isinstance(plan, Sm90Pair)
    assert best["total"] <= min(e["total"] for _, e in others) + 0.1 * H100.launch_seconds


def test_more_slots_are_proposed_where_they_pay() -> None:
    """Depth 64 of 8 x 32 heads: what the table of the chip has, 344 us where two slots take 405."""
    region, view = pair(2048, False, 256, 64)
    found = [(p, e) for p, e in pair_plans(region, H100, {}) if isinstance(p, Sm90Pair)]
    (best, estimate) = found[0]
    assert best.tile == (192, 64, 64) and best.stages == 4
    two = pair_estimate(region, view, msgspec.structs.replace(best, tile=(192, 64, 128), stages=2), H100, {})
    assert estimate["total"] < 0.86 * two["total"]
    for plan, own in found:
        others = [pair_estimate(region, view, msgspec.structs.replace(plan, stages=s), H100, {}) for s in range(2, plan.stages)]
        assert all(own["total"] < 0.99 * e["total"] for e in others), "fewer slots would do"


@pytest.mark.parametrize(("width", "stages"), [(64, {3, 4}), (128, {2, 3, 4}), (256, {2})])
def test_a_tile_is_one_candidate_with_as_many_slots_as_shared_memory_holds(width: int, stages: set[int]) -> None:
    region, _ = pair(2048, True, 64, width)
    found = choose_pair(region, H100, {})
    assert not isinstance(found, str)
    choices, rejected = found
    roles = [p for p, _ in pair_plans(region, H100, {}) if isinstance(p, Sm90Pair)]
    assert len({(p.tile, p.in_turns, p.split) for p in roles}) == len(roles) <= 20
    assert {p.stages for p in roles} == stages
    assert all(needs_of_pair(p, H100).smem_bytes <= H100.smem_per_block for p in roles)
    assert len(choices) + len(rejected) <= 2 * 20
