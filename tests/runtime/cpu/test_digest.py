"""Digests of memory: any byte that changes is seen, wherever it lies and whatever the size."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from tatami.core.target import PRESETS
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import build, program_units
from tatami.runtime.cpu.digest import BLOCK, Digest
from tatami.runtime.cpu.pool import get_pool, load_program


@cache
def library() -> Library:
    return load_program(build(program_units(), PRESETS["cpu:generic"]))


def taken(*arrays: np.ndarray, plain: bool = False) -> Digest:
    spans = [(a.ctypes.data, a.nbytes) for a in arrays]
    return Digest(library(), ctypes.c_void_p(get_pool(2)), spans, plain=plain)


both = pytest.mark.parametrize("plain", [False, True])


@both
@pytest.mark.parametrize("size", [1, 3, 4, 63, 64, 255, 256, 257, 4096, 5000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77])
def test_every_byte_counts(size: int, plain: bool) -> None:
    rng = np.random.default_rng(size)
    memory = rng.integers(0, 256, size + 3, np.uint8)
    for offset in (0, 3):
        array = memory[offset : offset + size]
        digest = taken(array, plain=plain)
        assert not digest.changed()
        for at in {0, size - 1, *rng.integers(0, size, 60).tolist()}:
            for bit in (0, 7):
                array[at] ^= 1 << bit
                assert digest.changed(), at
                array[at] ^= 1 << bit
        assert not digest.changed()


@both
@pytest.mark.parametrize("zeros", [0, 16])
@pytest.mark.parametrize("row", [1, 16, 64, 100, 1024, 4096])
def test_rows_that_change_places_are_seen_at_any_distance(row: int, zeros: int, plain: bool) -> None:
    """Rows that change places are seen, even if the low bits of each word are 0, as in 16-bit floats widened to 32 bits."""
    rng = np.random.default_rng(row)
    words = (rng.integers(0, 1 << 32, (512, row), np.uint64) >> zeros << zeros).astype(np.uint32)
    digest = taken(words, plain=plain)
    for distance in (1, 2, 4, 8, 16, 64, 128, 256, 511):
        before = words[[0, distance]]
        words[[0, distance]] = before[::-1]
        assert digest.changed(), distance
        words[[0, distance]] = before
    assert not digest.changed()


@both
def test_the_same_change_in_many_places_is_seen(plain: bool) -> None:
    for fill in (0, 0xFFFFFFFF, 0x80000000):
        words = np.full(1 << 16, fill, np.uint32)
        digest = taken(words, plain=plain)
        for step in (1, 2, 4, 16, 64, 1024, 4096, 8192):
            words[::step] ^= 0x80000000
            assert digest.changed(), step
            words[::step] ^= 0x80000000
        assert not digest.changed()


def test_several_arrays_and_none() -> None:
    arrays = [np.zeros(n, np.uint8) for n in (0, 10, BLOCK * 2)]
    digest = taken(*arrays)
    assert digest.bytes == 10 + 2 * BLOCK and not digest.changed()
    arrays[2][-1] = 1
    assert digest.changed()
    assert not taken().changed()
