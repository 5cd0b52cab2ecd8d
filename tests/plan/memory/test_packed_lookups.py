"""Lookups in a matrix that a product reads packed."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph

WIDTH, ROWS = 48, 72
RNG = np.random.default_rng(6)
TABLE = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
INDEX = np.array([[3, -1, 71], [0, 40, 5]])


def tied(graph: Graph, table: np.ndarray, bounds: str = "wrap", axis: int = 0) -> None:
    """Rows of a matrix, and their product with it."""
    held = graph.constant(table, "table")
    index = graph.input("index", ("B", 3), DType.i64)
    rows = held.take(index, axis, bounds)
    rows = rows if axis == 0 else rows.permute(1, 2, 0)
    graph.output("rows", rows)
    graph.output("y", rows.cast(DType.fp32) @ (held.transpose() if axis == 0 else held).cast(DType.fp32))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_matrix_is_held_once(kind: type, axis: int) -> None:
    g = Graph("tied")
    table: np.ndarray = TABLE.astype(kind)
    tied(g, table if axis == 0 else np.ascontiguousarray(table.T), axis=axis)
    f = tt.compile(g)
    found = f(index=INDEX)
    assert f.memory["constants"] < 1.5 * table.nbytes
    np.testing.assert_array_equal(found["rows"], table[INDEX])
    np.testing.assert_allclose(found["y"], table[INDEX].astype(np.float32) @ table.T.astype(np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("bounds", "outside"), [("clamp", TABLE[-1]), ("zero", np.zeros(WIDTH))])
def test_positions_outside_are_treated_as_before(bounds: str, outside: np.ndarray) -> None:
    g = Graph("tied")
    tied(g, TABLE, bounds)
    rows = tt.compile(g)(index=np.array([[1, 2, 500]]))["rows"]
    np.testing.assert_array_equal(rows[0, 2], outside)
    np.testing.assert_array_equal(rows[0, :2], TABLE[1:3])


@pytest.mark.parametrize("bounds", ["wrap", "clamp", "zero"])
@pytest.mark.parametrize(("rows", "columns"), [(40, WIDTH), (ROWS, 32)])
def test_a_product_of_a_part_of_the_matrix_leaves_lookups_in_the_whole(rows: int, columns: int, bounds: str) -> None:
    g = Graph("tied")
    held = g.constant(TABLE, "table")
    x = g.input("x", (4, columns), DType.fp32)
    g.output("rows", held.take(g.input("index", ("B", 3), DType.i64), 0, bounds))
    g.output("y", x @ held[:rows, :columns].transpose())
    given = np.ones((4, columns), np.float32)
    found = tt.compile(g)(index=INDEX % ROWS, x=given)
    np.testing.assert_array_equal(found["rows"], TABLE[INDEX])
    np.testing.assert_allclose(found["y"], given @ TABLE[:rows, :columns].T, rtol=1e-4, atol=1e-4)


def test_a_matrix_that_is_read_in_order_too_stays() -> None:
    g = Graph("tied")
    tied(g, TABLE)
    held = g.input("x", (ROWS, WIDTH), DType.fp32)
    g.output("moved", held + g.constant(TABLE, "again"))
    found = tt.compile(g)(index=INDEX, x=np.ones((ROWS, WIDTH), np.float32))
    np.testing.assert_array_equal(found["moved"], TABLE + 1)
    np.testing.assert_array_equal(found["rows"], TABLE[INDEX])


def test_the_realised_region_reads_the_packed_form() -> None:
    g = Graph("tied")
    tied(g, TABLE)
    realised = prepare(g, target="cpu:avx2").stages["realised"].programs["main"]
    names = {p.tensor for p in realised.signature.inputs}
    assert "table" not in names
