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
@pytest.mark.parametrize("kind", ["i4", "i4z", "i4v", "i4zv", "i8v"])
def test_against_float64(kind: str, lanes: int) -> None:
    if lanes == 16 and detect_host().isa != "avx512":
        pytest.skip("vectors of 16 lanes need AVX-512")
    if "v" in kind and (lanes < 8 or "vnni" not in detect_host().features or (lanes == 8 and detect_host().isa != "avx2")):
        pytest.skip("bytes in fours need VNNI, in the encoding of the instruction set")
    mr, nr = TILES[lanes]
    name = f"tatami_blockdots_f32{kind}_{mr}x{nr}_{lanes}"
    zeros, low, high = "z" in kind, *((-128, 127) if "8" in kind else (-8, 7))
    unit = block_dots_unit(name)
    assert unit is not None and block_dots_unit(f"{name}x") is None
    run = exported(name, (Unit(unit.text, unit.contract),))
    for rows in (1, 2, 3, 4, 5, 9, 13):
        for k, block in ((16, 16), (40, 16), (96, 32), (104, 40), (256, 128), (1056, 32)):
            if "v" in kind and k % block:
                continue  # blocks divide k
            for extreme in (False, True):
                q = RNG.integers(-127, 128, (rows, k)).astype(np.int8)
                codes = RNG.integers(low, high + 1, (k, nr))
                if extreme:
                    q[...], codes[...] = RNG.choice([-127, 127], (rows, 1)), RNG.choice([low, high], (1, nr))
                count, each = -(-k // block), np.arange(k) // block
                row_scale = RNG.uniform(0.01, 0.1, (rows, count)).astype(np.float32)
                scale = RNG.uniform(0.01, 0.1, (count, nr)).astype(np.float32)
                zero = RNG.integers(-15, 16, (count, nr)).astype(np.int8)
                wide = (codes - (zero[each] if zeros else 0)) * scale[each].astype(np.float64)
                a = q * row_scale[:, each].astype(np.float64)
                c = aligned((rows, nr + 3), np.float32)
                c[...] = 7
                held = words(codes) if "4" in kind else codes.astype(np.int8)
                assert run((q, held, c, row_scale, scale, zero), rows, nr + 3, k, block) == 0
                bound = 1e-6 * (np.abs(a) @ np.abs(wide)) + 1e-30
                assert (np.abs(c[:, :nr] - a @ wide) <= bound).all(), (rows, k, block, extreme)
                assert (c[:, nr:] == 7).all()


def test_a_zero_point_that_does_not_fit_is_refused() -> None:
    """A document may hold any number of 8 bits."""
    if "vnni" not in detect_host().features or detect_host().isa != "avx512":
        pytest.skip("bytes in fours need VNNI")
    name = "tatami_blockdots_f32i4zv_12x32_16"
    unit = block_dots_unit(name)
    assert unit is not None
    run = exported(name, (Unit(unit.text, unit.contract),))
    q, scale = np.ones((5, 32), np.int8), np.ones((1, 32), np.float32)
    for zero, result in ((119, 0), (-119, 0), (120, 3), (-128, 3)):
        zeros, c = np.zeros((1, 32), np.int8), aligned((5, 32), np.float32)
        zeros[0, 17] = zero
        assert run((q, words(np.zeros((32, 32), int)), c, np.ones((5, 1), np.float32), scale, zeros), 5, 32, 32, 32) == result
        assert result or c[4, 17] == -32 * zero
