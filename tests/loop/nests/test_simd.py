"""The form of vectorised loops: whole vectors, then a scalar tail; no vectors below the width (spec 1 "SIMD")."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.loop.ir import For, Parallel, Stmt
from tatami.region.ir import Region
from tests.loop.compiled import kernel_of, run_kernel, text_of
from tests.loop.wished import Wished
from tests.loop.zoo import b, c, i0, i1, let, r0, read, red, region, tensor, u


def elementwise(rows: int, columns: int) -> Region:
    e = u("relu", b("add", b("mul", read("x", i0, i1), c(2.0)), c(1.0)))
    shape = {"x": tensor(rows, columns)}
    return region({"i0": rows, "i1": columns}, {}, shape, {"y": tensor(rows, columns)}, [let("l", "i0 i1", e)])


def plan(width: int) -> Wished:
    return Wished(("i0",), "i1", width)


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


def vector_loops(stmts: tuple[Stmt, ...]) -> list[For]:
    inside = [s.body for s in stmts if isinstance(s, (For, Parallel))]
    return [s for s in stmts if isinstance(s, For) and s.simd] + [f for body in inside for f in vector_loops(body)]


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("shape", [(10, 3), (2, 3), (1, 3), (10, 5), (10, 130)])
def test_no_vector_is_wider_than_what_it_runs_along(shape: tuple[int, int], width: int) -> None:
    rows, columns = shape
    sums = region(
        {"i0": rows}, {"r0": columns}, {"x": tensor(rows, columns)}, {"y": tensor(rows)},
        [let("l", "i0", red("sum", "r0", read("x", i0, r0)))],
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for r, axis, want in ((elementwise(*shape), "i1", np.maximum(2 * x + 1, 0)), (sums, "r0", x.sum(1))):
        p = Wished(("i0",), axis, width)
        kernel = kernel_of(r, p)
        for loop in vector_loops(kernel.body):
            trips = (loop.stop - loop.start).as_int()
            if trips is None:  # a part of the elements, all of which are neighbours in memory
                trips = rows * columns if r is not sums else rows
            assert trips >= loop.step
        assert (rows * columns >= 4) or not vector_loops(kernel.body)
        np.testing.assert_allclose(run_kernel(r, {"x": x}, {}, p)[1]["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_a_reduce_of_a_long_row_ends_across_the_lanes(width: int) -> None:
    for fn, word in (("sum", "sum"), ("max", "max"), ("prod", "prod")):
        r = region(
            {"i0": 10}, {"r0": 131}, {"x": tensor(10, 131)}, {"y": tensor(10)},
            [let("l", "i0", red(fn, "r0", read("x", i0, r0)))],
        )  # fmt: skip
        p = Wished(("i0",), "r0", width)
        assert f"t_h_{word}_fp32x{width}" in text_of(kernel_of(r, p))
        x = 1 + np.random.default_rng(0).standard_normal((10, 131)).astype(np.float32) / 100
        want = {"sum": np.add, "max": np.maximum, "prod": np.multiply}[fn].reduce(x.astype(np.float64), 1)
        np.testing.assert_allclose(run_kernel(r, {"x": x}, {}, p)[1]["y"], want, rtol=1e-5)


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
