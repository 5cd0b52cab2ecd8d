"""Maps that turn what they read: transposes of every size and type, fused with what follows, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.loop.verify import verify as verify_loops
from tatami.plan.ir import CpuTurn
from tatami.plan.verify_plan import verify_plan

TARGETS = ("cpu", "cpu:avx2", "cpu:generic")
RANGE = (0, 128, 4096)


def plan_of(f: Any) -> Any:
    (region,) = f.stages["plan"].value.main.regions
    return region.choices[-1].plan


def check(f: Any, x: dict[str, np.ndarray], wanted: np.ndarray) -> None:
    assert isinstance(plan_of(f), CpuTurn)
    assert verify_loops(f.stages["loop"].value) == []
    assert np.array_equal(f(x)["y"], wanted)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("tensor", "array"), [(tt.fp32, np.float32), (tt.fp64, np.float64), (tt.i32, np.int32), (tt.i64, np.int64)]
)
def test_a_transpose_of_any_size(tensor: Any, array: Any, target: str) -> None:
    if target == "cpu:generic" and tensor in (tt.fp64, tt.i64):
        pytest.skip("two lanes are not exchanged")
    g = tt.Graph("t")
    g.output("y", g.input("x", ("M", "N"), tensor).permute((1, 0)))
    f = tt.compile(g, target=target, sizes={"M": RANGE, "N": RANGE})
    for rows, columns in [(0, 5), (1, 1), (7, 300), (16, 64), (130, 67), (64, 15)]:
        x = numbers(rows, columns, dtype=array)
        check(f, {"x": x}, x.T)


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_is_computed_as_it_is_written(target: str) -> None:
    """Two operands turned, one that lies as the result does, one that is a row."""
    g = tt.Graph("t")
    x, y = (g.input(n, (3, 70, 130), tt.fp32) for n in ("a", "b"))
    z, row = g.input("z", (3, 130, 70), tt.fp32), g.input("row", (70,), tt.fp32)
    g.output("y", (x.permute((0, 2, 1)) * 2.0 + y.permute((0, 2, 1))) * z + row.expand((3, 130, 70)))
    arrays = {"a": numbers(3, 70, 130) % 7, "b": numbers(3, 70, 130) % 5, "z": numbers(3, 130, 70) % 3, "row": numbers(70)}
    wanted = (arrays["a"] * 2 + arrays["b"]).transpose(0, 2, 1) * arrays["z"] + arrays["row"]
    check(tt.compile(g, target=target), arrays, wanted)


def test_a_turned_cast_and_another_order_of_many_axes() -> None:
    g = tt.Graph("t")
    g.output("y", g.input("x", (2, 40, 3, 50), tt.fp32).permute((3, 0, 2, 1)).cast(tt.i32))
    x = numbers(2, 40, 3, 50)
    check(tt.compile(g), {"x": x}, x.transpose(3, 0, 2, 1).astype(np.int32))


def test_few_columns_and_guarded_reads_are_not_turned() -> None:
    g = tt.Graph("t")
    g.output("y", g.input("x", (1000, 3), tt.fp32).permute((1, 0)))
    assert not isinstance(plan_of(tt.compile(g)), CpuTurn)
    g = tt.Graph("t")
    g.output("y", g.input("x", (64, 64), tt.fp32).pad(((1, 1), (0, 0))).permute((1, 0)))
    f = tt.compile(g)
    assert not isinstance(plan_of(f), CpuTurn)
    x = numbers(64, 64)
    assert np.array_equal(f(x=x)["y"], np.pad(x, ((1, 1), (0, 0))).T)


def test_a_wrong_plan_is_refused_with_the_reason() -> None:
    g = tt.Graph("t")
    g.output("y", g.input("x", (100, 100), tt.fp32).permute((1, 0)))
    f = tt.compile(g)
    (region,) = f.stages["region"].value.main.body
    plan, good = plan_of(f), PRESETS["cpu:avx512"]
    assert verify_plan(CpuTurn(plan.along, plan.across, 64, 16), region, good) == []
    for wrong in (
        CpuTurn(plan.across, plan.along, 64, 16),
        CpuTurn(plan.along, plan.across, 0, 16),
        CpuTurn(plan.along, plan.across, 64, 12),
        CpuTurn(plan.along, plan.across, 64, 32),
    ):
        assert verify_plan(wrong, region, good)
    assert verify_plan(plan, region, PRESETS["sm80"])[0].kind == "InvalidPlan"


def test_what_does_not_move_along_the_writes_is_not_turned() -> None:
    """A number for each line, in addition to reads that are contiguous as the writes are."""
    g = tt.Graph("lines")
    x, w = g.input("x", (6, 64, 80), tt.fp32), g.input("w", (64, 1), tt.fp32)
    g.output("y", x * w.expand((6, 64, 80)))
    f = tt.compile(g)
    assert not isinstance(plan_of(f), CpuTurn)
    given = {"x": numbers(6, 64, 80), "w": numbers(64, 1)}
    assert np.array_equal(f(given)["y"], given["x"] * given["w"])
