"""Windows of 8-bit integers by quads: exact for every window, stride, sign, border, block, instruction and width of vectors."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.loop.verify import is_routine
from tatami.loop.verify import verify as verify_loops
from tatami.plan.choose_cpu import asked, cpu_candidates
from tatami.plan.cpu.window_quads import DOTS, not_quads
from tatami.plan.ir import CpuWindow
from tatami.plan.named_region import constant_tensors
from tatami.region.views.images.window import find_window
from tests.loop.images.test_places import TARGETS, graph, integer_conv, numbers, reference

KINDS = ("uint8", "int8")
CASES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (1, 6, 14, 14), "w": (6, 1, 3, 3), "pad": 1},
    "3x3 by 2": {"x": (2, 5, 28, 28), "w": (5, 1, 3, 3), "pad": 1, "stride": 2},
    "a border that is not 0": {"x": (1, 3, 9, 20), "w": (3, 1, 3, 3), "pad": 1, "value": 114},
    "rows of 7": {"x": (1, 9, 7, 7), "w": (9, 1, 3, 3), "pad": 1, "value": 3},
    "rows of 112": {"x": (1, 2, 40, 112), "w": (2, 1, 3, 3), "pad": 1, "value": 128},
    "rows of 33 by 2": {"x": (1, 3, 21, 33), "w": (3, 1, 3, 3), "pad": 1, "stride": 2, "value": 9},
    "columns of 1": {"x": (1, 4, 11, 1), "w": (4, 1, 3, 1), "pad": 0},
    "two rows of results": {"x": (1, 4, 4, 17), "w": (4, 1, 3, 3), "pad": 0},
    "5x5, two quads in a row": {"x": (1, 4, 17, 19), "w": (4, 1, 5, 5), "pad": 2, "value": 1},
    "7x7": {"x": (1, 3, 16, 23), "w": (3, 1, 7, 7), "pad": 3},
    "4x4 by 2, whole quads": {"x": (1, 3, 16, 23), "w": (3, 1, 4, 4), "pad": 1, "stride": 2},
    "2x2": {"x": (1, 3, 6, 18), "w": (3, 1, 2, 2), "pad": 0},
    "a line by 2": {"x": (2, 5, 37), "w": (5, 1, 3), "pad": 1, "stride": 2},
}


def by_quads(g: tt.Graph, target: str = "cpu", change: dict[str, Any] | None = None, **options: Any) -> Any:
    """The program whose window is computed by quads, whatever the estimate takes; with other values of the plan's fields."""
    f = tt.compile(g, target=target, **options)
    regions = f.stages["region"].value
    (chosen,) = f.stages["plan"].value.main.regions
    (region,), (facts,) = regions.main.body, f.stages["poly_core"].value.main.regions
    given = asked(region, facts, f.compilation.target, {}, constant_tensors(regions, "main"))
    own = next(c.plan for c in cpu_candidates(given)[0] if isinstance(c.plan, CpuWindow))
    found = find_window(region)
    assert not isinstance(found, str)
    dot = next(d for d in DOTS if not not_quads(region, d, found, given.target))
    plan = CpuWindow(own.let, 8, 2, given.target.lanes, dot=dot)
    plan = msgspec.structs.replace(plan, **(change or {}))
    f = tt.compile(g, target=target, decisions={"plans": {chosen.key: to_builtins(plan)}}, **options)
    assert f.stages["plan"].value.main.regions[0].choices[-1].plan == plan
    assert verify_loops(f.stages["loop"].value) == []
    return f


def wanted(x: np.ndarray, w: np.ndarray, case: dict[str, Any]) -> np.ndarray:
    return reference(x, w, {**case, "groups": len(w)})


def windows(case: dict[str, Any], kinds: tuple[str, str], w: np.ndarray, finish: Any = None) -> tt.Graph:
    return graph({**case, "groups": len(w)}, kinds, w, finish)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name: str, target: str) -> None:
    case = CASES[name]
    x, w = numbers(case, KINDS)
    f = by_quads(windows(case, KINDS, w), target)
    np.testing.assert_array_equal(f(x=x)["y"], wanted(x, w, case))


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("name", ["3x3", "3x3 by 2"])
def test_operands_have_any_signs(name: str, kinds: tuple[str, str], target: str) -> None:
    case = CASES[name]
    x, w = numbers(case, kinds)
    if kinds == ("uint8", "uint8"):
        w[:] = np.minimum(w, 127)  # 255 * 255 is more than a product in 16 bits holds
    f = by_quads(windows(case, kinds, w), target)
    np.testing.assert_array_equal(f(x=x)["y"], wanted(x, w, case))


