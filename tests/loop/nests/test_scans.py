"""Scans by blocks: every way to run one adds up in the same order and agrees with numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.numbers import numerics
from tatami.core.tensor import numpy_dtype
from tatami.plan.ir import Blocks
from tatami.region.ir import At, Ref, Region, Scan, Yield
from tests.loop.compiled import TARGETS, WIDEST, has_flags, kernel_of, run_kernel, run_sanitized, sanitizer_program, text_of
from tests.loop.wished import Wished
from tests.loop.zoo import C, K, N, b, c, draw, i0, i1, i2, let, read, region, tensor, u

LANES = {"scalar": 1, "generic": 4, "avx2": 8, "avx512": 16}


def scan(axis: str, fn: str = "sum", d: DType = DType.fp32, exclusive: bool = False, reverse: bool = False) -> Region:
    expr = Scan(fn, axis, d, read("x", i0, i1, i2), exclusive, reverse)
    three = tensor(N, C, K, d=d)
    return region({"i0": N, "i1": C, "i2": K}, {}, {"x": three}, {"y": three}, [let("l", "i0 i1 i2", expr, d)])


def plan(axis: str, vector: str, width: str, blocks: Blocks | None) -> Wished:
    outer = tuple(a for a in ("i0", "i1", "i2") if a not in (axis, vector))
    return Wished(outer, vector, LANES[width], blocks)


def sizes_along(axis: str, n: int) -> dict[str, int]:
    return {"N": 2, "C": 3, "K": 5} | {{"i0": "N", "i1": "C", "i2": "K"}[axis]: n}


@pytest.mark.parametrize("width", list(LANES))
@pytest.mark.parametrize(("axis", "vector"), [("i2", "i2"), ("i1", "i2"), ("i0", "i2"), ("i1", "i1"), ("i2", "i0")])
def test_threads_and_blocks_at_a_time_do_not_change_a_bit(axis: str, vector: str, width: str) -> None:
    ways = itertools.product((False, True), repeat=2) if width == "avx2" else ((False, False), (True, True))
    for exclusive, reverse in ways:
        r = scan(axis, exclusive=exclusive, reverse=reverse)
        for n in (0, 1, 15, 16, 33, 64, 200):
            sizes = sizes_along(axis, n)
            x = draw(r, sizes)["x"]
            alone = run_kernel(r, {"x": x}, sizes, plan(axis, vector, width, Blocks(axis, 48)), width)[1]["y"]
            want = numerics.scan("sum", x.astype(np.float64), int(axis[1]), DType.fp64, exclusive, reverse)
            np.testing.assert_allclose(alone, want, rtol=1e-5, atol=2e-5)
            shared = run_kernel(r, {"x": x}, sizes, plan(axis, vector, width, Blocks(axis, 48, 3)), width)[1]["y"]
            np.testing.assert_array_equal(alone, shared)


EXACT = [DType.i8, DType.u8, DType.i16, DType.i32, DType.u32, DType.i64, DType.u64]


@pytest.mark.parametrize("blocks", [None, Blocks("i1", 40), Blocks("i1", 40, 2)])
@pytest.mark.parametrize("vector", ["i1", "i2"])
@pytest.mark.parametrize("d", EXACT)
def test_integers_wrap_as_in_numpy(d: DType, vector: str, blocks: Blocks | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 120, (2, 131, 5)).astype(numpy_dtype(d))
    for fn, reverse in (("sum", False), ("prod", True), ("max", False), ("min", True)):
        r = scan("i1", fn, d, reverse=reverse)
        p = plan("i1", vector, "avx2", blocks)
        got = run_kernel(r, {"x": x}, {"N": 2, "C": 131, "K": 5}, p, "avx2")[1]["y"]
        np.testing.assert_array_equal(got, numerics.scan(fn, x, 1, d, False, reverse))


@pytest.mark.parametrize("blocks", [None, Blocks("i1", 40), Blocks("i1", 40, 2)])
@pytest.mark.parametrize("vector", ["i1", "i2"])
@pytest.mark.parametrize("d", [DType.fp16, DType.bf16, DType.fp64])
def test_other_floats_add_up_in_their_accumulation_type(d: DType, vector: str, blocks: Blocks | None) -> None:
    x = np.random.default_rng(0).integers(0, 3, (2, 131, 5)).astype(numpy_dtype(d))
    for exclusive in (False, True):
        r = scan("i1", d=d, exclusive=exclusive)
        p = plan("i1", vector, WIDEST, blocks)
        width = WIDEST
        got = run_kernel(r, {"x": x}, {"N": 2, "C": 131, "K": 5}, p, width)[1]["y"]
        want = numerics.scan("sum", x.astype(np.float64), 1, DType.fp64, exclusive, False).astype(numpy_dtype(d))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("blocks", [None, Blocks("i1", 40), Blocks("i1", 40, 2)])
@pytest.mark.parametrize("vector", ["i1", "i2"])
def test_extremes_keep_nan_to_the_end(vector: str, blocks: Blocks | None) -> None:
    x = np.random.default_rng(0).standard_normal((2, 131, 5)).astype(np.float32)
    x[0, 70, 2] = np.nan
    x[1, 3, :] = -np.inf
    got = run_kernel(scan("i1", "max"), {"x": x}, {"N": 2, "C": 131, "K": 5}, plan("i1", vector, "avx2", blocks), "avx2")[1][
        "y"
    ]
    np.testing.assert_array_equal(got, np.maximum.accumulate(x, 1))


def fused() -> Region:
    """Two sums of functions of x, a value made of both, and one that reads a sum elsewhere."""
    e = u("exp", u("neg", u("abs", read("x", i0))))
    return region(
        {"i0": N}, {}, {"x": tensor(N)}, {"y": tensor(N), "z": tensor(N)},
        [
            let("e", "i0", e),
            let("s", "i0", Scan("sum", "i0", DType.fp32, Ref("e"))),
            let("t", "i0", Scan("sum", "i0", DType.fp32, b("mul", Ref("e"), c(2.0)))),
            let("y", "i0", b("add", b("mul", Ref("s"), c(0.5)), Ref("t"))),
            let("z", "i0", b("sub", Ref("y"), At("s", (N - 1 - i0,)))),
        ],
        [Yield("y", "y"), Yield("z", "z")],
    )  # fmt: skip


def test_what_surrounds_a_scan_is_fused_into_it() -> None:
    r = fused()
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    results = []
    for blocks in (Blocks("i0", 64), Blocks("i0", 64, 4)):
        p = Wished((), "i0", 8, blocks)
        text = text_of(kernel_of(r, p, "avx2"))
        assert text.count("t_exp_f32x8(") == 2, "the prologue is computed once (and defined once)"
        results.append(run_kernel(r, {"x": x}, {"N": 1000}, p, "avx2")[1])
    e = np.exp(-np.abs(x.astype(np.float64)))
    s, t = np.cumsum(e), np.cumsum(2 * e)
    for got in results:
        np.testing.assert_allclose(got["y"], s / 2 + t, rtol=1e-5)
        np.testing.assert_allclose(got["z"], s / 2 + t - s[::-1], rtol=1e-4, atol=1e-3)
    for name in ("y", "z"):
        np.testing.assert_array_equal(results[0][name], results[1][name])


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize(("axis", "vector"), [("i2", "i2"), ("i1", "i2")])
def test_no_fault_under_sanitizers(axis: str, vector: str, rounds: int) -> None:
    if not has_flags("avx2"):
        pytest.skip("this machine has no avx2")
    for reverse in (False, True):
        r = scan(axis, reverse=reverse)
        kernel = kernel_of(r, plan(axis, vector, "avx2", Blocks(axis, 24, rounds)), "avx2")
        done = run_sanitized(sanitizer_program(r, kernel, [sizes_along(axis, n) for n in (0, 1, 8, 47, 100)]))
        if done is None:
            pytest.skip("the compiler has no sanitizers")
        assert done.returncode == 0, done.stderr[-2000:]


def test_all_targets_are_known() -> None:
    assert set(LANES) == set(TARGETS)
