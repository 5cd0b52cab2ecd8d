"""The programs whose documents the campaigns change: small ones of every kind of work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers.trees import node_table
from tatami.frontend.graph import Graph
from tests.golden.programs import causal_attention, conv3x3_silu, gemm_bias_relu, row_softmax
from tests.storage.test_documents import branches_loops_calls, constants_and_setup, gather_scan_sort, host_and_state


def products_of_integers() -> Graph:
    """int8 products into int32, scaled to fp32."""
    g = Graph("products_of_integers")
    a, b = g.input("a", ("M", 24), DType.i8), g.input("b", (24, 8), DType.i8, role="param")
    g.output("y", a.matmul(b, acc_dtype=DType.i32).cast(DType.fp32) * 0.125)
    return g


def scattered_rows() -> Graph:
    """Rows added at indices, then normalised."""
    g = Graph("scattered_rows")
    x, i, u = g.input("x", (9, "D"), DType.fp32), g.input("i", (5, 1), DType.i64), g.input("u", (5, "D"), DType.fp32)
    g.output("y", x.scatter_nd(i, u, op="add").tanh())
    return g


def views_of_open_sizes() -> Graph:
    """Slices, pads, joins and turns over symbolic sizes."""
    g = Graph("views_of_open_sizes")
    x, y = g.input("x", ("A", "B"), DType.fp32), g.input("y", (3, "B"), DType.fp32)
    joined = g.concat([x.pad([(1, 2), (0, 0)], value=0.5), y], axis=0)
    g.output("z", joined.transpose(1, 0).exp() - 1.0)
    g.output("m", joined.max(1))
    return g


def wide_products() -> Graph:
    """A product large enough for packed operands."""
    g = Graph("wide_products")
    a, b = g.input("a", ("M", 96), DType.fp32), g.input("b", (96, 64), DType.fp32)
    g.output("y", (a @ b).relu())
    return g


def trees_of_decisions() -> Graph:
    """Two trees over three features."""
    g = Graph("trees_of_decisions")
    x = g.input("x", ("B", 3), DType.fp32)
    splits, features = np.array([0.5, 0, 0, -0.25, 0], np.float32), np.array([0, 0, 1, 0, 0])
    no, yes, rows = np.array([1, 1, 3, 3, 4]), np.array([2, 1, 4, 3, 4]), np.array([-1, 0, -1, 1, 2])
    nodes = node_table(splits, features, np.zeros(5, np.bool_), no, yes, rows)
    roots, targets = np.array([0, 2], np.int32), np.zeros(3, np.int32)
    values = np.array([[1.0], [2.0], [3.0]], np.float32)
    tables = [g.constant(t) for t in (nodes, roots, targets, values)]
    g.output("y", x.op("tree_ensemble", *tables, outputs=1, features=3))
    return g


def custom_formula() -> Graph:
    """A custom kernel that is a formula of what it reads and of where."""
    g = Graph("custom_formula")
    g.output("y", g.kernel("input0 * 2 + ridx1", g.input("x", ("A", "B"), DType.fp32).exp()))
    return g


PROGRAMS: dict[str, Callable[[], Graph | Path]] = {
    f.__name__: f
    for f in (
        gemm_bias_relu,
        wide_products,
        conv3x3_silu,
        causal_attention,
        row_softmax,
        scattered_rows,
        gather_scan_sort,
        branches_loops_calls,
        views_of_open_sizes,
        products_of_integers,
        host_and_state,
        constants_and_setup,
        trees_of_decisions,
        custom_formula,
    )
}
