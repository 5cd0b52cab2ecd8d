"""Sliding windows (pooling, depthwise convolution) against the reference: borders, strides, dilation, tails, epilogues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.loop.verify import verify as verify_loops
from tatami.plan.cpu.window import WHOLE_VECTORS
from tatami.plan.ir import CpuWindow
from tatami.plan.verify_plan import verify_plan
from tatami.runtime.machine.host import detect_host
from tests.loop.compiled import kernel_of, run_sanitized, sanitizer_program

Make = Callable[[tt.Graph, Any], Any]
C = 5
RANGES = {"B": (0, 1, 64), "H": (0, 28, 4096), "W": (0, 28, 4096)}


def depthwise(kernel: tuple[int, int] = (3, 3), **attributes: Any) -> Make:
    def make(g: tt.Graph, x: Any) -> Any:
        w = np.random.default_rng(1).standard_normal((C, 1, *kernel)).astype(np.float32)
        b = np.random.default_rng(2).standard_normal(C).astype(np.float32)
        return x.conv(g.constant(w), g.constant(b), groups=C, **attributes).relu()

    return make


def with_residual(g: tt.Graph, x: Any) -> Any:
    """An epilogue that reads along the columns."""
    return depthwise(padding=1)(g, x) + x.exp()


WINDOWS: dict[str, Make] = {
    "depthwise 3x3": depthwise(padding=1),
    "depthwise without borders": depthwise(),
    "depthwise stride 2": depthwise(padding=1, stride=2),
    "depthwise stride 3, uneven borders": depthwise(padding=((2, 0), (0, 2)), stride=3),
    "depthwise 5x3, dilation 2": depthwise((5, 3), padding=(4, 2), dilation=2),
    "depthwise 7x7": depthwise((7, 7), padding=3),
    "depthwise with a residual": with_residual,
    "largest": lambda g, x: x.max_pool(3, 2, 1),
    "largest of 3x3": lambda g, x: x.max_pool(3, 3),
}
SIZES = [(1, 7, 7), (2, 14, 30), (1, 40, 17), (1, 3, 70)]


def graph(make: Make, shape: tuple[Any, ...], dtype: Any = tt.fp32) -> tt.Graph:
    g = tt.Graph("window")
    g.output("y", make(g, g.input("x", shape, dtype)))
    return g


def windows_of(f: Any) -> list[CpuWindow]:
    plans = [r.choices[-1].plan for r in f.stages["plan"].value.main.regions]
    return [p for p in plans if isinstance(p, CpuWindow)]


def sample(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(f: Any, make: Make, x: np.ndarray) -> None:
    assert windows_of(f)
    assert verify_loops(f.stages["loop"].value) == []
    wanted = tt.compile(graph(make, x.shape, f.stages["frontend"].value.main.signature.inputs[0].dtype), target="reference")(
        x=x
    )
    got = f(x=x)["y"]
    assert got.shape == wanted["y"].shape
    np.testing.assert_allclose(got, wanted["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_at_sizes_known_when_they_run(name: str) -> None:
    f = tt.compile(graph(WINDOWS[name], ("B", C, "H", "W")), sizes=RANGES)
    for b, h, w in SIZES:
        check(f, WINDOWS[name], sample((b, C, h, w)))


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("name", ["depthwise 3x3", "depthwise stride 2", "depthwise with a residual", "largest"])
def test_windows_of_constant_sizes(name: str, target: str) -> None:
    for h, w in ((7, 7), (14, 14), (33, 56)):
        check(tt.compile(graph(WINDOWS[name], (1, C, h, w)), target=target), WINDOWS[name], sample((1, C, h, w)))


@pytest.mark.parametrize("shape", [(1, C, 7, 7), (2, C, 18, 31)], ids=str)
@pytest.mark.parametrize("name", [n for n in WINDOWS if n != "depthwise without borders"])
def test_small_planes_are_copied_whole(name: str, shape: tuple[int, ...]) -> None:
    f = tt.compile(graph(WINDOWS[name], shape))
    check(f, WINDOWS[name], sample(shape))
    (plan,) = windows_of(f)
    narrow = f(x=sample(shape))["y"].shape[-1] <= WHOLE_VECTORS * detect_host().lanes
    fits = narrow and name not in ("largest of 3x3", "depthwise stride 3, uneven borders")
    assert (plan.whole or plan.lying) if fits else not plan.whole
    if fits and plan.lying:  # rows of a vector or more are read in place; copied whole, results are the same
        whole = msgspec.structs.replace(plan, ahead=2, whole=True, joined=False, lying=False)
        other = tt.compile(graph(WINDOWS[name], shape), decisions={"plans": {"": to_builtins(whole)}})
        assert windows_of(other)[0].whole
        check(other, WINDOWS[name], sample(shape))


def test_planes_of_many_columns_are_not_copied_whole() -> None:
    shape = (1, C, 33, (WHOLE_VECTORS + 1) * detect_host().lanes)
    assert not windows_of(tt.compile(graph(WINDOWS["depthwise 3x3"], shape)))[0].whole


def test_an_empty_plane() -> None:
    f = tt.compile(graph(WINDOWS["depthwise 3x3"], ("B", C, "H", 9)), sizes={"B": (0, 1, 64), "H": (0, 28, 64)})
    assert f(x=np.zeros((0, C, 4, 9), np.float32))["y"].shape == (0, C, 4, 9)


def test_one_dimension() -> None:
    def make(g: tt.Graph, x: Any) -> Any:
        w = np.random.default_rng(1).standard_normal((C, 1, 4)).astype(np.float32)
        return x.conv(g.constant(w), None, groups=C, padding=((2, 1),))

    check(tt.compile(graph(make, (2, C, 1000))), make, sample((2, C, 1000)))


def test_fp64() -> None:
    make: Make = WINDOWS["largest"]
    check(tt.compile(graph(make, (1, C, 20, 20), tt.fp64)), make, sample((1, C, 20, 20), np.float64))


@pytest.mark.parametrize(("dtype", "bits"), [(tt.fp16, 10), (tt.bf16, 7)])
def test_products_of_narrow_numbers_are_exact(dtype: tt.DType, bits: int) -> None:
    """1 + e times itself less 1 + 2 e is e^2, which a product that is rounded to the operands' dtype has lost."""
    e = 2.0**-bits

    def make(g: tt.Graph, x: Any) -> Any:
        w = g.constant(np.array([[[1 + e, -1]]] * C, np.float32)).cast(dtype)
        return x.conv(w, None, groups=C)

    x = np.array([1 + e, 1 + 2 * e] * 40, np.float32).reshape(1, 1, -1).repeat(C, axis=1)
    f = tt.compile(graph(make, x.shape, dtype))
    assert windows_of(f)
    got = f(x=x.astype(numpy_dtype(dtype)))["y"].astype(np.float32)
    assert (got[:, :, ::2] == e * e).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_window_with_a_special_value(value: float) -> None:
    """NaN wins, and a border is not a number that could."""
    x = sample((1, C, 14, 14))
    x[0, 2, 0, 0] = x[0, 3, 13, 13] = x[0, 4, 6, 7] = x[0, 1, 5, 13] = value
    for name in ("largest", "depthwise 3x3"):
        check(tt.compile(graph(WINDOWS[name], x.shape)), WINDOWS[name], x)


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    x = sample((2, C, 100, 60))
    one, three = (tt.compile(graph(WINDOWS["depthwise 3x3"], x.shape), threads=t)(x=x)["y"] for t in (1, 3))
    assert np.array_equal(one, three)


