"""Operands that walk down through memory along the sum, as the mirrored window of a convolution's input gradient: they are
transposed in registers like those that walk up, and also where a piece of the sum is shorter than a vector."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.layout import MemRef
from tatami.core.target import PRESETS
from tatami.loop import ir as loop
from tatami.region.ir import Iter, Let, Param, Read, Region, Yield
from tatami.region.ir import Target as Output
from tatami.runtime.machine.host import runs_here
from tests.loop.products.contraction_harness import assert_close, e, kernel_of, plan, product, run
from tests.loop.products.test_whole_vectors import calls

RNG = np.random.default_rng(11)
OUTER = 5


def windowed(rows: str | int, taps: str | int, is_mirrored: bool, dtype: DType = DType.fp32) -> Region:
    """y[m, n] = sum over o, t of a[o, m, t] * b[o, t, n]; mirrored: a[o, m, taps - 1 - t]."""
    tap = f"{taps} - 1 - t" if is_mirrored else "t"
    lhs, rhs = Read("a", e("o", "m", tap)), Read("b", e("o", "t", "n"))
    return Region(
        "r0",
        (Iter("m", expr(rows)), Iter("n", expr(24))),
        (Iter("o", expr(OUTER)), Iter("t", expr(taps))),
        (Param("a", MemRef(dtype, e(OUTER, rows, taps))), Param("b", MemRef(dtype, e(OUTER, taps, 24)))),
        (Output("y", MemRef(dtype, e(rows, 24))),),
        (Let("acc", ("m", "n"), dtype, product(lhs, rhs, ("o", "t"), dtype)),),
        (Yield("acc", "y"),),
    )


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("dtype", [DType.fp32, DType.fp64])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "generic"])
def test_any_number_of_taps_agrees_with_numpy(is_mirrored: bool, dtype: DType, isa: str) -> None:
    """One tap to more than two vectors, and any part of a tile; blocks of the sum begin and end within a window."""
    target = PRESETS[f"cpu:{isa}"]
    if not runs_here(target):
        pytest.skip(f"no {isa} here")
    region = windowed("M", "T", is_mirrored, dtype)
    kind = np.float32 if dtype == DType.fp32 else np.float64
    for rows in (1, 7, 12, 16, 17, 47, 64):
        for taps in (*range(1, 19), 25, 33, 49):
            a = RNG.standard_normal((OUTER, rows, taps)).astype(kind)
            b = RNG.standard_normal((OUTER, taps, 24)).astype(kind)
            sizes = {"M": rows, "T": taps}
            got = run(region, plan(region, swap=rows % 2 == 1, isa=isa), {"a": a, "b": b}, sizes, target=target)["y"]
            walked = a[..., ::-1] if is_mirrored else a
            assert_close(got, np.einsum("omt,otn->mn", walked.astype(np.float64), b.astype(np.float64)))


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_what_lies_along_the_sum_is_transposed_in_registers(is_mirrored: bool) -> None:
    """A mirrored operand is written from its last line to its first: by a negative pitch."""
    region = windowed(64, 9, is_mirrored)
    kernel, _ = kernel_of(region, plan(region))
    packs = [call for call in calls(kernel.body) if "_pack_" in call.function]
    assert packs
    for call in packs:
        pitch = call.args[3]
        assert isinstance(pitch, loop.Integer)
        assert str(pitch.value).startswith("-") == is_mirrored
