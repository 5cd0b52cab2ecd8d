"""The gradient of a convolution's image by wgmma: the pixels of the result's gradient by a walk, the filter, which is read backwards
or in steps, by boxes at one place of it each. Numbers, the proof of the protocol, machine code, planted faults, and whole programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape, var
from tatami.core.layout import ROW_MAJOR, Layout, MemRef
from tatami.core.target import PRESETS
from tatami.gpu.lower import lower_region, lower_split
from tatami.gpu.verify import verify_kernel
from tatami.indexbook.ir import Guard
from tatami.plan.ir import GpuStream, Guarded, Sm90Mma
from tatami.region.ir import Binary, Cast, Const, Iter, Let, Param, Read, Reduce, Region, Select, Target, Unary, Within, Yield
from tatami.region.views.images.boxes import Boxed, NoWay, way_of
from tatami.region.views.images.pixels import Pixels
from tatami.region.views.product import GemmView, gemm_view
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import machine_code
from tests.cu.test_compile import compiled
from tests.emulated.kernels import NUMPY, Built, changed
from tests.gpu.gemm_examples import sm90

F32 = DType.fp32
ORDERS = {"k": (0, 2, 3, 4, 1), "mn": (0, 1, 3, 4, 2)}
"""Permutations of filters [group, out, in, row, column]: the channels of the sum last, and the order of the convolution itself."""


class Gradient(msgspec.Struct, frozen=True):
    """dx[image, row, column, group, in] of dy[image, row, column, group * out], by every `step`-th tap from `first` on of a filter
    of `taps` taps, the last one first."""

    images: int = 2
    size: tuple[int, int] = (9, 11)
    out: int = 64
    channels: int = 40
    taps: int = 3
    step: int = 1
    first: int = 0
    before: int = 1
    groups: int = 1
    major: str = "k"
    dtype: DType = DType.fp16

    @property
    def read(self) -> list[int]:
        """The taps, in the order of the sum."""
        return list(range(self.first, self.taps, self.step))[::-1]

    def region(self) -> Region:
        count = len(self.read)
        entries = [var(a) + var(t) - self.before for a, t in zip("hw", "ij")]
        places = [expr(self.read[0]) - var(t) * self.step for t in "ij"]

        def operand(e: Any) -> Any:
            return Unary("tf32", e) if self.dtype == F32 else Cast(e, F32)

        dy = operand(Read("A", (var("p"), *entries, var("g") * self.out + var("o"))))
        inside = Within(tuple(Guard(e, expr(s)) for e, s in zip(entries, self.size)))
        weights = operand(Read("B", (var("g"), var("o"), var("c"), *places)))
        total = Reduce("sum", ("i", "j", "o"), 0.0, F32, Binary("mul", Select(inside, dy, Const(0.0, F32)), weights))
        axes, sizes = ("p", "h", "w", "g", "c"), (self.images, *self.size, self.groups, self.channels)
        filter_ = shape(self.groups, self.out, self.channels, self.taps, self.taps)
        return Region(
            "gradient",
            tuple(Iter(a, expr(s)) for a, s in zip(axes, sizes)),
            tuple(Iter(a, expr(s)) for a, s in zip("ijo", (count, count, self.out))),
            (
                Param("A", MemRef(self.dtype, shape(self.images, *self.size, self.groups * self.out))),
                Param("B", MemRef(self.dtype, filter_, layout=Layout("blocked", order=ORDERS[self.major]))),
            ),
            (Target("C", MemRef(self.dtype, shape(*sizes))),),
            (Let("acc", axes, F32, total),),
            (Yield("acc", "C", cast=self.dtype),),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """B as it lies in memory."""
        rng = np.random.default_rng(1)
        logical = (self.groups, self.out, self.channels, self.taps, self.taps)
        shapes = {"A": (self.images, *self.size, self.groups * self.out), "B": tuple(logical[d] for d in ORDERS[self.major])}
        return {n: (rng.integers(-8, 9, s) / 8).astype(NUMPY[self.dtype]) for n, s in shapes.items()}

    def wanted(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        order = ORDERS[self.major]
        dy, w = arrays["A"].astype(np.float64), arrays["B"].astype(np.float64).transpose([order.index(d) for d in range(5)])
        after = len(self.read) - 1 - self.before
        dy = np.pad(dy, ((0, 0), (self.before, after), (self.before, after), (0, 0)))
        out = np.zeros((self.images, *self.size, self.groups, self.channels))
        for i, row in enumerate(self.read):
            for j, column in enumerate(self.read):
                part = dy[:, i : i + self.size[0], j : j + self.size[1]].reshape(*out.shape[:3], self.groups, self.out)
                out += np.einsum("nhwgo,goc->nhwgc", part, w[:, :, :, row, column])
        return out


ONE: dict[str, Any] = {"consumers": 1, "registers": (56, 224), "tail": ("h", "c")}
TILES: dict[str, Any] = {"persistent": True, "overlap": True, "tail": ("h", "c")}
STAGED: dict[str, Any] = {"epilogue_store": "stmatrix_tma"}
FORWARD = Gradient(major="mn", channels=72)
CASES: dict[str, tuple[Gradient, Sm90Mma]] = {
    "3x3": (Gradient(), sm90((64, 64, 64), 3, **ONE | TILES)),
    "weights as the convolution has them": (FORWARD, sm90((64, 64, 64), 3, **ONE | TILES)),
    "a phase": (Gradient(step=2, before=0), sm90((64, 48, 64), 2, **ONE | TILES, **STAGED)),
    "the other phase": (Gradient(taps=5, step=2, first=1, out=32), sm90((64, 40, 32), 4, **ONE)),
    "groups": (Gradient(groups=3, channels=16, out=32), sm90((64, 16, 32), 4, **ONE | TILES, **STAGED)),
    "turns": (Gradient(channels=72), sm90((64, 64, 64), 3, schedule="pingpong", **TILES, **STAGED)),
    "a pair": (Gradient(channels=72), sm90((64, 64, 64), 3, cluster=(2, 1), multicast="b", **ONE | TILES)),
    "a pair shares boxes": (FORWARD, sm90((64, 128, 64), 2, cluster=(2, 1), multicast="b", **ONE | TILES)),
    "boxes side by side": (Gradient(major="mn", channels=104, out=32), sm90((64, 128, 32), 3, **ONE)),
    "exchanged": (Gradient(channels=128), sm90((128, 32, 64), 3, swap_ab=True, **TILES)),
    "tf32": (Gradient(out=32, dtype=F32), sm90((64, 64, 32), 3, depth=8, **ONE | TILES)),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str) -> None:
    """Several waves of tiles, a schedule drawn at random, and the proof of the protocol."""
    gradient, plan = CASES[name]
    built = Built(gradient.region(), plan, "sm90", sms=2)
    assert verify_kernel(built.kernel) == []
    arrays = gradient.arrays()
    for schedule in (0, 11):
        dx = built.run(arrays, {}, schedule).astype(np.float64)
        np.testing.assert_allclose(dx, gradient.wanted(arrays), rtol=2e-3, atol=2e-3)


FAULTS = [
    ("the filter is read forwards", "a phase", "(int)(-2 * (at_k / 128) + 2)", "(int)(2 * (at_k / 128))"),
    ("a box of another tap", "3x3", "(int)(-(at_k / 192) + 2)", "(int)(-(at_k / 192) + 1)"),
    ("a box of other channels", "boxes side by side", "(int)n0 + 64 * box", "(int)n0 + 32 * box"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_makes_other_numbers(name: str, right: str, wrong: str) -> None:
    gradient, plan = CASES[name]
    built = Built(gradient.region(), plan, "sm90", change=changed(right, wrong), sms=2)
    arrays = gradient.arrays()
    assert np.abs(built.run(arrays, {}).astype(np.float64) - gradient.wanted(arrays)).max() > 0.1


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["3x3", "weights as the convolution has them", "a phase", "tf32"])
def test_its_machine_code(name: str, tmp_path: Path) -> None:
    """`compiled` refuses spills and warnings."""
    gradient, plan = CASES[name]
    ops = machine_code(compiled(gradient.region(), plan, "sm90", ()), tmp_path)
    loads = [op for op in ops for _ in range(ops[op]) if op.startswith("UTMALDG")]
    assert len(loads) == 2 and sum("IM2COL" in op for op in loads) == 1
    assert sum(n for op, n in ops.items() if "HGMMA" in op) == plan.k_steps
    assert not {op.split(".")[0] for op in ops} & {"STL", "LDL", "HMMA", "LDGSTS"}


def ways(gradient: Gradient) -> list[Any]:
    region = gradient.region()
    view = gemm_view(region)
    assert isinstance(view, GemmView)
    return [way_of(region, view, o, g) for o, g in ((view.lhs, view.m), (view.rhs, view.n))]


@pytest.mark.parametrize(("major", "order"), [("k", (1, 2, 0, 3, 4)), ("mn", (2, 1, 0, 3, 4))])
def test_a_filter_is_boxes_of_what_lies_together(major: str, order: tuple[int, ...]) -> None:
    pixels, boxed = ways(Gradient(major=major))
    assert isinstance(pixels, Pixels) and isinstance(boxed, Boxed)
    assert (boxed.major, boxed.order, boxed.depth) == (major, order, 64)


def test_a_filter_that_lies_as_models_say_it_has_no_boxes() -> None:
    region = Gradient().region()
    x, w = region.inputs
    w = msgspec.structs.replace(w, memref=msgspec.structs.replace(w.memref, layout=ROW_MAJOR))
    region = msgspec.structs.replace(region, inputs=(x, w))
    view = gemm_view(region)
    assert isinstance(view, GemmView)
    assert way_of(region, view, view.rhs, view.n) == NoWay("B is contiguous along neither of c and o")


@pytest.mark.parametrize(
    ("gradient", "plan", "words"),
    [
        (Gradient(out=48), sm90((64, 40, 64), **ONE), "blocks of 64 channels do not divide the 48"),
        (FORWARD, sm90((64, 40, 64), **ONE), "a tile of whole 64-element boxes"),
        (Gradient(), sm90((128, 64, 64), split_k=2, **TILES), "equal parts of k end behind the windows of"),
    ],
    ids=["channels", "half a box", "parts"],
)
def test_what_cannot_be_is_refused_with_the_reason(gradient: Gradient, plan: Sm90Mma, words: str) -> None:
    lower = lower_split if plan.split_k > 1 else lower_region
    with pytest.raises(TatamiError, match=words):
        lower(gradient.region(), Guarded((), plan), PRESETS["sm90"])


# -- whole programs --------------------------------------------------------------------------------


def gradient_graph(taps: int, stride: int, size: int, dtype: DType = tt.fp16) -> tuple[tt.Graph, dict[str, np.ndarray]]:
    """The gradient of a convolution of 40 channels to 64."""
    pad, rng = taps // 2, np.random.default_rng(5)
    small = (size + 2 * pad - taps) // stride + 1
    extra = size - ((small - 1) * stride - 2 * pad + taps)
    g = tt.Graph("gradient")
    dy, w = g.input("dy", (2, 64, small, small), dtype), g.input("w", (64, 40, taps, taps), dtype)
    g.output("dx", dy.conv_transpose(w, stride=stride, padding=pad, output_padding=extra))
    arrays = {
        n: (rng.integers(-8, 9, [int(str(e)) for e in x.shape]) / 16).astype(NUMPY[dtype]) for n, x in (("dy", dy), ("w", w))
    }
    return g, arrays


@pytest.mark.parametrize(("taps", "stride", "products"), [(3, 1, 1), (1, 1, 1), (3, 2, 4), (1, 2, 1), (5, 2, 4)])
def test_every_phase_of_the_gradient_is_a_product_by_wgmma(taps: int, stride: int, products: int) -> None:
    """Each in the result's dtype; phases are laid between each other by a kernel."""
    g, arrays = gradient_graph(taps, stride, 10)
    f = tt.compile(g, target="emulated-sm90")
    plans = [r.choices[0].plan for r in f.stages["plan"].value.main.regions]
    assert [type(p) for p in plans] == [Sm90Mma] * products + [GpuStream] * (stride > 1)
    made = [t.memref.dtype for r in f.stages["region"].value.main.body for t in r.outputs]
    assert set(made) == {DType.fp16}
    want = tt.compile(g, target="reference")(**arrays)["dx"].astype(np.float64)
    np.testing.assert_allclose(f(**arrays)["dx"].astype(np.float64), want, rtol=2e-3, atol=2e-3)


