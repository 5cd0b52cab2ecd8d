"""Convolutions of open sizes by programs that know none of them: images one at a time, weights packed in panels, blocks cut
from the rows that there are. Every size against the reference."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.loop.verify import verify as verify_loops
from tatami.plan.ir import CpuContraction, CpuPlanes, CpuWinograd, SchedulePlan
from tatami.plan.verify_plan import verify_plan
from tests.loop.images.convolutions import Make, convolution, graph, sample

Shape = tuple[int | str, ...]


CASES: dict[str, tuple[Make, Shape, type[SchedulePlan], list[tuple[int, ...]]]] = {
    "packed columns": (convolution(64, 96, 1), ("B", 96, 14, 14), CpuContraction, [(1, 96, 14, 14), (5, 96, 14, 14)]),
    "in place": (
        convolution(48, 96, 1),
        ("B", 96, 40, 40),
        CpuContraction,
        [(1, 96, 40, 40), (3, 96, 40, 40), (0, 96, 40, 40)],
    ),
    "copied bands": (convolution(160, 32, 1), ("B", 32, 30, 30), CpuContraction, [(1, 32, 30, 30), (4, 32, 30, 30)]),
    "all open": (
        convolution(160, 64, 1),
        ("B", 64, "H", "W"),
        CpuContraction,
        [(1, 64, 7, 7), (2, 64, 33, 5), (1, 64, 1, 1)],
    ),
    "filters without panels": (convolution(97, 64, 1), ("B", 64, "H", "W"), CpuContraction, [(1, 64, 9, 9), (3, 64, 17, 19)]),
    "a small image": (convolution(64, 64, 2), ("B", 64, 3, 3), CpuContraction, [(1, 64, 3, 3), (9, 64, 3, 3)]),
    "tiles": (
        convolution(48, 64, padding=1),
        ("B", 64, "H", "W"),
        CpuWinograd,
        [(1, 64, 14, 14), (1, 64, 3, 150), (2, 64, 150, 3), (1, 64, 1, 1)],
    ),
    "planes": (
        convolution(32, 3, 7, padding=3, stride=2),
        ("B", 3, "H", "W"),
        CpuPlanes,
        [(1, 3, 64, 64), (1, 3, 9, 300), (2, 3, 301, 8), (1, 3, 1, 1)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_size_gives_the_convolution(name: str) -> None:
    make, shape, kind, sizes = CASES[name]
    f = tt.compile(graph(make, shape), target="cpu", threads=2)
    (chosen,) = f.stages["plan"].value.main.regions
    if f.compilation.target.isa == "avx512":
        assert isinstance(chosen.choices[-1].plan, kind)
    assert verify_loops(f.stages["loop"].value) == []
    wanted = tt.compile(graph(make, shape), target="reference")
    for size in sizes:
        x = sample(size)
        np.testing.assert_allclose(f(x=x)["y"], wanted(x=x)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize("name", ["in place", "all open", "tiles", "planes"])
def test_shorter_vectors(name: str, target: str) -> None:
    make, shape, _, sizes = CASES[name]
    f = tt.compile(graph(make, shape), target=target)
    wanted = tt.compile(graph(make, shape), target="reference")
    for size in sizes[:2]:
        x = sample(size)
        np.testing.assert_allclose(f(x=x)["y"], wanted(x=x)["y"], rtol=1e-4, atol=1e-5)


def planned(name: str) -> tuple[Any, Any, CpuContraction]:
    make, shape, _, _ = CASES[name]
    f = tt.compile(graph(make, shape), target="cpu:avx512")
    (region,), (chosen,) = f.stages["region"].value.main.body, f.stages["plan"].value.main.regions
    plan = chosen.choices[-1].plan
    assert isinstance(plan, CpuContraction)
    return f, region, plan


@pytest.mark.runs_on("cpu:avx512")
def test_one_image_at_a_time_and_weights_once() -> None:
    _, _, columns = planned("packed columns")
    assert (columns.split, bool(columns.packed), columns.swap) == ("batch", True, False)
    _, _, lying = planned("in place")
    assert (lying.split, lying.in_place, lying.swap) == ("n", ("n",), True)
    assert all(p.images for p in (columns, lying))
    _, _, panels = planned("all open")
    assert (panels.mr, 160 % panels.mr, bool(panels.packed)) == (10, 0, True)


@pytest.mark.runs_on("cpu:avx512")
def test_images_are_axes_of_one_side() -> None:
    f, region, plan = planned("in place")
    target = f.compilation.target
    assert verify_plan(plan, region, target) == []
    wrong = [("nothing",), (*plan.images, region.iters[1].name)]
    for images in wrong:
        (found, *_) = verify_plan(msgspec.structs.replace(plan, images=images), region, target)
        assert found.kind == "InvalidPlan"
    (found, *_) = verify_plan(msgspec.structs.replace(plan, split="m"), region, target)
    assert found.kind == "InvalidPlan"
