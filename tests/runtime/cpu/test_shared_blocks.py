"""Equal constants of the programs of one process lie in memory once."""

from __future__ import annotations

import gc

import numpy as np

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.runtime.cpu.shared_blocks import _BLOCKS, shared_block

RNG = np.random.default_rng(5)


def layer(rows: int, weight: np.ndarray) -> Graph:
    g = Graph("g")
    g.output("y", (g.input("x", (rows, weight.shape[0]), DType.fp32) @ g.constant(weight, "w")).relu())
    return g


def test_programs_of_one_weight_hold_it_once() -> None:
    weight = RNG.standard_normal((600, 512)).astype(np.float32)
    other = weight.copy()
    other[-1, -1] += 1
    functions = [tt.compile(layer(rows, w), threads=1) for rows, w in ((40, weight), (40, weight), (40, other))]
    first, second, third = (f.program._block for f in functions)
    assert first is second and first is not third
    x = RNG.standard_normal((40, 600)).astype(np.float32)
    for f, w in zip(functions, (weight, weight, other), strict=True):
        np.testing.assert_allclose(f(x=x)["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_a_block_goes_with_its_last_program() -> None:
    weight = RNG.standard_normal((700, 512)).astype(np.float32)
    before = len(_BLOCKS)
    functions = [tt.compile(layer(rows, weight), threads=1) for rows in (40, 40)]
    assert len(_BLOCKS) == before + 1
    functions.clear()
    gc.collect()
    assert len(_BLOCKS) == before


def test_arrays_that_differ_in_a_byte_a_name_or_a_shape_are_not_shared() -> None:
    given = RNG.integers(0, 9, 1 << 20, dtype=np.uint8)
    changed = given.copy()
    changed[-1] += 1
    block = shared_block({"a": given})
    assert shared_block({"a": given.copy()}) is block
    for arrays in ({"a": changed}, {"b": given}, {"a": given.reshape(2, -1)}, {"a": given.view(np.int8)}):
        assert shared_block(arrays) is not block
    before = len(_BLOCKS)
    few = shared_block({"a": given[:9]})
    assert few.arrays["a"].size == 9 and len(_BLOCKS) == before