def test_tf32_takes_it_too() -> None:
    g, _ = gradient_graph(3, 1, 40, tt.fp32)
    plan = prepare(g, target="sm90", precision="tf32").stages["plan"].main
    assert [p.inst_shape[-2:] for r in plan.regions if isinstance(p := r.choices[0].plan, Sm90Mma)] == ["k8"]


def test_a_slice_of_rows_is_boxes_that_begin_behind_their_tensor() -> None:
    """Along the sum, along rows, along columns, and of a batch: a tensor map begins where its buffer does."""
    rng = np.random.default_rng(0)
    g = tt.Graph("slice")
    sizes = {"x": (70, 256), "w": (128, 96), "b": (3, 70, 128)}
    x, w, b = (g.input(n, s, tt.fp16) for n, s in sizes.items())
    g.output("sum", x[:, 128:] @ w)
    g.output("rows", x[6:, 24:152] @ w)
    g.output("columns", x[:, :128] @ w[:, 32:])
    g.output("batch", b[1:] @ b[:2].permute(0, 2, 1))
    f = tt.compile(g, target="emulated-sm90")
    assert {type(r.choices[0].plan) for r in f.stages["plan"].value.main.regions} == {Sm90Mma}
    arrays = {n: (rng.integers(-8, 9, s) / 16).astype(np.float16) for n, s in sizes.items()}
    got, want = f(**arrays), tt.compile(g, target="reference")(**arrays)
    for name in want:
        np.testing.assert_allclose(got[name].astype(np.float64), want[name].astype(np.float64), rtol=2e-3, atol=2e-3)
