"""Elements of b that a micro-kernel widens: every value of 8 and 16 bits, by each way of widening."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tatami.runtime.machine.host import detect_host
from tests.c.products.test_microkernel import aligned, routine

ELEMENTS = {"i8": np.int8, "u8": np.uint8, "h16": np.float16, "b16": ml_dtypes.bfloat16}
TILES = {4: (4, 8), 8: (6, 16), 16: (12, 32)}


@pytest.mark.parametrize("lanes", TILES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_value_is_widened_exactly(element: str, lanes: int) -> None:
    """One row, one step of k: c = 1 * b. Four lanes take the way that needs no instruction of its own."""
    if lanes == 16 and detect_host().isa != "avx512":
        pytest.skip("vectors of 16 lanes need AVX-512")
    mr, nr = TILES[lanes]
    run = routine(f"tatami_gemm_f32{element}_{mr}x{nr}_{lanes}")
    dtype = np.dtype(ELEMENTS[element])
    bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    a, c = np.ones((1, 1), np.float32), aligned((1, nr), np.float32)
    for start in range(0, len(bits), nr):
        b = aligned((1, nr), np.uint8 if dtype.itemsize == 1 else np.uint16)
        b[0] = bits[start : start + nr]
        assert run((a, b, c), 1, 1, 0, 1) == 0
        np.testing.assert_array_equal(c[0], b[0].view(dtype).astype(np.float32), strict=True)
