"""The routine of a product of integers with scales per block, against sums in float64: extremes of every code included."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.c.products.block_dots import block_dots_unit
from tatami.runtime.building.objects import Unit
from tatami.runtime.machine.host import detect_host
from tests.c.products.test_codes import TILES, words
from tests.c.products.test_microkernel import aligned, exported

RNG = np.random.default_rng(12)


@pytest.mark.parametrize("lanes", TILES)
@pytest.mark.parametrize("zeros", ["", "z"])
def test_against_float64(zeros: str, lanes: int) -> None:
    if lanes == 16 and detect_host().isa != "avx512":
        pytest.skip("vectors of 16 lanes need AVX-512")
    mr, nr = TILES[lanes]
    name = f"tatami_blockdots_f32i4{zeros}_{mr}x{nr}_{lanes}"
    unit = block_dots_unit(name)
    assert unit is not None and block_dots_unit(f"{name}x") is None
    run = exported(name, (Unit(unit.text, unit.contract),))
    for rows in (1, 2, 3, 4, 5, 9):
        for k, block in ((16, 16), (40, 16), (96, 32), (104, 40), (256, 128)):
            for extreme in (False, True):
                q = RNG.integers(-127, 128, (rows, k)).astype(np.int8)
                codes = RNG.integers(-8, 8, (k, nr))
                if extreme:
                    q[...], codes[...] = RNG.choice([-127, 127], (rows, 1)), RNG.choice([-8, 7], (1, nr))
                count, each = -(-k // block), np.arange(k) // block
                row_scale = RNG.uniform(0.01, 0.1, (rows, count)).astype(np.float32)
                scale = RNG.uniform(0.01, 0.1, (count, nr)).astype(np.float32)
                zero = RNG.integers(-15, 16, (count, nr)).astype(np.int8)
                wide = (codes - (zero[each] if zeros else 0)) * scale[each].astype(np.float64)
                a = q * row_scale[:, each].astype(np.float64)
                c = aligned((rows, nr + 3), np.float32)
                c[...] = 7
                assert run((q, words(codes), c, row_scale, scale, zero), rows, nr + 3, k, block) == 0
                bound = 1e-6 * (np.abs(a) @ np.abs(wide)) + 1e-30
                assert (np.abs(c[:, :nr] - a @ wide) <= bound).all(), (rows, k, block, extreme)
                assert (c[:, nr:] == 7).all()
