"""The programs whose documents are edited: small ones of every kind of work, each with the documents of all its stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.document import InputRef, content_sha256
from tatami.core.dtype import DType
from tatami.core.trees import node_table
from tatami.dump import to_document
from tatami.frontend.graph import Graph
from tatami.stages import STAGES
from tests.golden.programs import causal_attention, conv3x3_silu, gemm_bias_relu, row_softmax
from tests.test_documents import branches_loops_calls, constants_and_setup, gather_scan_sort, host_and_state

TARGET = "cpu:avx2"
REFERENCE = "reference"


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
    )
}
SIZES: dict[str, tuple[int, int]] = {"B": (3, 1), "N": (5, 1), "M": (7, 1), "H": (6, 3), "W": (5, 3), "S": (6, 1), "R": (4, 1)}
"""The values of the symbols in the two calls of each accepted document; others are 4, then 2."""


def bound(symbol: str, call: int) -> int:
    return SIZES.get(symbol, (4, 2))[call]


def array(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Dyadic floats and small numbers, valid as indices of the programs here."""
    from tatami.core.tensor import numpy_dtype

    rng = np.random.default_rng(seed)
    if dtype == DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return (rng.integers(-16, 17, shape) / 8).astype(numpy_dtype(dtype))
    return rng.integers(0, 3, shape).astype(numpy_dtype(dtype))


def documents(name: str) -> dict[str, dict[str, Any]]:
    """By stage the whole document, earlier stages that it needs embedded; `reference` is the plan of the unfused graph."""
    out: dict[str, dict[str, Any]] = {}
    first = prepare(PROGRAMS[name](), target=TARGET)
    refs: dict[str, InputRef] = {}
    values = first.values()
    for s in STAGES:
        if s.name not in values or s.code:
            continue
        document = to_document(s.name, values[s.name], first.target, inputs={n: refs[n] for n in s.needs if n in refs})
        plain = msgspec.to_builtins(to_builtins(document))
        refs[s.name] = InputRef(sha256=content_sha256(document), document=plain)
        out[s.name] = plain
    unfused = prepare(PROGRAMS[name](), target=REFERENCE)
    if "execution" in unfused.stages:
        out[REFERENCE] = msgspec.to_builtins(to_builtins(to_document("execution", unfused.stages["execution"], unfused.target)))
    return {stage: json.loads(json.dumps(document)) for stage, document in out.items()}