@pytest.mark.parametrize("shape", [("B", C, "H", "W"), (2, C, 7, 6)], ids=["unknown", "whole"])
@pytest.mark.parametrize("name", ["depthwise 3x3", "depthwise stride 2", "depthwise with a residual", "largest of 3x3"])
def test_nothing_outside_the_tensors_is_read_or_written(name: str, shape: tuple[Any, ...]) -> None:
    f = tt.compile(graph(WINDOWS[name], shape), target="cpu:avx2", sizes=RANGES if "B" in shape else {})
    plans = f.stages["plan"].value.main.regions
    for region, plan in zip(f.stages["region"].value.main.body, plans, strict=True):
        kernel = kernel_of(region, plan.choices[-1].plan, "avx2")
        cases = [{"B": b, "H": h, "W": w} for b, h, w in SIZES] if "B" in shape else [{}]
        finished = run_sanitized(sanitizer_program(region, kernel, cases))
        if finished is None:
            pytest.skip("the compiler has no sanitizers")
        assert finished.returncode == 0, finished.stderr[-2000:]


def test_a_wrong_plan_is_refused_with_the_reason() -> None:
    f = tt.compile(graph(WINDOWS["depthwise 3x3"], (1, C, 14, 14)))
    (region,) = f.stages["region"].value.main.body
    (plan,) = windows_of(f)
    target = PRESETS["cpu:avx512"]
    assert verify_plan(plan, region, target) == []
    for wrong in (
        CpuWindow("other", 4, 1, 16),
        CpuWindow(plan.let, 0, 1, 16),
        CpuWindow(plan.let, 4, 1, 12),
        CpuWindow(plan.let, 4, 1, 32),
        CpuWindow(plan.let, 4, 0, 16),
        CpuWindow(plan.let, 4, 1, 16, whole=True),
        CpuWindow(plan.let, 14, 1, 4, whole=True),
    ):
        assert verify_plan(wrong, region, target)
    assert verify_plan(CpuWindow(plan.let, 4, 1, 16), region, target) == []
    assert verify_plan(plan, region, PRESETS["sm80"])[0].kind == "InvalidPlan"


