"""Convolutions by planes against the reference: windows, strides, dilations, groups, blocks, epilogues."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.layout import MemRef
from tatami.core.target import PRESETS
from tatami.loop.ir import Store
from tatami.loop.walk import nodes
from tatami.plan.cpu.contraction import register_tile
from tatami.plan.ir import CpuPlanes
from tatami.plan.realise import realise
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Cast, Param, ReadAt, Ref, Region
from tests.loop.compiled import kernel_of, run_sanitized, sanitizer_program
from tests.loop.images.convolutions import Make, check, convolution, curved, graph, plan_of, sample, weights

CASES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "stem": (convolution(20, 3, 7, padding=3, stride=2), (1, 3, 61, 67)),
    "dilation": (convolution(24, 16, 3, padding=2, dilation=2), (2, 16, 33, 40)),
    "stride 3, dilation 2, uneven borders": (
        convolution(25, 13, (8, 9), padding=((2, 0), (0, 5)), stride=3, dilation=2),
        (1, 13, 70, 65),
    ),
    "stride 2, dilation 2": (convolution(16, 8, 3, padding=2, stride=2, dilation=2), (1, 8, 60, 60)),
    "a window that meets two of three planes": (convolution(24, 8, (2, 9), stride=(3, 1), dilation=(2, 1)), (1, 8, 80, 80)),
    "groups and a batch": (convolution(24, 16, 5, padding=2, groups=2), (2, 16, 24, 30)),
    "one dimension": (convolution(33, 16, (9,), padding=4), (2, 16, 300)),
    "down only": (convolution(24, 24, (3, 1)), (2, 24, 74, 33)),
    "down only, padded": (convolution(48, 48, (5, 1), padding=((2, 1), (0, 0)), dilation=(2, 1)), (2, 48, 40, 33)),
    "across only, short rows": (convolution(72, 72, (1, 3), padding=((0, 0), (1, 1))), (3, 72, 30, 20)),
    "a stride whose planes loops fill": (convolution(40, 6, (19,), padding=((5, 2),), stride=8), (2, 6, 700)),
    "strides whose planes loops fill, both ways": (convolution(24, 8, (7, 13), padding=3, stride=(2, 6)), (1, 8, 60, 200)),
    "functions at the ends of rows": (curved(convolution(24, 16, 5, padding=2)), (2, 16, 21, 27)),
    "across only, stride 2": (convolution(24, 24, (1, 3), stride=(1, 2)), (2, 24, 31, 40)),
}


def residual(g: tt.Graph, x: Any) -> Any:
    """An epilogue that reads along the pixels."""
    return (convolution(16, 16, 5, padding=2)(g, x) + x).tanh()


@pytest.mark.parametrize("name", CASES)
def test_planes_give_the_convolution(name: str) -> None:
    make, shape = CASES[name]
    check(tt.compile(graph(make, shape)), CpuPlanes, make, sample(shape))


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:generic"])
def test_shorter_vectors(target: str) -> None:
    """Plans by planes, whatever the estimates of a target prefer."""
    make, shape = CASES["groups and a batch"]
    (long,), (short,) = (prepare(graph(make, shape), target=t).stages["plan"].main.regions for t in ("cpu:avx512", target))
    mr, nr = register_tile(PRESETS[target], 4)
    mine = msgspec.structs.replace(long.choices[-1].plan, mr=mr, nr=nr, width=PRESETS[target].lanes)
    f = tt.compile(graph(make, shape), target=target, decisions={"plans": {short.key: to_builtins(mine)}})
    check(f, CpuPlanes, make, sample(shape))


@pytest.mark.parametrize("blocks", [(1, 1), (3, 20), (100, 100)])
def test_any_block(blocks: tuple[int, int]) -> None:
    shape = (2, 16, 15, 34)
    _, key, plan = plan_of(tt.compile(graph(residual, shape)), CpuPlanes)
    kc = 7 if blocks[0] == 3 else plan.kc
    mine = msgspec.structs.replace(plan, rows=blocks[0], columns=blocks[1], kc=kc)
    f = tt.compile(graph(residual, shape), decisions={"plans": {key: to_builtins(mine)}})
    check(f, CpuPlanes, residual, sample(shape))
    assert plan_of(f, CpuPlanes)[2] == mine


def test_sizes_known_when_it_runs() -> None:
    make = convolution(24, 8, 5, padding=2, stride=2)
    f = tt.compile(graph(make, ("B", 8, "H", "W")), sizes={"B": (0, 1, 64), "H": (1, 56, 512), "W": (1, 56, 512)})
    plan_of(f, CpuPlanes)
    for b, h, w in ((1, 7, 7), (2, 14, 30), (1, 1, 70), (0, 5, 5)):
        x = sample((b, 8, h, w))
        want = tt.compile(graph(make, x.shape), target="reference")(x=x)["y"]
        np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-5, atol=1e-5)


def test_planes_take_both_dimensions_of_an_image_that_one_slides_along() -> None:
    """Rows of 20 columns follow each other in a plane, and a window that goes down reads rows as they lie."""
    for name in ("down only", "across only, short rows"):
        make, shape = CASES[name]
        _, _, plan = plan_of(tt.compile(graph(make, shape)), CpuPlanes)
        assert plan.rows > 1 and plan.columns == shape[3], name


def test_wide_and_narrow_floats() -> None:
    def wide(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(weights(24, 16, 5, np.float64)), None, padding=2)

    shape = (1, 16, 30, 30)
    check(tt.compile(graph(wide, shape, tt.fp64)), CpuPlanes, wide, sample(shape, np.float64), 1e-14)

    def narrow(g: tt.Graph, x: Any) -> Any:
        return x.conv(g.constant(weights(24, 16, 5, np.float16)), None, padding=2)

    check(tt.compile(graph(narrow, shape, tt.fp16)), CpuPlanes, narrow, sample(shape, np.float16), 1e-3)


def test_what_no_result_sees_does_not_reach_one() -> None:
    """Slivers run over the ends of rows, where another result's part of the image may lie."""
    make, shape = CASES["dilation"]
    x = sample(shape)
    x[:, :, 11, 39] = np.inf
    got = tt.compile(graph(make, shape))(x=x)["y"]
    seen = np.zeros(got.shape[2:], bool)
    seen[9:14:2, 37:40:2] = True
    assert np.isfinite(got[:, :, ~seen]).all() and not np.isfinite(got[:, :, seen]).all()


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    make, shape = CASES["stem"]
    x = sample(shape)
    one, three = (tt.compile(graph(make, shape), threads=t)(x=x)["y"] for t in (1, 3))
    assert np.array_equal(one, three)


