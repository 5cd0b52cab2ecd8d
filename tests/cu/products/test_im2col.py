"""Convolutions by TMA's im2col maps and wgmma: numbers over strides, dilations, borders, groups and tails, the proof of the
protocol, machine code, planted faults, and what takes another template for which reason."""

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
from tatami.core.kernel import Window
from tatami.core.layout import MemRef
from tatami.core.target import PRESETS
from tatami.gpu.lower import lower_region, lower_split
from tatami.gpu.verify import verify_kernel
from tatami.indexbook.ir import Guard
from tatami.plan.choose_gpu import choose_gpu
from tatami.plan.gpu.sm90_shapes import Loads, sm90_shapes
from tatami.plan.ir import Guarded, Sm80Mma, Sm90Mma
from tatami.region.ir import (
    Binary,
    Cast,
    Const,
    Iter,
    Let,
    Param,
    Read,
    Reduce,
    Ref,
    Region,
    Select,
    Target,
    Unary,
    Within,
    Yield,
)
from tatami.region.views.images.pixels import Pixels, pixels_of
from tatami.region.views.product import GemmView, gemm_view
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import machine_code
from tests.cu.test_compile import compiled
from tests.emulated.kernels import NUMPY, Built, changed
from tests.gpu.gemm_examples import gemm, sm90

F32 = DType.fp32


