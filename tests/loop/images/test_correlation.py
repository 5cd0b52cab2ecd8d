"""Sums whose operands both lie along them, as weight gradients of convolutions: every class of shape against float64, blocks, vectors,
numbers that are not finite, plans that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.expr import expr
from tatami.core.target import PRESETS
from tatami.frontend.graph_api.windows import read_by_windows
from tatami.loop.verify import verify as verify_loops
from tatami.plan.choose_cpu import asked, cpu_candidates
from tatami.plan.ir import CpuContraction, CpuCorrelation
from tatami.plan.named_region import constant_tensors
from tatami.plan.verify_plan import verify_plan


@dataclass(frozen=True)
class Window:
    """A convolution whose weight's gradient is asked for: sizes of its image (batch, channels, …) and weight, and attributes."""

    image: tuple[Any, ...]
    weight: tuple[int, ...]
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def results(self) -> tuple[int, ...]:
        """Sizes of the convolution's result behind the batch."""
        pairs = zip(self.image[2:], self.weight[2:], strict=True)
        places = ((n + 2 * self.pad - self.dilation * (k - 1) - 1) // self.stride + 1 for n, k in pairs)
        return (self.weight[0], *places)

    def graph(self, dtype: Any = tt.fp32) -> tt.Graph:
        """The gradient as a convolution over the batch."""
        g = tt.Graph("gradient")
        batch, channels, *sizes = self.image
        x, e = g.input("x", self.image, dtype), g.input("e", (batch, *self.results), dtype)
        each, n = channels // self.groups, len(sizes)
        spatial = range(2, 2 + n)
        wide = x.reshape(batch, self.groups, each, *sizes).permute(2, 1, 0, *range(3, 3 + n))
        wide = wide.reshape(each, x.shape[0] * self.groups, *sizes)
        spans = [
            expr((p - 1) * self.stride + (k - 1) * self.dilation + 1)
            for p, k in zip(self.results[1:], self.weight[2:], strict=True)
        ]
        seen, pads = read_by_windows(wide, [(expr(self.pad), expr(self.pad))] * n, spans)
        stride, dilation = (self.dilation,) * n, (self.stride,) * n
        out = seen.conv(e.permute(1, 0, *spatial), padding=pads, groups=self.groups, stride=stride, dilation=dilation)
        g.output("w", out.permute(1, 0, *spatial))
        return g

    def arrays(self, batch: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(7)
        shapes = {"x": (batch, *self.image[1:]), "e": (batch, *self.results)}
        return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}

    def wanted(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """PyTorch's gradient in float64."""
        x, e = (torch.tensor(arrays[n], dtype=torch.float64) for n in ("x", "e"))
        w = torch.zeros(self.weight, dtype=torch.float64, requires_grad=True)
        apply = (torch.conv1d, torch.conv2d, torch.conv3d)[len(self.weight) - 3]
        apply(x, w, None, self.stride, self.pad, self.dilation, self.groups).backward(e)
        assert w.grad is not None
        return np.asarray(w.grad)


CASES = {
    "3x3": Window((2, 9, 16, 20), (7, 9, 3, 3), pad=1),
    "3x3, one image": Window((1, 16, 33, 32), (16, 16, 3, 3), pad=1),
    "3x3, small images": Window((5, 12, 4, 4), (16, 12, 3, 3), pad=1),
    "5x3 without a border": Window((3, 6, 21, 17), (8, 6, 5, 3)),
    "stride 2": Window((2, 8, 32, 32), (11, 8, 3, 3), stride=2, pad=1),
    "stride 2, odd sizes": Window((2, 8, 31, 33), (11, 8, 3, 3), stride=2, pad=1),
    "stride 4, patches": Window((3, 3, 32, 32), (10, 3, 4, 4), stride=4),
    "stride 3, a window of 2": Window((2, 5, 31, 31), (6, 5, 2, 2), stride=3),
    "dilation 2": Window((2, 7, 20, 24), (9, 7, 3, 3), pad=2, dilation=2),
    "stride 2, dilation 3": Window((2, 4, 40, 40), (6, 4, 3, 3), stride=2, pad=3, dilation=3),
    "groups": Window((2, 12, 18, 18), (8, 3, 3, 3), pad=1, groups=4),
    "depthwise 7x7": Window((3, 10, 16, 16), (10, 1, 7, 7), pad=3, groups=10),
    "depthwise 3x3, stride 2": Window((2, 6, 24, 24), (6, 1, 3, 3), stride=2, pad=1, groups=6),
    "depthwise, two filters each": Window((2, 6, 24, 24), (12, 1, 5, 5), pad=2, groups=6),
    "1x1": Window((3, 14, 12, 12), (13, 14, 1, 1)),
    "1x1, stride 2": Window((3, 14, 12, 12), (13, 14, 1, 1), stride=2),
    "one dimension": Window((3, 5, 300), (8, 5, 9), pad=4),
    "one dimension, stride 8": Window((3, 5, 512), (8, 5, 19), stride=8, pad=5),
    "three dimensions": Window((2, 4, 6, 12, 16), (5, 4, 3, 3, 3), pad=1),
    "an open batch": Window(("B", 8, 16, 16), (9, 8, 3, 3), pad=1),
}


def batch_of(window: Window) -> int:
    return window.image[0] if isinstance(window.image[0], int) else 3


def compiled(
    window: Window, dtype: Any = tt.fp32, *, apart: bool | None = None, target: str = "cpu:avx512", **fields: Any
) -> Any:
    """The program whose sum is planned as a correlation, whether the estimate takes that or another, with these fields."""
    f = tt.compile(window.graph(dtype), target=target)
    regions, plans = f.stages["region"].value, f.stages["plan"].value.main.regions
    facts = f.stages["poly_core"].value.main.regions
    (region,) = regions.main.body
    question = asked(region, facts[0], f.compilation.target, {}, constant_tensors(regions, "main"))
    found, rejected = cpu_candidates(question)
    plan = next((c.plan for c in found if isinstance(c.plan, CpuCorrelation)), None)
    assert plan is not None, [r.why for r in rejected]
    if apart is not None:
        fields["apart"] = apart
    mine = msgspec.structs.replace(plan, **fields)
    return tt.compile(window.graph(dtype), target=target, decisions={"plans": {plans[0].key: to_builtins(mine)}})


def check(window: Window, f: Any, arrays: dict[str, np.ndarray], tolerance: float = 3e-6) -> None:
    (chosen,) = f.stages["plan"].value.main.regions
    assert isinstance(chosen.choices[-1].plan, CpuCorrelation)
    assert verify_loops(f.stages["loop"].value) == []
    got, wanted = f(**arrays)["w"], window.wanted(arrays)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_sums_give_the_gradient(name: str, apart: bool) -> None:
    window = CASES[name]
    check(window, compiled(window, apart=apart), window.arrays(batch_of(window)))


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("name", ["3x3", "depthwise 7x7", "stride 2, odd sizes"])
def test_shorter_vectors(name: str, target: str) -> None:
    window = CASES[name]
    check(window, compiled(window, target=target), window.arrays(batch_of(window)))


@pytest.mark.parametrize("blocks", [(1, 1, 1), (4, 1, 5), (2, 2, 3)])
@pytest.mark.parametrize("apart", [True, False])
def test_any_block(blocks: tuple[int, int, int], apart: bool) -> None:
    window = CASES["3x3"]
    planes, images, rows = blocks
    f = compiled(window, apart=apart, planes=planes, images=images, rows=rows, mr=3, nr=4)
    check(window, f, window.arrays(2))


def test_doubles() -> None:
    window = CASES["3x3"]
    check(window, compiled(window, tt.fp64), window.arrays(2, np.float64), 1e-14)


def test_results_do_not_depend_on_threads() -> None:
    window = CASES["depthwise 7x7"]
    arrays = window.arrays(3)
    f = compiled(window)
    (chosen,) = f.stages["plan"].value.main.regions
    decided = {"plans": {chosen.key: to_builtins(chosen.choices[-1].plan)}}
    one, two = (tt.compile(window.graph(), target="cpu:avx512", threads=n, decisions=decided)(**arrays)["w"] for n in (1, 2))
    assert (one == two).all()


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("name", ["3x3", "3x3, small images", "5x3 without a border"])
def test_numbers_that_are_not_finite_stay_where_they_belong(name: str, apart: bool) -> None:
    """An infinite pixel at the border reaches only the places of the window that read it."""
    window = CASES[name]
    arrays = window.arrays(batch_of(window))
    arrays["x"][0, 0, 0, 0] = np.inf
    arrays["x"][0, 1, -1, -1] = np.nan
    arrays["e"][0, 1, 0, -1] = -np.inf
    got, wanted = compiled(window, apart=apart)(**arrays)["w"], window.wanted(arrays)
    assert (np.isnan(got) == np.isnan(wanted)).all()
    assert (np.isinf(got) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    assert 0 < finite.sum() < finite.size
    assert np.abs(got[finite] - wanted[finite]).max() < 1e-4


def test_estimates_choose_it_for_large_gradients() -> None:
    window = Window((8, 64, 32, 32), (64, 64, 3, 3), pad=1)
    plan = tt.compile(window.graph(), target="cpu:avx512").stages["plan"].value.main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuCorrelation)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("pad", [0, 1])
def test_estimates_leave_small_images_of_three_dimensions_to_packed_panels(target: str, pad: int) -> None:
    """Measured 1.02 to 1.8 times as fast: copies of lines without borders take few cycles."""
    g = tt.Graph("g")
    x, w = g.input("x", (2, 8, 8, 16, 16), tt.fp32), g.input("w", (16, 8, 3, 3, 3), tt.fp32, role="param")
    g.output("y", x.conv(w, None, padding=pad))
    plan = prepare(g, target=target).stages["plan"].main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuContraction)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mr": 0}, "mr 0"),
        ({"nr": 0}, "nr 0"),
        ({"planes": 10}, "planes 10; the sum has 9"),
        ({"rows": 17}, "rows 17; the sum has 16"),
        ({"images": 3}, "images 3; the sum has 2"),
        ({"mr": 6, "nr": 5}, "needs 36 vector registers"),
        ({"mr": 7, "nr": 2}, "6 rows"),
        ({"mr": 2, "nr": 10}, "11 rows and columns together"),
        ({"width": 32}, "width 32"),
        ({"width": 0}, "vectors of width 0"),
        ({"width": 1}, "vectors of width 1"),
        ({"width": 12}, "vectors of width 12"),
        ({"acc": "other"}, "is not the sum"),
    ],
)
def test_plans_that_do_not_fit_are_refused(fields: dict[str, Any], why: str) -> None:
    f = compiled(CASES["3x3"])
    (region,), (chosen,) = f.stages["region"].value.main.body, f.stages["plan"].value.main.regions
    plan = msgspec.structs.replace(chosen.choices[-1].plan, **fields)
    found = list(verify_plan(plan, region, PRESETS["cpu:avx512"]))
    assert any(why in d.why for d in found), found


def test_other_sums_are_refused_with_a_reason() -> None:
    g = tt.Graph("product")
    x, y = g.input("x", (64, 64), tt.fp32), g.input("y", (64, 64), tt.fp32)
    g.output("z", x @ y)
    (region,) = tt.compile(g, target="cpu:avx512").stages["region"].value.main.body
    plan = CpuCorrelation(region.lets[0].name, 4, 6, 1, 1, 1, 16, True)
    (found,) = verify_plan(plan, region, PRESETS["cpu:avx512"])
    assert "no summed axis along which both operands are contiguous" in found.why
    assert "cpu_contraction" in found.suggestion
