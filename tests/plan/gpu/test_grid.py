"""Grids stay within what a GPU counts: 2^31 - 1 blocks along x, 65535 along y and z. Long axes lie along x; open ones are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.compilation import Compilation
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.kernel import grid_fault
from tatami.decisions import Decisions
from tatami.execution.arena import Planner
from tatami.execution.frames import Layouts
from tatami.execution.ir import Launch
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gpu.views import folded
from tatami.plan.ir import Async
from tatami.plan.key import plan_key
from tatami.runtime.cuda.steps import KernelStep, Resolver
from tests.cuda.emulated_gpu import emulated_gpu
from tests.cuda.programs import eighths, on_gpu, same_as_reference


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


def plan_of(g: tt.Graph, target: str) -> Any:
    """The first plan of a graph."""
    return prepare(g, target=target).stages["plan"].main.regions[0].choices[0].plan


def changed(g: tt.Graph, target: str, **fields: object) -> Decisions:
    """The first plan of a graph with other fields."""
    free = prepare(g, target=target)
    key = plan_key(free.stages["region"].main.body[0], free.target)
    return Decisions(plans={key: msgspec.structs.replace(plan_of(g, target), **fields)})


def places_of(g: tt.Graph, target: str, m: str, n: str, **more: object) -> Decisions:
    """The first plan of a graph with other places of rows and columns."""
    return changed(g, target, bind={**plan_of(g, target).bind, "m.o": m, "n.o": n}, **more)


def resolver_of(compilation: Compilation) -> Resolver:
    layouts = Layouts(compilation.stages["execution"])
    return Resolver(layouts, Planner(layouts, 1))


@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp16])
def test_open_sizes_fold_the_grid(dtype: tt.DType) -> None:
    compilation = prepare(product(("B", "M", 64), ("B", 64, 48), dtype), target="sm80")
    rows, columns, _ = compilation.stages["plan"].main.regions[0].choices[0].plan.tile
    resolver = resolver_of(compilation)
    for b, m in ((3, 1000), (70000, 64), (1, 9_000_000), (70000, 70000), (2**16, 2**24)):
        (step,) = resolver.resolve("main", {"B": b, "M": m}).steps
        assert isinstance(step, KernelStep)
        tiles = b * -(-m // rows) * -(-48 // columns)
        x, y, z = step.grid
        assert not grid_fault(step.grid) and tiles <= x * y * z < tiles + x


def test_an_open_axis_that_a_plan_puts_beside_x_is_refused_at_the_launch() -> None:
    g = product(("M", 64), (64, 48))
    resolver = resolver_of(prepare(g, target="sm80", decisions=places_of(g, "sm80", "block.y", "block.x")))
    resolver.resolve("main", {"M": 1000})
    with pytest.raises(TatamiError, match="blocks along y, where a GPU counts 65535") as refused:
        resolver.resolve("main", {"M": 9_000_000})
    assert "put all its tiles on block.x" in str(refused.value)


def test_two_axes_share_x_only() -> None:
    g = product((64, 64), (64, 48))
    with pytest.raises(TatamiError, match="two axes on one place"):
        prepare(g, target="sm80", decisions=places_of(g, "sm80", "block.y", "block.y")).stages["gpu"]


def operands(g: tt.Graph, dtype: tt.DType = tt.fp16) -> Tensor:
    return g.input("a", ("B", "M", 72), dtype) @ g.input("b", ("B", 72, 136), dtype)


ON_X = {"m.o": "block.x", "n.o": "block.x"}
"""Places of a folded grid, of the plan of a kernel that was persistent."""
ROWS: dict[str, tuple[str, Callable[[tt.Graph], Tensor], dict[str, object] | None]] = {
    "by tensor cores": ("emulated-sm80", operands, None),
    "parts of k, in groups": ("emulated-sm80", operands, {"split_k": 2, "tile_order": "grouped"}),
    "by ordinary cores": ("emulated-sm80", lambda g: operands(g, tt.fp32), None),
    "by warpgroups": (
        "emulated-sm90",
        operands,
        {"persistent": False, "bind": ON_X, "async_": Async(True, 2, False), "stages": 2},
    ),
    "one after the other": ("emulated-sm80", lambda g: operands(g, tt.fp64), None),
    "sums": ("emulated-sm80", lambda g: g.input("a", ("B", "M", 720), tt.fp32).sum(-1), None),
    "sums of a block": ("emulated-sm80", lambda g: g.input("a", ("B", 4096), tt.fp32).sum(-1), None),
    "sums across": ("emulated-sm80", lambda g: g.input("a", ("B", "M", 72), tt.fp32).sum(1), None),
    "turned": ("emulated-sm80", lambda g: g.input("a", ("B", "M", 72), tt.fp16).transpose(1, 2) * 2.0, None),
    "sorted lines": ("emulated-sm80", lambda g: g.input("a", ("B", 72), tt.fp32).topk(5)[0], None),
    "sorted tiles": ("emulated-sm80", lambda g: g.input("a", ("B", 2500), tt.fp32).topk(5)[0], {"parts": (1024,)}),
}
"""Target, graph and changed fields of the plan (None: a plan by rules) of a kernel whose number of blocks a call says."""


def kernel_of(name: str) -> tuple[tt.Graph, str, Decisions]:
    target, make, changes = ROWS[name]
    g = tt.Graph("g")
    g.output("y", make(g))
    return g, target, Decisions() if changes is None else changed(g, target, **changes)


@pytest.mark.parametrize("name", ROWS)
def test_blocks_in_several_rows_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel that a call with more than 2^31 - 1 blocks takes, with rows of 3 blocks in place of 2^31 - 1."""
    monkeypatch.setattr(folded, "MOST_BLOCKS", 3)
    g, target, decisions = kernel_of(name)
    compilation = prepare(g, target=target, decisions=decisions)
    sizes = {"B": 5, "M": 150}
    grids = [s.grid for s in resolver_of(compilation).resolve("main", sizes).steps if isinstance(s, KernelStep)]
    assert any(x == 3 and y > 1 for x, y, _ in grids)
    rng = np.random.default_rng(0)
    f = build(compilation, 1)
    given = {
        x.tensor: rng.integers(-8, 9, [int(evaluate(s, sizes)) for s in x.shape]).astype(x.dtype.name.replace("fp", "float"))
        / 8
        for x in f.signature.inputs
    }
    same_as_reference(f, g, 2e-2, **given)


@pytest.mark.parametrize("name", ["by tensor cores", "sums"])
def test_a_driver_takes_blocks_in_several_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "MOST_BLOCKS", 3)
    g, _, _ = kernel_of(name)
    with emulated_gpu("sm80") as gpu:
        f = on_gpu(gpu, g)
        a, b = eighths(5, 150, 720 if name == "sums" else 72), eighths(5, 72, 136)
        kind = np.float32 if name == "sums" else np.float16
        same_as_reference(f, g, 2e-2, a=a.astype(kind), **({} if name == "sums" else {"b": b.astype(kind)}))
        assert any(x.grid[0] == 3 and x.grid[1] > 1 for x in gpu.launches)
