"""3x3 convolutions by Winograd tiles against the reference: borders, uneven sizes, groups, dilation, batches, epilogues, both splits."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.target import PRESETS
from tatami.plan.ir import CpuWinograd
from tatami.plan.realise import realise
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Region
from tests.loop.compiled import kernel_of, run_sanitized, sanitizer_program
from tests.loop.images.convolutions import (
    Make,
    check,
    compiled,
    convolution,
    curved,
    graph,
    plan_of,
    sample,
    weights,
    with_residual,
)

CASES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "even": (convolution(40, 24, padding=1), (1, 24, 14, 14)),
    "uneven": (convolution(33, 17, padding=1), (1, 17, 13, 15)),
    "without borders": (convolution(16, 24), (1, 24, 9, 20)),
    "uneven borders": (convolution(16, 24, padding=((2, 0), (0, 2))), (1, 24, 10, 11)),
    "many channels": (convolution(16, 400, padding=1), (1, 400, 6, 6)),
    "many blocks": (convolution(16, 48, padding=1), (2, 48, 60, 70)),
    "two rows": (convolution(32, 32, padding=1), (1, 32, 2, 64)),
    "groups and a batch": (convolution(48, 32, padding=1, groups=2), (3, 32, 14, 14)),
    "a residual": (with_residual, (2, 24, 15, 17)),
    "functions at the ends of rows": (curved(convolution(40, 24, padding=1)), (2, 24, 13, 15)),
    "functions at the end of an image": (curved(convolution(40, 24, padding=1)), (1, 24, 10, 10)),
    "stride 2": (convolution(40, 24, padding=1, stride=2), (1, 24, 28, 28)),
    "stride 2, uneven": (convolution(33, 17, padding=1, stride=2), (2, 17, 13, 31)),
    "stride 2, uneven borders and groups": (convolution(48, 32, padding=((2, 0), (0, 2)), stride=2, groups=2), (1, 32, 20, 17)),
    "stride 2 by blocks": (convolution(16, 48, padding=1, stride=2), (1, 48, 120, 140)),
    "stride 2 down": (convolution(24, 16, padding=1, stride=(2, 1)), (1, 16, 15, 14)),
    "stride 2 across": (convolution(24, 16, padding=1, stride=(1, 2)), (1, 16, 15, 14)),
    "dilated down": (convolution(33, 17, padding=1, dilation=(2, 1)), (2, 17, 15, 32)),
    "dilated across, without borders": (convolution(33, 17, dilation=(1, 3)), (1, 17, 9, 31)),
    "dilated, groups": (convolution(48, 32, padding=2, dilation=2, groups=2), (2, 32, 13, 15)),
    "dilated further than the image": (convolution(24, 16, padding=6, dilation=6), (1, 16, 4, 3)),
    "dilated by blocks": (convolution(16, 48, padding=((1, 2), (1, 2)), dilation=(2, 2)), (1, 48, 60, 70)),
    "dilated down, stride 2 across": (convolution(24, 16, padding=1, dilation=(2, 1), stride=(1, 2)), (1, 16, 15, 14)),
    "dilated, functions at the ends of rows": (curved(convolution(40, 24, padding=2, dilation=(2, 1))), (2, 24, 13, 15)),
}


@pytest.mark.parametrize("name", CASES)
def test_tiles_give_the_convolution(name: str) -> None:
    make, shape = CASES[name]
    check(compiled(make, shape, CpuWinograd), CpuWinograd, make, sample(shape))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("uneven", "cpu:avx2"),
        ("uneven", "cpu:generic"),
        ("groups and a batch", "cpu:avx2"),
        ("groups and a batch", "cpu:generic"),
        ("stride 2, uneven", "cpu:avx2"),
        ("dilated, groups", "cpu:avx2"),
        ("dilated, groups", "cpu:generic"),
    ],
)
def test_shorter_vectors(name: str, target: str) -> None:
    make, shape = CASES[name]
    check(compiled(make, shape, CpuWinograd, target=target), CpuWinograd, make, sample(shape))


@pytest.mark.parametrize("split", ["tiles", "channels"])
@pytest.mark.parametrize("blocks", [(1, 1), (2, 3), (100, 100)])
@pytest.mark.parametrize("name", ["uneven", "stride 2, uneven", "dilated, groups"])
def test_any_block_and_either_split(name: str, split: str, blocks: tuple[int, int]) -> None:
    make, shape = CASES[name]
    _, key, plan = plan_of(compiled(make, shape, CpuWinograd), CpuWinograd)
    mr, nr = (8, plan.width) if blocks[0] == 100 else (plan.mr, plan.nr)
    mine = msgspec.structs.replace(plan, rows=blocks[0], columns=blocks[1], split=split, mr=mr, nr=nr)
    f = tt.compile(graph(make, shape), decisions={"plans": {key: to_builtins(mine)}})
    check(f, CpuWinograd, make, sample(shape))
    assert plan_of(f, CpuWinograd)[2] == mine


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, (2, 1)), (1, 3)])
def test_sizes_known_when_it_runs(stride: int, dilation: Any) -> None:
    make = convolution(24, 16, padding=int(np.max(dilation)), stride=stride, dilation=dilation)
    ranges = {"B": (0, 1, 64), "H": (1, 28, 512), "W": (1, 28, 512)}
    f = compiled(make, ("B", 16, "H", "W"), CpuWinograd, sizes=ranges)
    for b, h, w in ((1, 7, 7), (2, 14, 30), (1, 1, 70), (0, 5, 5)):
        x = sample((b, 16, h, w))
        want = tt.compile(graph(make, x.shape), target="reference")(x=x)["y"]
        plan_of(f, CpuWinograd)
        np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [("B", 64, "H", "W"), (1, 64, "H", 40)], ids=["both sides open", "rows open"])
def test_blocks_of_an_open_image_are_not_those_of_the_usual_one(shape: tuple[Any, ...]) -> None:
    """A block of 4x4 results would be four tiles, each of which reads all weights again."""
    make = convolution(64, 64, padding=1)
    found = []
    for usual in (4, 300):
        sizes = {n: (1, usual, 512) for n in shape if isinstance(n, str)}
        found.append(plan_of(compiled(make, shape, CpuWinograd, sizes=sizes), CpuWinograd)[2])
    small, large = found
    assert (small.rows, small.columns) == (large.rows, large.columns)
    assert small.rows * small.columns >= 4 * small.mr


def test_wide_and_narrow_floats() -> None:
    def make(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(weights(24, 16, dtype=np.float64)), None, padding=1)

    f = compiled(make, (1, 16, 12, 12), CpuWinograd, tt.fp64)
    check(f, CpuWinograd, make, sample((1, 16, 12, 12), np.float64), 1e-14)
    region, _, plan = plan_of(f, CpuWinograd)
    halved = msgspec.structs.replace(plan, width=4)
    assert "vectors of 2 elements" in verify_plan(halved, region, PRESETS["cpu:avx512"])[0].why

    def narrow(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(weights(24, 16, dtype=np.float16)), None, padding=1)

    check(
        compiled(narrow, (1, 16, 12, 12), CpuWinograd, tt.fp16), CpuWinograd, narrow, sample((1, 16, 12, 12), np.float16), 1e-3
    )


def test_an_image_is_rounded_before_it_is_transformed() -> None:
    """Every channel is 1 in fp16, so that those of weight 1 and -1 cancel."""
    signs = np.ones((32, 32, 3, 3), np.float16)
    signs[:, ::2] = -1
    x = np.ones((1, 32, 14, 14), np.float32)
    x[:, 1::2] += 2.0**-12
    f = compiled(lambda g, x: x.cast(tt.fp16).conv(g.constant(signs), None, padding=1), x.shape, CpuWinograd)
    plan_of(f, CpuWinograd)
    assert not f(x=x)["y"].any()


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_the_error_is_within_its_bound(shift: float, stride: int, dilation: int) -> None:
    """A result differs by at most 2^-22 of the largest sum of magnitudes of the image (decision 0018): the
    bound holds where these cancel too."""
    channels, filters = 64, 32
    window = {"padding": dilation, "stride": stride, "dilation": dilation}
    make = convolution(filters, channels, **window)

    def magnitudes(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(np.abs(weights(filters, channels))), None, **window)

    shape = (1, channels, 24, 24)
    x = sample(shape) + np.float32(shift)
    f = compiled(make, shape, CpuWinograd)
    plan_of(f, CpuWinograd)
    want = tt.compile(graph(make, shape), target="reference")(x=x)["y"]
    seen = tt.compile(graph(magnitudes, shape), target="reference")(x=np.abs(x))["y"]
    assert (np.abs(f(x=x)["y"] - want) / seen.max()).max() <= 2.0**-22


def test_a_value_that_is_no_number_stays_in_its_tiles() -> None:
    _make, shape = CASES["even"]
    x = sample(shape)
    x[0, 3, 6, 6] = np.nan
    got = compiled(lambda g, x: x.conv(g.constant(weights(40, 24)), None, padding=1), shape, CpuWinograd)(x=x)["y"]
    assert np.isnan(got[0, :, 5:8, 5:8]).all()
    assert np.isfinite(got[0, :, :4, :]).all() and np.isfinite(got[0, :, :, 8:]).all()


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    make, shape = CASES["many blocks"]
    x = sample(shape)
    one, three = (compiled(make, shape, CpuWinograd, threads=t)(x=x)["y"] for t in (1, 3))
    assert np.array_equal(one, three)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("without borders", "tiles"),
        ("groups and a batch", "channels"),
        ("stride 2, uneven", "tiles"),
        ("functions at the ends of rows", "tiles"),
        ("functions at the end of an image", "channels"),
        ("dilated across, without borders", "tiles"),
        ("dilated further than the image", "channels"),
        ("dilated by blocks", "tiles"),
    ],
)
def test_nothing_outside_the_tensors_is_read_or_written(name: str, split: str) -> None:
    make, shape = CASES[name]
    f = compiled(make, shape, CpuWinograd, target="cpu:avx2")
    (region,) = realise(f.stages["region"].value, f.stages["plan"].value).module.main.body
    assert isinstance(region, Region)
    _, _, plan = plan_of(f, CpuWinograd)
    plan = msgspec.structs.replace(plan, split=split, packed=(f"{plan.packed[0].removesuffix('_p')}_p",))
    finished = run_sanitized(sanitizer_program(region, kernel_of(region, plan, "avx2"), [{}]))
    if finished is None:
        pytest.skip("the compiler has no sanitizers")
    assert finished.returncode == 0, finished.stderr[-2000:]


def test_other_convolutions_say_why_not() -> None:
    def why(make: Make, shape: tuple[int, ...]) -> str:
        (chosen,) = tt.compile(graph(make, shape)).stages["plan"].value.main.regions
        return next(r.why for r in chosen.rejected if r.plan == "cpu_winograd")

    assert "stride 3, dilation 1" in why(convolution(32, 32, padding=1, stride=3), (1, 32, 28, 28))
    assert "stride 2, dilation 2" in why(convolution(32, 32, padding=2, dilation=2, stride=2), (1, 32, 28, 28))

    def five(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(weights(32, 32, 5)), None, padding=2)

    assert "5 x 5" in why(five, (1, 32, 28, 28))

    def given(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.input("w", (32, 32, 3, 3), tt.fp32), None, padding=1)

    assert "not a constant" in why(given, (1, 32, 28, 28))


def test_a_wrong_plan_is_refused_with_the_reason() -> None:
    make, shape = CASES["even"]
    region, _, plan = plan_of(compiled(make, shape, CpuWinograd), CpuWinograd)
    target = PRESETS["cpu:avx512"]
    assert verify_plan(plan, region, target) == []
    for change in ({"acc": "other"}, {"packed": ()}, {"rows": 0}, {"width": 12}, {"width": 32, "nr": 64}, {"mr": 40}):
        assert verify_plan(msgspec.structs.replace(plan, **change), region, target), change
    strided = tt.compile(graph(convolution(32, 32, padding=1, stride=3), (1, 32, 28, 28))).stages["region"].value.main.body[0]
    assert "no 3x3 convolution" in verify_plan(plan, strided, target)[0].why