BEFORE: dict[str, Callable[[tt.Graph, Any], Any]] = {
    "scaled": lambda g, x: x * 2.0,
    "from below": lambda g, x: x.maximum(0.25),
    "leaky": lambda g, x: g.where(x > 0.0, x, x * 0.1),
    "by channel": lambda g, x: x * g.constant(np.linspace(-2, 2, C, dtype=np.float32).reshape(1, C, 1, 1)).expand(x.shape),
    "by place": lambda g, x: x + g.constant(sample((1, 1, *map(int, map(str, x.shape[2:]))))).expand(x.shape),
    "lower triangle": lambda g, x: x.tril(),
    "through an integer": lambda g, x: x.cast(tt.i32).cast(tt.fp32),
    "bordered by another number": lambda g, x: x.pad(((0, 0), (0, 0), (1, 1), (1, 1)), value=5.0),
}
"""Operations between a tensor and the guard of a window's border."""
AFTER: dict[str, Make] = {
    "largest": lambda g, x: x.max_pool(3, 2, 1),
    "largest, stride 1": lambda g, x: x.max_pool(3, 1, 1),
    "mean": lambda g, x: x.avg_pool(3, 1, 1),
    "depthwise": depthwise(padding=1),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("before", BEFORE)
def test_a_pointwise_function_under_the_border_of_a_window(before: str, after: str) -> None:
    for shape, target in (((2, C, 7, 7), "cpu"), ((1, C, 9, 40), "cpu:avx2")):
        g, r = tt.Graph("fused"), tt.Graph("wanted")
        for graph_ in (g, r):
            x = graph_.input("x", shape, tt.fp32)
            graph_.output("y", AFTER[after](graph_, BEFORE[before](graph_, x)))
        f = tt.compile(g, target=target)
        assert verify_loops(f.stages["loop"].value) == []
        x = sample(shape) * 3
        np.testing.assert_allclose(f(x=x)["y"], tt.compile(r, target="reference")(x=x)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("before", ["scaled", "from below", "leaky", "by channel"])
def test_a_function_of_one_element_is_computed_where_the_window_is_filled(before: str) -> None:
    f = tt.compile(graph(lambda g, x: AFTER["largest"](g, BEFORE[before](g, x)), (1, C, 33, 70)))
    assert len(f.stages["region"].value.main.body) > 1 or windows_of(f)


def test_what_is_read_past_a_border_is_never_touched() -> None:
    g = tt.Graph("window")
    x = g.input("x", (1, 2, 9, 8), tt.fp32)
    g.output("y", (x * 2.0).max_pool(3, 2, 1))
    f = tt.compile(g, target="cpu:avx2")
    (region,) = f.stages["region"].value.main.body
    kernel = kernel_of(region, f.stages["plan"].value.main.regions[0].choices[-1].plan, "avx2")
    finished = run_sanitized(sanitizer_program(region, kernel, [{}]))
    if finished is None:
        pytest.skip("the compiler has no sanitizers")
    assert finished.returncode == 0, finished.stderr[-2000:]
