"""Grids stay within what a GPU counts: 65535 blocks along y and z. Long axes lie along x, or the launch is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.compilation import Compilation
from tatami.core.diagnostic import TatamiError
from tatami.core.kernel import grid_fault
from tatami.decisions import Decisions
from tatami.execution.arena import Planner
from tatami.execution.frames import Layouts
from tatami.execution.ir import Launch
from tatami.plan.key import plan_key
from tatami.runtime.cuda.steps import Resolver


def product(a: tuple[int | str, ...], b: tuple[int | str, ...], dtype: tt.DType = tt.fp32) -> tt.Graph:
    g = tt.Graph("g")
    g.output("y", g.input("a", a, dtype) @ g.input("b", b, dtype))
    return g


def grids(compilation: Compilation) -> list[tuple[int, ...]]:
    launches = [ins.op for ins in compilation.stages["execution"].main.instructions if isinstance(ins.op, Launch)]
    return [tuple(g.as_int() or 0 for g in launch.grid) for launch in launches]


LONG = [((70000, 40, 64), (70000, 64, 40)), ((9_000_000, 64), (64, 48)), ((64, 64), (64, 9_000_000))]


@pytest.mark.parametrize("target", ["sm80", "sm90", "h100"])
@pytest.mark.parametrize(("a", "b"), LONG)
@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp16])
def test_the_longest_axis_lies_along_x(target: str, a: tuple[int, ...], b: tuple[int, ...], dtype: tt.DType) -> None:
    found = grids(prepare(product(a, b, dtype), target=target))
    assert found and not any(map(grid_fault, found))


@pytest.mark.parametrize(
    ("target", "kind"), [("emulated-sm80", tt.fp16), ("emulated-sm80", tt.fp32), ("emulated-sm90", tt.fp16)]
)
@pytest.mark.parametrize("bind", [("y", "z"), ("x", "y"), ("z", "x")])
def test_batches_rows_and_columns_change_places(target: str, kind: tt.DType, bind: tuple[str, str]) -> None:
    g = product((3, 150, 64), (3, 64, 136), kind)
    free = prepare(g, target=target)
    region, plan = free.stages["region"].main.body[0], free.stages["plan"].main.regions[0].choices[0].plan
    places = {**plan.bind, "m.o": f"block.{bind[0]}", "n.o": f"block.{bind[1]}"}
    changes: dict[str, object] = {"bind": places, "tile_order": "row"}
    if target == "emulated-sm90":
        changes |= {"persistent": False, "async_": msgspec.structs.replace(plan.async_, epilogue_overlap=False)}
    decisions = Decisions(plans={plan_key(region, free.target): msgspec.structs.replace(plan, **changes)})
    f = build(prepare(g, target=target, decisions=decisions), 1)
    rng = np.random.default_rng(0)
    kinds = np.float16 if kind == tt.fp16 else np.float32
    a, b = rng.standard_normal((3, 150, 64)).astype(kinds), rng.standard_normal((3, 64, 136)).astype(kinds)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(f(a=a, b=b)["y"].astype(np.float64) - want).max() < (2e-2 if kind == tt.fp16 else 1e-3)


def test_a_plan_with_too_many_rows_beside_x_is_refused() -> None:
    g = product((9_000_000, 64), (64, 48))
    free = prepare(g, target="sm80")
    region, plan = free.stages["region"].main.body[0], free.stages["plan"].main.regions[0].choices[0].plan
    long = msgspec.structs.replace(plan, bind={**plan.bind, "m.o": "block.y", "n.o": "block.x"})
    decisions = Decisions(plans={plan_key(region, free.target): long})
    with pytest.raises(TatamiError, match=r"rows of tiles on block\.y, which counts 65535"):
        prepare(g, target="sm80", decisions=decisions).stages["plan"]


def test_open_sizes_that_become_too_long_are_refused_at_the_launch() -> None:
    layouts = Layouts(prepare(product(("M", 64), (64, 48)), target="sm80").stages["execution"])
    resolver = Resolver(layouts, Planner(layouts, 1))
    resolver.resolve("main", {"M": 1000})
    with pytest.raises(TatamiError, match="blocks along y, where a GPU counts 65535"):
        resolver.resolve("main", {"M": 9_000_000})
