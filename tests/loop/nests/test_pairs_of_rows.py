"""Results of two rows of sums that take turns in memory: transposed convolutions whose windows do not overlap."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.loop import ir
from tatami.loop.verify import verify as verify_loops
from tatami.loop.walk import nodes
from tatami.plan.ir import CpuContraction
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Region
from tests.loop.compiled import has_flags

NUMPY = {tt.fp32: np.float32, tt.fp64: np.float64, tt.fp16: np.float16}


def compiled(target: str, dtype: Any, size: tuple[int, int], filters: int = 6, channels: int = 9, window: int = 2) -> Any:
    """relu(transposed convolution + bias + residual), window and stride alike; and the residual's negative."""
    h, w = (n * window for n in size)
    g = tt.Graph("up")
    x = g.input("x", (1, channels, *size), dtype)
    weight, bias = g.input("w", (channels, filters, window, window), dtype), g.input("b", (filters,), dtype)
    more = g.input("r", (1, filters, h, w), dtype)
    y = x.conv_transpose(weight, stride=window) + bias.reshape((1, filters, 1, 1)).expand((1, filters, h, w))
    g.output("y", (y + more).relu())
    return tt.compile(g, target=target)


def arrays(f: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        p.tensor: (rng.integers(-8, 9, [s.as_int() for s in p.shape]) / 8).astype(NUMPY[p.dtype]) for p in f.signature.inputs
    }


def wanted(x: np.ndarray, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    y = np.einsum("nchw,cfij->nfhiwj", x.astype(np.float64), w.astype(np.float64)).reshape(r.shape)
    return np.maximum(y + b.astype(np.float64)[:, None, None] + r, 0)


def zips(f: Any) -> int:
    kernels = [k for program in f.stages["loop"].value.programs.values() for k in program.kernels.values()]
    return sum(isinstance(x, ir.Zip) for k in kernels for x in nodes(k.body))


@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp64, tt.fp16], ids=str)
@pytest.mark.parametrize("size", [(5, 16), (3, 7), (4, 33), (1, 1), (8, 24)])
@pytest.mark.parametrize("target", ["cpu:generic", "cpu:avx2"])
def test_rows_between_rows_agree_with_float64(target: str, size: tuple[int, int], dtype: Any) -> None:
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(f"this machine has no {target}")
    f = compiled(target, dtype, size)
    assert verify_loops(f.stages["loop"].value) == []
    x = arrays(f)
    np.testing.assert_allclose(f(**x)["y"], wanted(**x), rtol=2e-3 if dtype == tt.fp16 else 1e-6, atol=1e-6)


def test_vectors_of_two_rows_are_zipped_where_results_take_turns() -> None:
    assert zips(compiled("cpu:avx2", tt.fp32, (16, 32), 16, 32)) == 2
    assert zips(compiled("cpu:avx2", tt.fp32, (16, 32), 16, 32, window=3)) == 0


def test_columns_of_such_results_are_not_copied_together() -> None:
    """A plan that sets `nc` is refused, since it bounds nothing there."""
    f = compiled("cpu:avx2", tt.fp32, (16, 32), 16, 32)
    (region,) = (r for r in f.stages["region"].value.main.body if isinstance(r, Region) and r.name == "r0")
    plan = f.stages["plan"].value.main.regions[-1].choices[-1].plan
    assert isinstance(plan, CpuContraction)
    copied = msgspec.structs.replace(plan, in_place=(), packed=())
    assert verify_plan(copied, region, f.compilation.target) == []
    (fault,) = verify_plan(msgspec.structs.replace(copied, nc=4 * plan.nr), region, f.compilation.target)
    assert fault.kind == "InvalidPlan" and "nc 64 bounds nothing" in fault.why


def test_halves_of_different_types_are_named() -> None:
    x, y = ir.Reg("a", DType.fp32, 8), ir.Reg("b", DType.fp32, 4)
    with pytest.raises(ValueError, match="in turns with"):
        ir.type_of(ir.Zip(x, y, False))
