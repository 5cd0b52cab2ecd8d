"""Lines that the next row reads and this row writes are prefetched in the loop that computes most."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import minimum, var
from tatami.loop.ir import Declare, For, IndexOf, Kernel, Op, Parallel, Prefetch
from tatami.region.ir import Ref, Region
from tatami.region.run import run_region
from tests.loop.compiled import WIDEST, kernel_of, run_kernel
from tests.loop.zoo import b, let, red, region, tensor, u, x01


def softmax(*shape: Any) -> Region:
    """A softmax of two axes, the last in lanes."""
    return region(
        dict(zip(("i0", "i1"), shape)),
        {},
        {"x": tensor(*shape)},
        {"y": tensor(*shape)},
        [
            let("m", "i0", red("max", "i1", x01)),
            let("e", "i0 i1", u("exp", b("sub", x01, Ref("m")))),
            let("s", "i0", red("sum", "i1", Ref("e"))),
            let("y", "i0 i1", b("div", Ref("e"), Ref("s"))),
        ],
    )


def found(value: Any, kind: type) -> list[Any]:
    if isinstance(value, tuple):
        return [n for v in value for n in found(v, kind)]
    if not isinstance(value, msgspec.Struct):
        return []
    inside = [n for f in value.__struct_fields__ for n in found(getattr(value, f), kind)]
    return [value, *inside] if isinstance(value, kind) else inside


def asking_loops(kernel: Kernel) -> list[For]:
    (rows,) = [s for s in kernel.body if isinstance(s, Parallel)]
    return [s for s in rows.body if isinstance(s, For) and found(s.body, Prefetch)]


def test_the_loop_with_exp_asks_for_lines_of_the_next_row_and_of_the_result() -> None:
    r = softmax(5, 1001)
    kernel = kernel_of(r)
    (loop,) = asking_loops(kernel)
    assert "exp" in {op.fn for op in found(loop.body, Op)}
    asked = {p.buffer: p for p in found(loop.body, Prefetch)}
    assert {name: p.write for name, p in asked.items()} == {"p0": False, "p1": True}
    (rows,) = [s for s in kernel.body if isinstance(s, Parallel)]
    assert asked["p1"].index == var(rows.var) * 1001 + var(loop.var)
    (following,) = free_vars(asked["p0"].index) - {loop.var}
    (declared,) = [s for s in rows.body if isinstance(s, Declare) and s.reg.name == following]
    assert declared.value == IndexOf(minimum(4, var(rows.var) + 1), DType.i64)
    x = np.random.default_rng(0).standard_normal((5, 1001)).astype(np.float32)
    fault, got = run_kernel(r, {"x": x}, {}, width=WIDEST)
    assert fault == 0
    np.testing.assert_allclose(got["y"], run_region(r, {"x": x}, {})["y"], rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 100), (1, 1001), (5, 1 << 17)])
def test_rows_within_a_page_a_single_row_and_rows_beyond_the_caches_are_left_alone(shape: tuple[int, int]) -> None:
    assert not asking_loops(kernel_of(softmax(*shape)))