@pytest.mark.parametrize("change", [{"rows": 1}, {"rows": 3, "ahead": 1}, {"rows": 64, "ahead": 8}, {"rows": 5, "ahead": 3}])
@pytest.mark.parametrize("name", ["3x3 by 2", "rows of 7", "rows of 112", "5x5, two quads in a row"])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_change_nothing(threads: int, name: str, change: dict[str, Any]) -> None:
    case = CASES[name]
    x, w = numbers(case, KINDS)
    f = by_quads(windows(case, KINDS, w), "cpu", change, threads=threads)
    np.testing.assert_array_equal(f(x=x)["y"], wanted(x, w, case))


@pytest.mark.parametrize("name", ["3x3", "rows of 7", "3x3 by 2"])
def test_codes_are_made_in_the_epilogue(name: str) -> None:
    case = CASES[name]
    x, w = numbers(case, KINDS)

    def finish(g: tt.Graph, sums: Any) -> Any:
        return (sums.cast(tt.fp32) * 0.01).quantize(
            g.constant(np.array(0.5, np.float32)), g.constant(np.array(3, np.uint8)), to=DType.u8
        )

    f = by_quads(windows(case, KINDS, w, finish))
    real = wanted(x, w, case).astype(np.float32) * np.float32(0.01) / np.float32(0.5)
    np.testing.assert_array_equal(f(x=x)["y"], np.clip(np.rint(real) + 3, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2"])
def test_a_quantised_depthwise_convolution_is_planned_by_quads(target: str) -> None:
    case = {"x": (1, 64, 56, 56), "w": (64, 1, 3, 3), "pad": 1}
    f = tt.compile(windows(case, KINDS, numbers(case, KINDS)[1]), target=target)
    plan = f.stages["plan"].value.main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuWindow) and plan.dot.startswith("quads")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dot": "pairs"}, "windows take quads_vnni or quads"),
        ({"dot": "quads_vnni"}, "no instruction for it"),
        ({"lying": True, "ahead": 1}, "copied in blocks"),
        ({"rows": 0}, "blocks of 0 rows"),
        ({"width": 64}, "width"),
        ({"width": 2}, "vectors of width 2; the routine of quads takes 4 or more"),
    ],
)
def test_plans_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    case = CASES["3x3"]
    with pytest.raises(TatamiError, match=message):
        by_quads(windows(case, KINDS, numbers(case, KINDS)[1]), "cpu:avx2", change)


@pytest.mark.parametrize(
    ("case", "kinds", "why"),
    [
        ({"x": (1, 4, 14, 14), "w": (4, 1, 3, 3), "stride": 3}, KINDS, "stride 3"),
        ({"x": (1, 4, 14, 14), "w": (4, 1, 3, 3), "dilation": 2}, KINDS, "dilation 2"),
        ({"x": (1, 4, 14, 14), "w": (4, 1, 3, 3)}, ("int8", "int8"), "one of each sign"),
    ],
)
def test_windows_that_have_no_quads_say_why(case: dict[str, Any], kinds: tuple[str, str], why: str) -> None:
    f = tt.compile(windows(case, kinds, numbers(case, kinds)[1]), target="cpu:avx512")
    (region,) = f.stages["region"].value.main.body
    found = find_window(region)
    assert not isinstance(found, str)
    target = msgspec.structs.replace(f.compilation.target, features=(*f.compilation.target.features, "vnni"))
    assert why in not_quads(region, "quads_vnni", found, target)


@pytest.mark.parametrize("apart", [{"stride": (10000, 1)}, {"dilation": (10000, 1)}])
def test_rows_too_far_apart_for_the_routine_have_another_plan(apart: dict[str, Any]) -> None:
    g = tt.Graph("apart")
    x, w = numbers({"x": (1, 2, 20003, 20), "w": (2, 1, 3, 3)}, KINDS)
    image = g.input("x", x.shape, DType.u8)
    g.output("y", integer_conv(image, g.constant(w, "w"), groups=2, **apart))
    f = tt.compile(g, target="cpu:avx512")
    (region,) = f.stages["region"].value.main.body
    found = find_window(region)
    assert not isinstance(found, str)
    assert "10000" in not_quads(region, "quads", found, f.compilation.target)
    y = np.asarray(f(x=x)["y"])
    stride, dilation = apart.get("stride", (1,))[0], apart.get("dilation", (1,))[0]
    expected = np.zeros(y.shape, np.int64)
    for i, j in np.ndindex(3, 3):
        seen = x[:, :, i * dilation :: stride, j : j + 18][:, :, : y.shape[2]]
        expected += seen.astype(np.int64) * w[:, :, i, j, None]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", ["f32_3x1_1x1_1_16", "u8x4vnni_0x1_1x1_1_16", "u8x4vnni_3x1_1x3_1_16", "u8x4vnni_3x1_1x1_1_5"])
def test_routines_of_other_names_do_not_exist(name: str) -> None:
    assert is_routine("tatami_quads_u8x4vnni_3x1_1x1_1_16") and not is_routine(f"tatami_quads_{name}")
