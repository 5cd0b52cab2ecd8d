"""Rows of codes that a product reads too: looked up in the product's form, whatever the codes and their order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tatami as tt
from tatami.core.numbers.derived import DerivedTensor
from tatami.frontend.graph import Graph
from tatami.frontend.rewrites.dequantised import multiply_integers
from tatami.targets import resolve_target

ROWS, DEPTH, BLOCK = 40, 64, 32
RNG = np.random.default_rng(8)
INDEX = np.array([[0, 39, -1], [7, 7, 20]])
KINDS = {"int8": np.int8, "uint8": np.uint8, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}


def codes_of(kind: str) -> np.ndarray:
    limits = ml_dtypes.iinfo(KINDS[kind])
    return RNG.integers(int(limits.min), int(limits.max) + 1, (ROWS, DEPTH)).astype(np.int16).astype(KINDS[kind])


def tied(codes: np.ndarray, *, is_turned: bool, also: bool = False) -> Graph:
    """Rows of codes by index, and a product with the dequantised matrix [ROWS, DEPTH]; `also`: the codes are an output too."""
    g = Graph("tied")
    scales = RNG.uniform(0.5, 1.5, (ROWS, DEPTH // BLOCK)).astype(np.float32)
    table = g.constant(codes.T.copy() if is_turned else codes, "codes")
    scale = g.constant(scales.T.copy() if is_turned else scales, "scales")
    index = g.input("index", ("B", 3), tt.i64)
    rows = table.take(index, 1 if is_turned else 0)
    g.output("rows", rows.cast(tt.fp32))
    weight = table.dequantize(scale, axis=0 if is_turned else 1, block=BLOCK)
    g.output("y", g.input("x", ("N", DEPTH), tt.fp32) @ (weight if is_turned else weight.transpose()))
    if also:
        g.output("all", table.cast(tt.i32))
    return g


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_turned", [False, True])
def test_rows_and_products_are_the_same(kind: str, is_turned: bool) -> None:
    codes = codes_of(kind)
    g = tied(codes, is_turned=is_turned)
    x = RNG.standard_normal((5, DEPTH)).astype(np.float32)
    found, want = (tt.compile(g, target=t)(index=INDEX, x=x) for t in (None, "reference"))
    rows = codes.astype(np.float32)[INDEX]
    np.testing.assert_array_equal(found["rows"], rows.transpose(2, 0, 1) if is_turned else rows)
    np.testing.assert_allclose(found["y"], want["y"], rtol=1e-4, atol=1e-3)


def tables(graph: Graph) -> set[bool]:
    """For each lookup of the rewritten graph, True if it reads the form that the product reads."""
    module = multiply_integers(graph.module(), resolve_target("cpu:avx2"))
    taken = [n.inputs[0] for n in module.programs["main"].graph if n.op == "take"]
    return {isinstance(module.constants[t], DerivedTensor) for t in taken}


def test_a_lookup_reads_the_product_s_form() -> None:
    codes = codes_of("int4")
    assert tables(tied(codes, is_turned=False)) == {True}
    assert tables(tied(codes, is_turned=False, also=True)) == {False}, "the codes are needed in their own order too"
