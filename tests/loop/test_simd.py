"""The form of vectorised loops: whole vectors, then a scalar tail; no vectors below the width (spec 1, SIMD)."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.plan.ir import CpuRows
from tatami.region.ir import Region
from tests.loop.compiled import kernel_of, run_kernel, text_of
from tests.loop.zoo import b, c, i0, i1, let, r0, read, red, region, tensor, u


def elementwise(rows: int, columns: int) -> Region:
    e = u("relu", b("add", b("mul", read("x", i0, i1), c(2.0)), c(1.0)))
    shape = {"x": tensor(rows, columns)}
    return region({"i0": rows, "i1": columns}, {}, shape, {"y": tensor(rows, columns)}, [let("l", "i0 i1", e)])


def plan(width: int) -> CpuRows:
    return CpuRows(("i0",), (), {}, "i1", width, 1)


@pytest.mark.parametrize("width", [4, 8])
def test_a_vector_loop_is_followed_by_its_tail(width: int) -> None:
    text = text_of(kernel_of(elementwise(10, 130), plan(width)))
    assert f"< 128; x_2 += {width}" in text
    assert "= 128; x_" in text and "< 130; ++x_" in text


def test_a_tail_of_nothing_is_not_written() -> None:
    text = text_of(kernel_of(elementwise(10, 128), plan(4)))
    assert "< 128; x_2 += 4" in text
    assert "++x_" not in text


def test_below_the_width_the_loop_is_scalar() -> None:
    sums = region(
        {"i0": 10}, {"r0": 3}, {"x": tensor(10, 3)}, {"y": tensor(10)}, [let("l", "i0", red("sum", "r0", read("x", i0, r0)))]
    )
    assert "simd" not in text_of(kernel_of(sums, plan(4)))


def test_an_innermost_sum_ends_in_a_horizontal_add() -> None:
    sums = region(
        {"i0": 10},
        {"r0": 130},
        {"x": tensor(10, 130)},
        {"y": tensor(10)},
        [let("l", "i0", red("sum", "r0", read("x", i0, r0)))],
    )
    assert "t_h_sum_fp32x4" in text_of(kernel_of(sums, plan(4)))


@pytest.mark.parametrize("shape", [(10, 130), (10, 128), (10, 3)])
def test_all_widths_give_the_same(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = [run_kernel(elementwise(*shape), {"x": x}, {}, plan(w))[1]["y"] for w in (1, 4, 8, 16)]
    for r in results:
        np.testing.assert_array_equal(r, np.maximum(x * np.float32(2) + np.float32(1), 0))
