"""Products whose lanes run along the sum against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.c.products.along import along_unit
from tatami.runtime.building.objects import Unit
from tests.c.products.test_microkernel import exported

CASES = [
    ("f32", np.float32, 5, 5, 16),
    ("f32", np.float32, 1, 7, 16),
    ("f32", np.float32, 3, 3, 8),
    ("f64", np.float64, 2, 6, 8),
    ("f32", np.float32, 2, 2, 4),
]


@pytest.mark.parametrize(("element", "dtype", "mr", "nr", "lanes"), CASES)
def test_every_number_of_rows_and_length_agrees_with_numpy(element: str, dtype: type, mr: int, nr: int, lanes: int) -> None:
    name = f"tatami_along_{element}_{mr}x{nr}_{lanes}"
    unit = along_unit(name)
    assert unit is not None
    run = exported(name, (Unit(unit.text, unit.contract),))
    rng = np.random.default_rng(0)
    for rows in (*range(1, mr + 1), 3 * mr + 1):
        for length in (1, lanes - 1, lanes, 2 * lanes + 3):
            images, lines, columns = 2, 3, 2 * nr
            a: np.ndarray = rng.standard_normal((rows, images, lines, length + 2)).astype(dtype)
            b: np.ndarray = rng.standard_normal((columns, images, lines + 1, length + 5)).astype(dtype)
            a[..., length:], b[..., length:] = np.nan, np.inf  # past the end of a line
            table = np.array([b[j].ctypes.data - b.ctypes.data for j in range(columns)], np.int64) // b.itemsize
            room = (np.concatenate([x.ravel(), np.full(lanes, np.nan, dtype)]) for x in (a, b))
            left, right = room
            wanted = np.einsum("ripk,cipk->rc", a[..., :length].astype(np.float64), b[:, :, :lines, :length].astype(np.float64))
            c = np.full((rows, columns + 3), 7, dtype)
            shared = (images, a[0, 0].size, b[0, 0].size, lines, length + 2, length + 5, length)
            for first, factor in ((1, 1), (0, 2)):
                assert run((left, right, c, table), rows, a[0].size, columns, columns + 3, first, *shared) == 0
                np.testing.assert_allclose(c[:, :columns], factor * wanted, rtol=1e-4, atol=1e-4)
            assert (c[:, columns:] == 7).all()


def test_other_names_are_not_its() -> None:
    assert along_unit("tatami_along_i32_4x4_16") is None
    assert along_unit("tatami_gemm_f32_12x32_16") is None
