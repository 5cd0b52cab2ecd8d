"""Ten programs of every kind of work, in whose documents markers are planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tests.golden.programs import causal_attention, conv3x3_silu, gemm_bias_relu, row_softmax
from tests.test_documents import branches_loops_calls, constants_and_setup, gather_scan_sort, host_and_state


def formulas_and_views() -> Graph:
    """A custom kernel that is a formula, slices, pads and joins of open sizes."""
    g = Graph("formulas_and_views")
    x, y = g.input("x", ("A", "B"), DType.fp32), g.input("y", (3, "B"), DType.fp32)
    joined = g.concat([x.pad([(1, 2), (0, 0)], value=0.5), y], axis=0)
    g.output("z", g.kernel("input0 * 2 + ridx1", joined.exp()))
    return g


def scattered_integers() -> Graph:
    """Rows added at indices, and a product of integers."""
    g = Graph("scattered_integers")
    x, i, u = g.input("x", (9, "D"), DType.fp32), g.input("i", (5, 1), DType.i64), g.input("u", (5, "D"), DType.fp32)
    a, b = g.input("a", ("M", 24), DType.i8), g.input("b", (24, 8), DType.i8, role="param")
    g.output("y", x.scatter_nd(i, u, op="add").tanh())
    g.output("p", a.matmul(b, acc_dtype=DType.i32).cast(DType.fp32) * 0.125)
    return g


PROGRAMS: dict[str, Callable[[], Graph | Path]] = {
    f.__name__: f
    for f in (
        gemm_bias_relu,
        conv3x3_silu,
        causal_attention,
        row_softmax,
        gather_scan_sort,
        branches_loops_calls,
        host_and_state,
        constants_and_setup,
        formulas_and_views,
        scattered_integers,
    )
}
