"""Tensor maps: the rules of the hardware, what the encoder is given, and the fault of older drivers."""

from __future__ import annotations

import struct
from typing import Any

import cuda.bindings.driver as real
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.kernel import Window
from tatami.runtime.cuda.device import get_device
from tatami.runtime.cuda.tensor_map import Map, check, encode
from tests.cuda.emulated_gpu import gpu
from tests.cuda.fake_driver import FakeDriver

TILE = Map(tt.fp16, (64, 32), (128,), (64, 32), 128)
LARGE = Map(tt.fp16, (4096, 32), (8192,), (64, 32), 128)
ALL = (1 << 64) - 1


def words(map: Map, version: int) -> tuple[int, ...]:
    with gpu(FakeDriver(version=version)):
        return struct.unpack("<16Q", encode(get_device(0), map, 4096, "k0"))


def test_the_driver_gets_sizes_innermost_first() -> None:
    with gpu(FakeDriver()) as fake:
        encode(get_device(0), TILE, 4096, "k0")
    dtype, address, dims, strides, box, swizzle, window = fake.maps[0]
    assert dtype == real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    assert (address, dims, strides, box) == (4096, (64, 32), (128,), (64, 32))
    assert swizzle == real.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B and window is None


@pytest.mark.parametrize("map, version, word", [(TILE, 13000, ALL & ~(1 << 21)), (TILE, 13020, ALL), (LARGE, 13000, ALL)])
def test_small_tensors_have_the_bit_that_old_drivers_set_wrongly_cleared(map: Map, version: int, word: int) -> None:
    found = words(map, version)
    assert found[1] == word and found[2:] == (ALL,) * 14


def test_an_im2col_map_gives_corners_and_counts() -> None:
    map = Map(tt.fp16, (64, 14, 14, 8), (128, 1792, 25088), (64, 128), 128, (1, 2, 2, 1), ((-1, -1), (-1, -1)))
    with gpu(FakeDriver()) as fake:
        assert len(encode(get_device(0), map, 1024, "k0")) == 128
    _, address, dims, strides, box, _, window = fake.maps[0]
    assert (address, dims, strides, box) == (1024, map.dims, map.strides, map.box)
    assert window == Window((-1, -1), (-1, -1), (2, 2))


BROKEN: list[tuple[str, dict[str, Any], int]] = [
    ("not a multiple of 16", {}, 4098),
    ("not a multiple of 16", {"strides": (130,)}, 4096),
    ("has 0 elements", {"dims": (64, 0)}, 4096),
    ("box of 512 elements", {"box": (64, 512)}, 4096),
    ("more than its swizzle", {"swizzle": 32}, 4096),
    ("inner side of 2 bytes", {"box": (1, 32)}, 4096),
    ("1 strides for 3 dimensions", {"dims": (64, 32, 2)}, 4096),
    ("an element step of 9", {"steps": (1, 9)}, 4096),
    ("3 to 5 dimensions", {"corners": ((), ())}, 4096),
]


@pytest.mark.parametrize("why, change, address", BROKEN)
def test_a_rule_of_the_hardware_is_named(why: str, change: dict[str, Any], address: int) -> None:
    map = Map(**{**{f: getattr(TILE, f) for f in TILE.__dataclass_fields__}, **change})
    with pytest.raises(TatamiError) as caught:
        check(map, address, "k0: y")
    (d,) = caught.value.diagnostics
    assert d.kind == "InvalidExecution" and d.at == "k0: y" and why in d.why


def test_what_follows_every_rule_is_taken() -> None:
    check(TILE, 4096, "k0")
