"""Products by tiles of AMX, called as the routines they are."""

import numpy as np
import pytest

from tatami.c.products.amx_tiles import tile_unit
from tatami.runtime.building.objects import Unit
from tatami.runtime.machine.host import detect_host
from tests.c.products.test_microkernel import exported

TYPES = {"u8": np.uint8, "i8": np.int8}


def test_there_is_a_unit_for_each_pair_of_signs_and_no_other() -> None:
    for a in TYPES:
        for b in TYPES:
            unit = tile_unit(f"tatami_tiles_{a}{b}")
            assert unit is not None and f"tdpb{'s' if a == 'i8' else 'u'}{'s' if b == 'i8' else 'u'}d" in unit.text
    assert tile_unit("tatami_tiles_u8i16") is None and tile_unit("tatami_tiles_u8i8x") is None


@pytest.mark.skipif("amx_int8" not in detect_host().features, reason="this machine has no tiles")
@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("b_type", TYPES)
def test_every_row_count_and_depth_agrees_with_numpy(a_type: str, b_type: str) -> None:
    """Rows and columns of wider matrices; added to what was there from the second block of k on; nothing else is written."""
    name = f"tatami_tiles_{a_type}{b_type}"
    unit = tile_unit(name)
    assert unit is not None
    run = exported(name, (Unit(unit.text, unit.contract),))
    rng = np.random.default_rng(0)
    for rows in (0, 1, 5, 15, 16, 17, 18, 31, 32, 33, 49, 63, 64, 65, 100):
        for groups in (0, 1, 15, 16, 17, 35):
            low, high = np.iinfo(TYPES[a_type]).min, np.iinfo(TYPES[a_type]).max + 1
            a = rng.integers(low, high, (rows, 4 * groups + 12)).astype(TYPES[a_type])
            low, high = np.iinfo(TYPES[b_type]).min, np.iinfo(TYPES[b_type]).max + 1
            b = rng.integers(low, high, (2, groups + 3, 32, 4)).astype(TYPES[b_type])
            c = np.full((rows + 1, 67), 7, np.int32)
            sizes = (groups + 3, 67, 40)  # columns of two slivers
            deep = b[:, :groups].transpose(1, 3, 0, 2).reshape(4 * groups, 64).astype(np.int32)
            wanted = c.copy()
            wanted[:rows, :64] = a[:, : 4 * groups].astype(np.int32) @ deep
            assert run((a, b, c), rows, 4 * groups + 12, 0, groups, *sizes) == 0
            np.testing.assert_array_equal(c, wanted)
            if groups > 1:
                part = groups // 2
                assert run((a, b, c), rows, 4 * groups + 12, 0, part, *sizes) == 0
                assert run((a, b.reshape(-1)[128 * part :], c), rows, 4 * groups + 12, part, groups, *sizes) == 0
                np.testing.assert_array_equal(c, wanted)
