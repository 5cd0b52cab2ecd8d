"""Convolutions of 8-bit integers by places of the image: exact for every window, stride, sign, border, block and instruction."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.plan.choose_cpu import asked, cpu_candidates
from tatami.plan.ir import CpuPlaces
from tatami.plan.named_region import constant_tensors
from tests.loop.images.convolutions import plan_of

TARGETS = ("cpu", "cpu:avx512", "cpu:avx2", "cpu:generic")
CASES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (1, 16, 14, 14), "w": (40, 16, 3, 3), "pad": 1},
    "3x3 with a border that is not 0": {"x": (1, 16, 9, 14), "w": (33, 16, 3, 3), "pad": 1, "value": 114},
    "3 channels, 7x7 by 2": {"x": (1, 3, 30, 31), "w": (32, 3, 7, 7), "pad": 3, "stride": 2, "value": 7},
    "rows of 7, two in a panel": {"x": (1, 8, 7, 7), "w": (32, 8, 3, 3), "pad": 1},
    "rows of 2, several in a panel": {"x": (2, 8, 9, 2), "w": (16, 8, 3, 1), "pad": 0},
    "columns of 1": {"x": (1, 8, 40, 1), "w": (32, 8, 3, 1), "pad": 0},
    "channels that are not groups": {"x": (1, 10, 9, 9), "w": (17, 10, 3, 3), "pad": 0},
    "the same with a border that is not 0": {"x": (1, 10, 9, 9), "w": (17, 10, 3, 3), "pad": 1, "value": 5},
    "groups": {"x": (2, 16, 8, 8), "w": (24, 8, 3, 3), "pad": 1, "groups": 2},
    "dilated": {"x": (1, 8, 15, 15), "w": (16, 8, 3, 3), "pad": 2, "dilation": 2},
    "1x1": {"x": (2, 24, 13, 11), "w": (40, 24, 1, 1), "pad": 0},
    "1x1 by 2": {"x": (1, 24, 13, 11), "w": (40, 24, 1, 1), "pad": 0, "stride": 2},
    "2x2 by 2, each entry in one window": {"x": (2, 12, 14, 10), "w": (20, 12, 2, 2), "pad": 0, "stride": 2},
    "4x4 by 4 with a border that is not 0": {"x": (1, 3, 16, 24), "w": (32, 3, 4, 4), "pad": 2, "stride": 4, "value": 9},
    "2x2 by 3, entries in no window": {"x": (1, 8, 14, 17), "w": (24, 8, 2, 2), "pad": 0, "stride": 3},
    "a line by 3": {"x": (2, 3, 7), "w": (17, 3, 3), "pad": 2, "stride": 3},
    "a line": {"x": (1, 8, 40), "w": (24, 8, 5), "pad": 2},
    "many steps of k": {"x": (1, 256, 5, 5), "w": (32, 256, 3, 3), "pad": 1},
}


def reference(x: np.ndarray, w: np.ndarray, case: dict[str, Any]) -> np.ndarray:
    """The convolution in 64-bit integers, place by place of the window."""
    pad, stride, dilation, groups = (case.get(n, d) for n, d in (("pad", 0), ("stride", 1), ("dilation", 1), ("groups", 1)))
    space = x.shape[2:]
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), *((pad, pad) for _ in space)), constant_values=case.get("value", 0))
    sizes = [(n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(space, w.shape[2:])]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    each, filters = w.shape[1], w.shape[0] // groups
    for g in range(groups):
        own = slice(g * filters, (g + 1) * filters)
        for place in np.ndindex(*w.shape[2:]):
            seen = tuple(slice(p * dilation, p * dilation + (n - 1) * stride + 1, stride) for p, n in zip(place, sizes))
            part = x[(slice(None), slice(g * each, (g + 1) * each), *seen)]
            y[:, own] += np.einsum("oc,nc...->no...", w[(own, slice(None), *place)].astype(np.int64), part)
    return y


def numbers(case: dict[str, Any], kinds: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """All values of the types occur, the least and the greatest too."""
    rng = np.random.default_rng(3)
    image, weights = (np.iinfo(k) for k in kinds)
    x = rng.integers(image.min, image.max + 1, case["x"]).astype(kinds[0])
    w = rng.integers(weights.min, weights.max + 1, case["w"]).astype(kinds[1])
    x[..., -1], w[0] = image.max, weights.min
    return x, w


def integer_conv(x: Any, w: Any, **more: Any) -> Any:
    return x.cast(DType.i16).one("conv", w.cast(DType.i16), None, acc_dtype=DType.i32, out_dtype=DType.i32, **more)


def graph(case: dict[str, Any], kinds: tuple[str, str], w: np.ndarray, finish: Any = None) -> tt.Graph:
    g = tt.Graph("places")
    x = g.input("x", case["x"], DType({"uint8": "u8", "int8": "i8"}[kinds[0]]))
    pad, space = case.get("pad", 0), len(case["x"]) - 2
    padded = x.pad(((0, 0), (0, 0), *(((pad, pad),) * space)), value=case.get("value", 0)) if pad else x
    more = {n: (case.get(n, 1),) * space for n in ("stride", "dilation")} | {"groups": case.get("groups", 1)}
    sums = integer_conv(padded, g.constant(w, "w"), **more)
    g.output("y", sums if finish is None else finish(g, sums))
    return g


def by_places(g: tt.Graph, target: Any = "cpu", change: dict[str, Any] | None = None, **options: Any) -> Any:
    """The program whose convolution is planned by places, whatever the estimate takes; with other values of the plan's fields."""
    f = tt.compile(g, target=target, **options)
    regions = f.stages["region"].value
    (chosen,) = f.stages["plan"].value.main.regions
    if change is None and isinstance(chosen.choices[-1].plan, CpuPlaces):
        return f
    (region,), (facts,) = regions.main.body, f.stages["poly_core"].value.main.regions
    found, _ = cpu_candidates(asked(region, facts, f.compilation.target, {}, constant_tensors(regions, "main")))
    plan = msgspec.structs.replace(next(c.plan for c in found if isinstance(c.plan, CpuPlaces)), **(change or {}))
    return tt.compile(g, target=target, decisions={"plans": {chosen.key: to_builtins(plan)}}, **options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name: str, target: str) -> None:
    case = CASES[name]
    x, w = numbers(case, ("uint8", "int8"))
    f = by_places(graph(case, ("uint8", "int8"), w), target)
    plan_of(f, CpuPlaces)
    np.testing.assert_array_equal(f(x=x)["y"], reference(x, w, case))


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_operands_have_any_signs(kinds: tuple[str, str], target: str) -> None:
    case = CASES["3x3"]
    x, w = numbers(case, kinds)
    f = by_places(graph(case, kinds, w), target)
    dot = plan_of(f, CpuPlaces)[2].dot
    has_vnni = "vnni" in f.compilation.target.features
    assert dot == ("quads_vnni" if has_vnni and kinds[0] != kinds[1] else "quads")
    np.testing.assert_array_equal(f(x=x)["y"], reference(x, w, case))


