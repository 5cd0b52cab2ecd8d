"""The routine of a product with codes against float64: each height of a panel, each form of codes, depths of every kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tatami.c.products.codes import codes_unit, codes_units
from tatami.runtime.building.objects import Unit
from tatami.runtime.machine.host import detect_host
from tests.c.products.test_microkernel import aligned, exported, panels

TILES = {4: (4, 8), 8: (6, 16), 16: (12, 32)}
RNG = np.random.default_rng(11)


def words(codes: np.ndarray) -> np.ndarray:
    """Codes of 4 bits, eight of k in an element: byte j has step j and, above it, step j + 4."""
    k, n = codes.shape
    padded = np.zeros((-(-k // 8) * 8, n), np.uint32)
    padded[:k] = codes.astype(np.int64) & 15
    shifts = np.array([0, 8, 16, 24, 4, 12, 20, 28], np.uint32)
    return np.bitwise_or.reduce(padded.reshape(-1, 8, n) << shifts[:, None], axis=1).astype(np.uint32)


@pytest.mark.parametrize("lanes", TILES)
@pytest.mark.parametrize(("bits", "parts", "lies"), list(itertools.product((4, 8), ("", "s", "z", "sz"), (False, True))))
def test_against_float64(bits: int, parts: str, lies: bool, lanes: int) -> None:
    if lanes == 16 and detect_host().isa != "avx512":
        pytest.skip("vectors of 16 lanes need AVX-512")
    mr, nr = TILES[lanes]
    name = f"tatami_codes{'lie' if lies else ''}_f32i{bits}{parts}_{mr}x{nr}_{lanes}"
    unit = codes_unit(name)
    assert unit is not None
    run = exported(name, (Unit(unit.text, unit.contract),))
    for rows in [*range(1, mr + 1), mr + 1, 2 * mr, 3 * mr + 1]:
        for k, block in ((16, 16), (40, 16), (77, 32), (9, 9), (130, 130)):
            a = RNG.standard_normal((rows, k)).astype(np.float32)
            codes = RNG.integers(-(1 << bits - 1), 1 << bits - 1, (k, nr))
            count = -(-k // block)
            scale = RNG.uniform(0.01, 0.1, (count, nr)).astype(np.float32)
            zero = RNG.integers(-9, 9, (count, nr)).astype(np.int8)
            each = np.arange(k) // block
            wide = codes - (zero[each] if "z" in parts else 0.0)
            wide = wide * scale[each].astype(np.float64) if "s" in parts else wide
            held = words(codes) if bits == 4 else codes.astype(np.int8)
            c, room = aligned((rows, nr + 3), np.float32), aligned((48, nr), np.float32)
            c[...] = 7
            given = (a.copy(), a) if lies else (panels(a, mr), a)
            for kc in (16, 48) if block == 16 or k == block else (32,):
                assert run((given[0], held, c, room, scale, zero), rows, k, nr + 3, k, block, kc) == 0
                bound = 1e-6 * (np.abs(a).astype(np.float64) @ np.abs(wide)) + 1e-30
                assert (np.abs(c[:, :nr] - a.astype(np.float64) @ wide) <= bound).all(), (rows, k, block, kc)
                assert (c[:, nr:] == 7).all()


def test_only_the_heights_that_occur_are_compiled() -> None:
    (unit,) = codes_units("tatami_codes_f32i4s_12x32_16", [1, 30]).values()
    assert "low_1(" in unit.text and "tile_10(" in unit.text
    assert "low_2(" not in unit.text and "tile_12(" not in unit.text
    assert codes_units("tatami_gemm_f32_12x32_16", [1]) == {} and codes_unit("tatami_codes_f32i4q_12x32_16") is None
