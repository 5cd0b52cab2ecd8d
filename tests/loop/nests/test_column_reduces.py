"""Reduces down the columns of long rows go row by row, with the same meaning."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.loop.ir import For, Load
from tatami.loop.walk import nodes
from tatami.region.ir import At, Const, Reduce, Region, Yield
from tatami.region.run import run_region
from tests.loop.compiled import TARGETS, WIDEST, kernel_of, run_kernel, text_of
from tests.loop.zoo import b, i0, let, r0, r1, read, region, tensor

ROW_BY_ROW = "tatami_scratch(1024 * "


def columns(rows: int, width: int, d: DType = DType.fp32) -> Region:
    """Sum, maximum and sum of products of the columns of x [rows, width], and a map of them."""
    x = read("x", r0, i0)
    out = {"s": d, "m": d, "q": d}
    return region(
        {"i0": width},
        {"r0": rows},
        {"x": tensor(rows, width, d=d)},
        {n: tensor(width, d=t) for n, t in out.items()},
        [
            let("s", "i0", Reduce("sum", ("r0",), None, d, x), d),
            let("m", "i0", Reduce("max", ("r0",), None, d, x), d),
            let("q", "i0", Reduce("sum", ("r0",), None, d, b("mul", x, x)), d),
            let("e", "i0", b("add", At("q", (i0,)), b("mul", At("s", (i0,)), Const(0.5 if d.is_float else 2, d))), d),
        ],
        [Yield("s", "s"), Yield("m", "m"), Yield("e", "q")],
    )


def test_four_vectors_of_eight_rows_are_read_together() -> None:
    loops = [n for n in nodes(kernel_of(columns(77, 2048)).body) if isinstance(n, For) and n.simd and n.step == 64]
    assert any(sum(isinstance(n, Load) and n.buffer == "p0" for n in nodes(loop)) == 4 * 8 for loop in loops)


def compare(r: Region, width: str, inputs: dict[str, np.ndarray]) -> None:
    fault, got = run_kernel(r, inputs, {}, width=width)
    assert fault == 0
    want = run_region(r, inputs, {})
    for name, array in got.items():
        np.testing.assert_allclose(array, want[name], rtol=2e-5, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize(("rows", "d"), [(77, DType.fp32), (64, DType.i32)])
def test_columns_mean_what_the_region_means(rows: int, d: DType, width: str) -> None:
    r = columns(rows, 2067, d)
    assert (ROW_BY_ROW in text_of(kernel_of(r, width=width))) == (width != "scalar")
    x = np.random.default_rng(rows).standard_normal((rows, 2067)) * 9
    compare(r, width, {"x": x.astype(np.float32 if d.is_float else np.int32)})


def test_several_reduced_axes_are_walked_in_order() -> None:
    shape = (3, 40, 1100)
    r = region(
        {"i0": 1100},
        {"r0": 3, "r1": 40},
        {"x": tensor(*shape)},
        {"y": tensor(1100)},
        [let("s", "i0", Reduce("sum", ("r0", "r1"), None, DType.fp32, read("x", r0, r1, i0)))],
    )
    assert ROW_BY_ROW in text_of(kernel_of(r))
    compare(r, WIDEST, {"x": np.random.default_rng(0).random(shape, np.float32)})


def test_a_vector_meets_the_rows_of_a_matrix_as_they_lie() -> None:
    """A read that is constant along the lanes does not keep a reduce from going row by row."""
    r = region(
        {"i0": 2067},
        {"r0": 77},
        {"x": tensor(77, 2067), "v": tensor(77)},
        {"y": tensor(2067)},
        [let("s", "i0", Reduce("sum", ("r0",), None, DType.fp32, b("mul", read("v", r0), read("x", r0, i0))))],
    )
    assert ROW_BY_ROW in text_of(kernel_of(r))
    rng = np.random.default_rng(0)
    inputs = {"x": rng.random((77, 2067), np.float32), "v": rng.random(77, np.float32)}
    compare(r, WIDEST, inputs)


@pytest.mark.parametrize(("rows", "width"), [(77, 512), (15, 2067), (5000, 1024)])
def test_short_rows_few_rows_and_long_sums_are_not(rows: int, width: int) -> None:
    assert ROW_BY_ROW not in text_of(kernel_of(columns(rows, width)))


@pytest.mark.parametrize(
    ("shape", "fn", "count"),
    [
        ((300, 5000), "sum", 4),  # more columns than totals have room for, rows over
        ((256, 2048), "max", 4),
        ((70, 1024), "mean", 4),  # too few rows for blocks of 64
        ((2, 200, 4100), "sum", 6),
        ((40, 200, 4100), "sum", 0),  # matrices are many: threads share them
    ],
)
def test_threads_share_long_rows_by_blocks_of_rows(shape: tuple[int, ...], fn: str, count: int) -> None:
    g = tt.Graph("columns")
    g.output("y", getattr(g.input("x", shape, tt.fp32), fn)(axis=len(shape) - 2))
    f = tt.compile(g, threads=2)
    (region,) = f.stages["plan"].value.main.regions
    blocks = region.choices[0].plan.blocks
    assert (0 if blocks is None else shape[-2] // blocks.size) == count
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    y = f({"x": x})["y"]
    np.testing.assert_allclose(y, getattr(x.astype(np.float64), fn)(axis=-2), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(tt.compile(g, threads=1)({"x": x})["y"], y)