@pytest.mark.parametrize(
    "name", ["stem", "one dimension", "down only", "a stride whose planes loops fill", "functions at the ends of rows"]
)
def test_nothing_outside_the_tensors_is_read_or_written(name: str) -> None:
    make, shape = CASES[name]
    f = tt.compile(graph(make, shape), target="cpu:avx2")
    (region,) = realise(f.stages["region"].value, f.stages["plan"].value).module.main.body
    assert isinstance(region, Region)
    _, _, plan = plan_of(f, CpuPlanes)
    plan = msgspec.structs.replace(plan, packed=(f"{plan.packed[0].removesuffix('_p')}_p",))
    finished = run_sanitized(sanitizer_program(region, kernel_of(region, plan, "avx2"), [{}]))
    if finished is None:
        pytest.skip("the compiler has no sanitizers")
    assert finished.returncode == 0, finished.stderr[-2000:]


def test_no_index_is_made_of_what_lies_behind_a_row() -> None:
    """Results that tell where a table is read are whole vectors as long as they are results."""
    make, shape = CASES["functions at the ends of rows"]
    f = tt.compile(graph(make, shape), target="cpu:avx2")
    (region,) = realise(f.stages["region"].value, f.stages["plan"].value).module.main.body
    assert isinstance(region, Region)
    _, _, plan = plan_of(f, CpuPlanes)
    plan = msgspec.structs.replace(plan, packed=(f"{plan.packed[0].removesuffix('_p')}_p",))
    (last,) = (let for let in region.lets if let.name == region.yields[0].source)
    lets = tuple(msgspec.structs.replace(let, name="place") if let is last else let for let in region.lets)
    entry = ReadAt("table", (None,), (Cast(Ref("place"), DType.i64),), "error")
    table = Param("table", MemRef(DType.fp32, (expr(100),)))
    found = msgspec.structs.replace(
        region,
        inputs=(*region.inputs, table),
        lets=(*lets, msgspec.structs.replace(last, expr=entry)),
    )
    for each, has_parts in ((region, True), (found, False)):
        stores = [s for s in nodes(kernel_of(each, plan, "avx2").body) if isinstance(s, Store)]
        assert any(s.active is not None for s in stores) == has_parts


def test_a_wrong_plan_is_refused_with_the_reason() -> None:
    make, shape = CASES["dilation"]
    region, _, plan = plan_of(tt.compile(graph(make, shape)), CpuPlanes)
    target = PRESETS["cpu:avx512"]
    assert verify_plan(plan, region, target) == []
    for change, why in (
        ({"acc": "other"}, "'other' is not the convolution"),
        ({"packed": ()}, "packed none"),
        ({"rows": 0}, "blocks of 0, 40, "),
        ({"width": 32, "nr": 64}, "width 32"),
        ({"mr": 40}, "needs 83 vector registers"),
    ):
        assert why in verify_plan(msgspec.structs.replace(plan, **change), region, target)[0].why
    three = graph(lambda g, x: x.conv(g.constant(weights(8, 8, (3, 3, 3))), None, padding=1), (1, 8, 9, 9, 9))
    solid = tt.compile(three).stages["region"].value.main.body[0]
    assert "a window of 3 x 3 x 3; the template takes 1 or 2" in verify_plan(plan, solid, target)[0].why
