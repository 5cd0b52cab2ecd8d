"""Windows of more than 64 places against the reference: loops over the places, sums of several rows in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.loop.verify import verify as verify_loops
from tatami.plan.ir import CpuWindow
from tatami.plan.verify_plan import verify_plan
from tests.loop.compiled import kernel_of, run_sanitized, sanitizer_program
from tests.loop.images.test_window import RANGES, C, Make, depthwise, graph, sample, windows_of


def with_residual(g: tt.Graph, x: Any) -> Any:
    return depthwise((9, 9), padding=4)(g, x) + x.exp()


WINDOWS: dict[str, Make] = {
    "9x9": depthwise((9, 9), padding=4),
    "9x9 without borders": depthwise((9, 9)),
    "13x13 with a residual": with_residual,
    "9x9, stride 2": depthwise((9, 9), padding=4, stride=2),
    "9x8, strides 3 and 2": depthwise((9, 8), padding=((5, 0), (0, 4)), stride=(3, 2)),
    "9x9, dilation 2": depthwise((9, 9), padding=8, dilation=2),
    "9x9, stride 2 and dilation 3 along the columns": depthwise((9, 9), padding=(4, 12), stride=(1, 2), dilation=(1, 3)),
    "2x40": depthwise((2, 40), padding=(1, 20)),
    "40x2": depthwise((40, 2), padding=(20, 1)),
    "31x31": depthwise((31, 31), padding=15),
    "largest of 9x9": lambda g, x: x.max_pool(9, 1, 4),
    "largest of 11x7, scaled before": lambda g, x: (x * 2.0).max_pool((11, 7), 2, (5, 3)),
    "mean of 10x9": lambda g, x: x.avg_pool((10, 9), (3, 2), (5, 4)),
}


def check(f: Any, make: Make, x: np.ndarray) -> None:
    """Results are the reference's, up to the rounding of a sum of 1000 numbers."""
    assert windows_of(f)
    assert verify_loops(f.stages["loop"].value) == []
    dtype = f.stages["frontend"].value.main.signature.inputs[0].dtype
    wanted = tt.compile(graph(make, x.shape, dtype), target="reference")(x=x)["y"]
    got = f(x=x)["y"]
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_many_places(name: str) -> None:
    for shape, target in (((1, C, 40, 57), "cpu"), ((2, C, 45, 41), "cpu:avx2")):
        f = tt.compile(graph(WINDOWS[name], shape), target=target)
        check(f, WINDOWS[name], sample(shape))


@pytest.mark.parametrize("name", ["9x9", "9x9, stride 2", "13x13 with a residual", "2x40"])
def test_windows_of_many_places_at_sizes_known_when_they_run(name: str) -> None:
    f = tt.compile(graph(WINDOWS[name], ("B", C, "H", "W")), sizes=RANGES)
    for shape in ((1, C, 3, 5), (2, C, 17, 33), (1, C, 64, 41)):
        check(f, WINDOWS[name], sample(shape))


def test_fp64_and_one_dimension() -> None:
    make: Make = WINDOWS["largest of 9x9"]
    check(tt.compile(graph(make, (1, C, 20, 20), tt.fp64)), make, sample((1, C, 20, 20), np.float64))
    g, r = tt.Graph("line"), tt.Graph("line")
    for x in (g, r):
        x.output("y", x.input("x", (2, C, 300), tt.fp32).max_pool((70,), 1))
    x = sample((2, C, 300))
    np.testing.assert_array_equal(tt.compile(g)(x=x)["y"], tt.compile(r, target="reference")(x=x)["y"])


@pytest.mark.parametrize("shape", [("B", C, "H", "W"), (2, C, 17, 23)], ids=["unknown", "known"])
@pytest.mark.parametrize("name", ["9x9", "9x9, stride 2 and dilation 3 along the columns", "40x2"])
def test_nothing_outside_the_tensors_is_read_or_written(name: str, shape: tuple[Any, ...]) -> None:
    f = tt.compile(graph(WINDOWS[name], shape), target="cpu:avx2", sizes=RANGES if "B" in shape else {})
    plans = f.stages["plan"].value.main.regions
    for region, plan in zip(f.stages["region"].value.main.body, plans, strict=True):
        kernel = kernel_of(region, plan.choices[-1].plan, "avx2")
        cases = [{"B": b, "H": h, "W": w} for b, h, w in ((1, 3, 4), (2, 18, 33))] if "B" in shape else [{}]
        finished = run_sanitized(sanitizer_program(region, kernel, cases))
        if finished is None:
            pytest.skip("the compiler has no sanitizers")
        assert finished.returncode == 0, finished.stderr[-2000:]


def test_their_text_does_not_grow_with_the_places() -> None:
    texts = [len(tt.compile(graph(depthwise((k, k), padding=k // 2), (1, C, 48, 48))).stages["loop"].text) for k in (9, 31)]
    assert texts[1] < 1.2 * texts[0]


def test_plans_that_loops_do_not_take_are_refused() -> None:
    f = tt.compile(graph(WINDOWS["9x9"], (1, C, 14, 14)))
    (region,) = f.stages["region"].value.main.body
    (plan,) = windows_of(f)
    target = PRESETS["cpu:avx512"]
    assert verify_plan(plan, region, target) == []
    for wrong in (
        CpuWindow(plan.let, 14, 1, 16, joined=True),
        CpuWindow(plan.let, 14, 1, 8, whole=True),
        CpuWindow(plan.let, 14, 1, 8, lying=True),
    ):
        assert verify_plan(wrong, region, target)