class Conv(msgspec.Struct, frozen=True):
    """x[image, row, column, group * channel], w[group, out, tap row, tap column, channel], y[image, row, column, group, out]."""

    images: int = 2
    size: tuple[int, int] = (9, 11)
    channels: int = 64
    out: int = 40
    taps: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1))
    groups: int = 1
    dtype: DType = DType.fp16

    @property
    def result(self) -> tuple[int, int]:
        ends = zip(self.size, self.taps, self.stride, self.dilation, self.padding, strict=True)
        height, width = ((n + sum(p) - d * (t - 1) - 1) // s + 1 for n, t, s, d, p in ends)
        return height, width

    def region(self) -> Region:
        entries = [
            var(a) * s + var(t) * d - p[0] for a, t, s, d, p in zip("hw", "ij", self.stride, self.dilation, self.padding)
        ]
        rounds = self.dtype == F32

        def operand(e: Any) -> Any:
            return Unary("tf32", e) if rounds else Cast(e, F32)

        x = operand(Read("A", (var("p"), *entries, var("g") * self.channels + var("c"))))
        inside = tuple(Guard(e, expr(s)) for e, s in zip(entries, self.size))
        image = Select(Within(inside), x, Const(0.0, F32)) if any(map(any, self.padding)) else x
        weights = operand(Read("B", (var("g"), var("o"), var("i"), var("j"), var("c"))))
        axes = ("p", "h", "w", "g", "o")
        sizes = (self.images, *self.result, self.groups, self.out)
        total = Reduce("sum", ("i", "j", "c"), 0.0, F32, Binary("mul", image, weights))
        return Region(
            "conv",
            tuple(Iter(a, expr(s)) for a, s in zip(axes, sizes)),
            tuple(Iter(a, expr(s)) for a, s in zip("ijc", (*self.taps, self.channels))),
            (
                Param("A", MemRef(self.dtype, shape(self.images, *self.size, self.groups * self.channels))),
                Param("B", MemRef(self.dtype, shape(self.groups, self.out, *self.taps, self.channels))),
            ),
            (Target("C", MemRef(self.dtype, shape(*sizes))),),
            (Let("acc", axes, F32, total), Let("y", axes, F32, Unary("relu", Ref("acc")))),
            (Yield("y", "C", cast=self.dtype),),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        shapes = {p.name: tuple(e.as_int() or 0 for e in p.memref.shape) for p in self.region().inputs}
        return {n: (rng.integers(-8, 9, s) / 8).astype(NUMPY[self.dtype]) for n, s in shapes.items()}

    def wanted(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        x, w = (arrays[n].astype(np.float64) for n in "AB")
        x = np.pad(x, ((0, 0), *self.padding, (0, 0)))
        out = np.zeros((self.images, *self.result, self.groups, self.out))
        for i in range(self.taps[0]):
            for j in range(self.taps[1]):
                (top, left), (down, across) = (i * self.dilation[0], j * self.dilation[1]), self.stride
                height, width = self.result
                part = x[:, top : top + down * height : down, left : left + across * width : across]
                part = part[:, :height, :width].reshape(*part.shape[:3], self.groups, self.channels)
                out += np.einsum("nhwgc,goc->nhwgo", part, w[:, :, i, j])
        return np.maximum(out, 0)


ONE: dict[str, Any] = {"consumers": 1, "registers": (56, 224), "tail": ("h", "o")}
TILES: dict[str, Any] = {"persistent": True, "overlap": True, "tail": ("h", "o")}
STAGED: dict[str, Any] = {"epilogue_store": "stmatrix_tma"}
CASES: dict[str, tuple[Conv, Sm90Mma]] = {
    "3x3": (Conv(), sm90((64, 64, 64), 3, **ONE | TILES)),
    "strides": (Conv(stride=(2, 3), size=(13, 17), channels=128), sm90((64, 48, 64), 2, **ONE | TILES, **STAGED)),
    "dilation": (
        Conv(dilation=(2, 3), padding=((2, 0), (3, 1)), size=(8, 9), taps=(3, 2)),
        sm90((128, 64, 64), 2, tail=("h", "o")),
    ),
    "groups": (Conv(groups=3, out=16, channels=32), sm90((64, 16, 32), 4, **ONE | TILES, **STAGED)),
    "no border": (Conv(padding=((0, 0), (0, 0)), taps=(2, 3)), sm90((64, 40, 32), 3, **ONE)),
    "1x1 with a stride": (
        Conv(taps=(1, 1), stride=(2, 2), padding=((0, 0), (0, 0))),
        sm90((64, 40, 64), 2, **ONE | {"tail": ("w", "o")}),
    ),
    "turns": (Conv(out=72), sm90((64, 64, 64), 3, schedule="pingpong", **TILES, **STAGED)),
    "weights for a pair": (Conv(out=72), sm90((64, 64, 64), 3, cluster=(2, 1), multicast="b", **ONE | TILES)),
    "exchanged": (Conv(out=128), sm90((128, 32, 64), 3, swap_ab=True, tail=("h", "o"), persistent=True, overlap=True)),
    "tf32": (Conv(channels=32, dtype=F32), sm90((64, 64, 32), 3, depth=8, **ONE | TILES)),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str) -> None:
    """Several waves of tiles, a schedule drawn at random, and the proof of the protocol."""
    conv, plan = CASES[name]
    built = Built(conv.region(), plan, "sm90", sms=2)
    assert verify_kernel(built.kernel) == []
    arrays = conv.arrays()
    for schedule in (0, 11):
        y = built.run(arrays, {}, schedule).astype(np.float64)
        np.testing.assert_allclose(y, conv.wanted(arrays), rtol=2e-3, atol=2e-3)


FAULTS = [
    ("the offsets are exchanged", "(tt_u16)((element / 192)), full", "(tt_u16)(element / 64 % 3), full"),
    ("a tap is read for another", "(element / 192)", "(element / 193)"),
    ("the walk starts a pixel later", "(pixel / 6) - 1), (int)(-10", "(pixel / 6)), (int)(-10"),
]


@pytest.mark.parametrize(("fault", "right", "wrong"), FAULTS, ids=[f for f, _, _ in FAULTS])
def test_a_planted_fault_makes_other_numbers(fault: str, right: str, wrong: str) -> None:
    conv = Conv(stride=(2, 2))
    built = Built(conv.region(), sm90((64, 64, 64), 3, **ONE), "sm90", change=changed(right, wrong))
    arrays = conv.arrays()
    assert np.abs(built.run(arrays, {}).astype(np.float64) - conv.wanted(arrays)).max() > 0.1


def test_fewer_bytes_than_the_walk_brings_are_reported() -> None:
    conv, plan = CASES["3x3"]
    built = Built(conv.region(), plan, "sm90", change=changed("STAGES * 8, 16384)", "STAGES * 8, 8192)"))
    report, _ = built.report(conv.arrays(), {})
    assert report is not None and report.check == "in flight" and "TMA load" in report.text


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["turns", "tf32", "groups"])
def test_its_machine_code(name: str, tmp_path: Path) -> None:
    conv, plan = CASES[name]
    ops = machine_code(compiled(conv.region(), plan, "sm90", ()), tmp_path)
    loads = [op for op in ops for _ in range(ops[op]) if op.startswith("UTMALDG")]
    assert len(loads) == 2 and sum("IM2COL" in op for op in loads) == 1
    assert sum(n for op, n in ops.items() if "HGMMA" in op) == plan.k_steps
    assert not {op.split(".")[0] for op in ops} & {"STL", "LDL", "HMMA", "LDGSTS"}


def walk(conv: Conv) -> Pixels | str:
    view = gemm_view(conv.region())
    assert isinstance(view, GemmView)
    return pixels_of(conv.region(), view.lhs, view.m, view.k)


def test_a_walk_has_the_corners_of_its_borders() -> None:
    found = walk(Conv(stride=(2, 2), size=(9, 12), padding=((1, 1), (2, 0)), dilation=(1, 2)))
    assert isinstance(found, Pixels)
    assert [(p.stride, p.dilation, p.lower) for p in found.places] == [(2, 2, -2), (2, 1, -1), (1, 1, 0)]
    for p, (size, count) in zip(found.places, ((12, 5), (9, 5))):
        assert len(range(p.lower, size + p.upper, p.stride)) == count
    assert isinstance(pixels := walk(Conv(stride=(9, 1))), str) and "more than a tensor map can" in pixels


def test_a_filter_shifts_the_walk_no_further_than_an_instruction_says() -> None:
    """Corners of -128 and borders of a hundred hold it either way; the shift of the last tap is 254 or 256."""
    shifts = {127: Pixels, 128: str}
    for apart, kind in shifts.items():
        found = walk(Conv(size=(9, 9), dilation=(1, apart), padding=((1, 1), (apart, apart))))
        assert isinstance(found, kind)
    assert isinstance(found, str) and "by 256 at most" in found


@pytest.mark.parametrize(
    ("conv", "plan", "words"),
    [
        (Conv(channels=48), sm90((64, 40, 64), **ONE), "blocks of 64 channels do not divide the 48"),
        (Conv(), sm90((128, 64, 64), cluster=(1, 2), multicast="a", **TILES), "cannot share the pixels of p0"),
        (Conv(stride=(9, 1), size=(30, 9)), sm90((64, 40, 64), **ONE), "no tensor map covers an operand"),
        (Conv(channels=20, dtype=F32), sm90((64, 40, 20), depth=10, **ONE), "not a wgmma shape"),
    ],
    ids=["channels", "multicast", "step", "channels of fp32"],
)
def test_what_cannot_be_is_refused_with_the_reason(conv: Conv, plan: Sm90Mma, words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        lower_region(conv.region(), Guarded((), plan), PRESETS["sm90"])


@pytest.mark.parametrize("border", [0, 1])
def test_the_planner_shares_no_pixels(border: int) -> None:
    """The planner shares no pixels, guarded or not."""
    region = Conv(padding=((border, border), (border, border))).region()
    view = gemm_view(region)
    assert isinstance(view, GemmView)
    shapes = sm90_shapes(region, view, True, Loads(("tma", "tma"), 8, ""))
    assert {s.cluster for s in shapes} == {(1, 1), (2, 1)}
    assert not any(s.is_streamed for s in shapes if s.split_k > 1)


def test_equal_parts_of_k_do_not_end_in_windows() -> None:
    with pytest.raises(TatamiError, match="equal parts of k end behind the windows of p0"):
        lower_split(Conv().region(), Guarded((), sm90((128, 64, 64), split_k=2, **TILES)), PRESETS["sm90"])


def net(dtype: DType = tt.fp16) -> tt.Graph:
    """Strides, groups, dilation, and one of 12 channels, which are not a whole block."""
    g, rng = tt.Graph("net"), np.random.default_rng(0)

    def weights(*sizes: int) -> Any:
        return g.constant((rng.integers(-8, 9, sizes) / 64).astype(NUMPY[dtype]))

    x = g.input("x", (2, 32, "H", "W"), dtype).conv(weights(64, 32, 3, 3), padding=1).relu()
    x = x.conv(weights(48, 32, 3, 3), stride=2, padding=1, groups=2).relu()
    x = x.conv(weights(64, 12, 1, 3), groups=4).relu()
    g.output("y", x.conv(weights(16, 64, 3, 1), dilation=(2, 1), padding=((2, 1), (0, 0))))
    return g


def test_the_planner_takes_them_and_says_where_not() -> None:
    f = tt.compile(net(), target="emulated-sm90")
    regions = f.stages["plan"].value.main.regions
    assert [type(r.choices[0].plan) for r in regions] == [Sm90Mma, Sm90Mma, Sm80Mma, Sm90Mma]
    assert [p.epilogue_store for r in regions if isinstance(p := r.choices[0].plan, Sm90Mma)] == ["stmatrix_tma"] * 2 + [
        "direct"
    ]
    assert [r.why for r in regions[2].rejected if r.plan == "sm90_mma"] == [
        "no tensor map covers an operand: 12 channels make no whole copies of 16 bytes, "
        "nor can copies be longer than 2 bytes: a producer would wait for each"
    ]
    x = (np.random.default_rng(3).integers(-8, 9, (2, 32, 10, 13)) / 8).astype(np.float16)
    want = tt.compile(net(), target="reference")(x=x)["y"]
    np.testing.assert_allclose(f(x=x)["y"].astype(np.float64), want.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_tf32_convolutions_take_them_too() -> None:
    regions = prepare(net(tt.fp32), target="sm90", precision="tf32").stages["plan"].main.regions
    shapes = [p.inst_shape for r in regions if isinstance(p := r.choices[0].plan, Sm90Mma)]
    assert len(shapes) == 3 and all(s.endswith("k8") for s in shapes)


def test_an_image_is_read_from_memory_once() -> None:
    """Distinct elements over elements read: a ninth for 3x3 windows in steps of 1, four ninths in steps of 2, 1 for a matrix."""
    for stride, share in ((1, 1 / 9), (2, 4 / 9)):
        conv = Conv(images=16, size=(64, 64), stride=(stride, stride), out=64)
        choices, _ = choose_gpu(conv.region(), None, PRESETS["sm90"], {})  # type: ignore[arg-type]
        pixels = 16 * (64 // stride) ** 2
        elements = pixels * 9 * 64 * share + 9 * 64 * 64 + pixels * 64
        assert choices[0].estimate["memory"] == pytest.approx(2 * elements / PRESETS["sm90"].bandwidth)
        assert choices[0].estimate["memory_traffic"] < 1.1 * 2 * elements
    (product, *_), _ = choose_gpu(gemm(4096, 4096, 4096), None, PRESETS["sm90"], {})  # type: ignore[arg-type]
    assert product.estimate["memory"] == pytest.approx(6 * 4096**2 / PRESETS["sm90"].bandwidth)


def test_the_window_is_kept_in_the_plan_of_the_program() -> None:
    stages = prepare(net(), target="sm90").stages
    windows = [m.window for b in stages["gpu"].main.bindings for m in b.tensor_maps if m.window is not None]
    assert windows == [
        Window((-1, -1), (-1, -1), (1, 1)),
        Window((-1, -1), (-1, -1), (2, 2)),
        Window((0, -2), (0, -3), (1, 1)),
    ]