@pytest.mark.parametrize(
    "change", [{"rows": 3}, {"rows": 5, "columns": 6}, {"kc": 7}, {"bands": 2}, {"mr": 5}, {"rows": 2, "bands": 9}]
)
@pytest.mark.parametrize("name", ["3x3", "1x1", "3 channels, 7x7 by 2"])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_depths_and_bands_change_nothing(threads: int, name: str, change: dict[str, Any]) -> None:
    case = CASES[name]
    x, w = numbers(case, ("uint8", "int8"))
    f = by_places(graph(case, ("uint8", "int8"), w), "cpu", change, threads=threads)
    assert {k: getattr(plan_of(f, CpuPlaces)[2], k) for k in change} == change
    np.testing.assert_array_equal(f(x=x)["y"], reference(x, w, case))


@pytest.mark.parametrize("name", ["3x3", "rows of 7, two in a panel", "1x1", "groups"])
def test_codes_are_made_in_the_epilogue(name: str) -> None:
    case = CASES[name]
    x, w = numbers(case, ("uint8", "int8"))

    def finish(g: tt.Graph, sums: Any) -> Any:
        return (sums.cast(tt.fp32) * 0.01).quantize(
            g.constant(np.array(0.5, np.float32)), g.constant(np.array(3, np.uint8)), to=DType.u8
        )

    f = by_places(graph(case, ("uint8", "int8"), w, finish))
    plan_of(f, CpuPlaces)
    real = reference(x, w, case).astype(np.float32) * np.float32(0.01) / np.float32(0.5)
    np.testing.assert_array_equal(f(x=x)["y"], np.clip(np.rint(real) + 3, 0, 255).astype(np.uint8))


def test_an_open_batch_and_an_open_image() -> None:
    w = numbers(CASES["3x3"], ("uint8", "int8"))[1]
    g = tt.Graph("open")
    x = g.input("x", ("B", 16, "H", "W"), DType.u8)
    padded = x.pad(((0, 0), (0, 0), (1, 1), (1, 1)), value=9)
    g.output("y", integer_conv(padded, g.constant(w)))
    f = by_places(g)
    for shape in ((1, 16, 14, 14), (3, 16, 5, 1), (2, 16, 1, 40)):
        image = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
        np.testing.assert_array_equal(f(x=image)["y"], reference(image, w, {"pad": 1, "value": 9}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dot": "pairs"}, "dot 'pairs' for u8 by i8"),
        ({"mr": 40}, "vector registers"),
        ({"kc": 0}, "all sizes are positive"),
        ({"packed": ()}, "packed none"),
    ],
)
def test_plans_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    case = CASES["3x3"]
    with pytest.raises(TatamiError, match=message):
        by_places(graph(case, ("uint8", "int8"), numbers(case, ("uint8", "int8"))[1]), "cpu:avx512", change)


def test_floats_and_single_channels_are_left_to_other_templates() -> None:
    g = tt.Graph("one channel")
    x = g.input("x", (1, 1, 14, 14), DType.u8)
    g.output("y", integer_conv(x, g.constant(np.ones((8, 1, 3, 3), np.int8))))
    f = tt.compile(g)
    (chosen,) = f.stages["plan"].value.main.regions
    assert not isinstance(chosen.choices[-1].plan, CpuPlaces)
    np.testing.assert_array_equal(f(x=np.ones((1, 1, 14, 14), np.uint8))["y"], np.full((1, 8, 12, 12), 9))
