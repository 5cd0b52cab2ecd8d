"""Estimates of loops: what the C of strided and guarded reads, of tails and of shared loads does."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.expr import expr
from tatami.core.target import PRESETS, Target
from tatami.frontend.graph_api.tensor import Tensor
from tatami.indexbook.ir import Guard
from tatami.plan.choose_cpu import asked, cpu_candidates
from tatami.plan.ir import Candidate, CpuRows
from tatami.plan.loops.accesses import AccessMove
from tatami.plan.loops.lane_work import Unit, access_cycles, border_share, guarded_cycles, steps_along, unit_of
from tatami.plan.loops.nest_estimate import bytes_read
from tatami.poly_core.analyse import analyse
from tatami.prepare import prepare
from tatami.region.ir import Region

ONE = msgspec.structs.replace(PRESETS["cpu:avx512"], cores=1)
HALVES = msgspec.structs.replace(ONE, clock=3.7e9, flops_fp32=1.184e11, bandwidth=4e10)
"""A core that takes whole vectors in two halves."""


def candidates(make: Callable[[tt.Graph, Tensor], Tensor], shape: tuple[int, ...], target: Target = ONE) -> list[Candidate]:
    """The candidates of the only Region, the best first."""
    g = tt.Graph("case")
    g.output("y", make(g, g.input("x", shape, tt.fp32)))
    stages = prepare(g, target=target).stages
    (region,), (facts,) = stages["region"].main.body, analyse(stages["region"]).main.regions
    assert isinstance(region, Region)
    found, _ = cpu_candidates(asked(region, facts, target, {}))
    return found


def rows(found: list[Candidate], width: int) -> Candidate:
    return next(c for c in found if isinstance(c.plan, CpuRows) and c.plan.width == width)


def far(linear: str, written: bool = False) -> AccessMove:
    return AccessMove("l", "t", expr(linear), written)


@pytest.mark.parametrize(
    ("linear", "cycles"),
    [("x + 5", 0.5), ("7*i", 0.5), ("2*x", 1.5), ("x//4", 1.0), ("3*x", 16.0), ("x//3", 48.0)],
)
def test_a_read_costs_what_its_vector_is_made_of(linear: str, cycles: float) -> None:
    assert access_cycles(far(linear), "x", 16, 1.0, 1.0) == cycles


def test_a_store_apart_costs_a_line_for_each_lane_and_less_in_a_near_buffer() -> None:
    move = far("8*x", written=True)
    assert access_cycles(move, "x", 16, 1.0, 1.0) == 64.0
    assert access_cycles(msgspec.structs.replace(move, is_near=True), "x", 16, 1.0, 1.0) == 16.0


def test_steps_are_those_of_the_loops() -> None:
    assert steps_along(25, 16, True, False) == {16: 1, 1: 9}
    assert steps_along(25, 8, True, False) == {8: 3, 1: 1}
    assert steps_along(25, 16, True, True) == {16: 1, 8: 1, 1: 1}


def test_vectors_at_a_border_are_counted_over_the_places_of_the_window() -> None:
    """56 columns are 3 whole vectors, of which the first sees the outside at one place of three; the last vector ends at 48."""
    guard = Guard(expr("x + k - 1"), expr(56))
    assert border_share(guard, "x", 16, (("k", 3), ("x", 56))) == pytest.approx(1 / 9)
    assert border_share(guard, "x", 8, (("k", 3), ("x", 56))) == pytest.approx(2 / 21)
    backwards = Guard(expr("56 - x - k"), expr(56))
    assert border_share(backwards, "x", 16, (("k", 3), ("x", 56))) == pytest.approx(1 / 9)
    assert border_share(Guard(expr("y - 1"), expr(9)), "x", 16, (("x", 56), ("y", 9))) == 0.0


def test_a_guard_costs_its_test_and_the_lanes_of_vectors_at_a_border() -> None:
    unit = Unit(64, 1.0, 32768)
    move = msgspec.structs.replace(far("x + k"), guards=(Guard(expr("x + k - 1"), expr(56)),))
    assert guarded_cycles(move, "x", 1, unit, {"x": 56, "k": 3}) == 1.5
    assert guarded_cycles(move, "x", 16, unit, {"x": 56, "k": 3}) == pytest.approx(1.5 + (10 + 4 * 16) / 9)


def test_half_a_vector_takes_a_little_more_than_half_the_time_where_a_core_has_half_the_units() -> None:
    whole, halves = unit_of(ONE, 2.0), unit_of(HALVES, 1.0)
    assert [whole.weight(n, 4) for n in (16, 8, 4)] == [1.0, 1.0, 1.0]
    assert [halves.weight(n, 4) for n in (16, 8, 4)] == [1.0, 0.6, 0.6]


def test_pooling_by_two_of_small_planes_takes_loops() -> None:
    """Measured on such a core: 9.9 us by vectors of 4, 30 us by windows."""
    found = candidates(lambda g, x: x.max_pool((2, 2)), (64, 32, 8, 8), HALVES)
    assert isinstance(found[0].plan, CpuRows) and found[0].plan.width == 4


def test_guards_and_tails_are_terms_of_the_estimate() -> None:
    found = rows(candidates(lambda g, x: x.max_pool((3, 3), (1, 1), 1), (1, 8, 57, 57)), 16).estimate
    assert found["borders"] > found["compute"] > 0 and found["tails"] > 0
    work = sum(found[n] for n in ("compute", "tails", "borders"))
    assert found["total"] == pytest.approx(max(work, found["memory"]) + found["launch"])


def test_a_width_of_25_takes_vectors_of_8() -> None:
    """A tail of 9 elements one by one, or of one: measured 1.16 and 0.63 us for the layer norm of 49 rows."""
    best = candidates(lambda g, x: x.layer_norm(), (49, 25), HALVES)[0].plan
    assert isinstance(best, CpuRows) and best.width == 8


def test_a_factor_of_each_row_is_computed_once_for_it() -> None:
    """y + y * hard_sigmoid(mean): the factor is not counted at each element."""
    factor = lambda g, x: x * ((x.mean(axis=1, keepdims=True) * 0.2 + 0.5).minimum(1.0).maximum(0.0)).expand((24, 640))  # noqa: E731
    plain = candidates(lambda g, x: x * x.mean(axis=1, keepdims=True).expand((24, 640)), (24, 640))
    assert rows(candidates(factor, (24, 640)), 16).estimate["compute"] < 1.1 * rows(plain, 16).estimate["compute"]


def test_a_matrix_that_l1_does_not_hold_is_read_again_from_l2() -> None:
    nest = [("m", 8), ("n", 64), ("k", 100)]
    assert bytes_read(expr("64*k + n"), nest, 4, 32768) == (25600, 25600)
    assert bytes_read(expr("64*k + n"), nest, 4, 16384) == (25600, 8 * 25600)
    w = np.ones((256, 128), np.float32)
    found = rows(candidates(lambda g, x: x @ g.constant(w), (64, 256)), 16).estimate
    assert found["refills"] > 0


def test_causal_attention_counts_the_blocks_that_rows_see() -> None:
    def streaming(causal: bool) -> float:
        g = tt.Graph("attention")
        q, k, v = (g.input(n, (4, 256, 64), tt.fp32) for n in "qkv")
        g.output("y", q.attention(k, v, causal=causal))
        (plan,) = prepare(g, target=ONE).stages["plan"].main.regions
        return plan.choices[-1].estimate["compute"]

    assert 0.5 < streaming(True) / streaming(False) < 0.9
