"""Blocks against the package `gguf`: the numbers that codes, scales and offsets stand for."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.gguf.blocks import Matrix, StoredMatrix, split_blocks
from tatami.gguf.formats import FORMATS, Format


def raw_blocks(form: Format, rows: int, columns: int) -> np.ndarray:
    """Random bytes in which every number of 16 bits is small and finite."""
    raw = np.random.default_rng(len(form.name)).integers(0, 256, (rows, columns // form.weights * form.bytes), dtype=np.uint8)
    blocks = raw.reshape(rows, -1, form.bytes)
    halves = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "F16": (0,), "BF16": (0,)}  # fmt: skip
    for first in halves.get(form.name, ()):
        blocks[..., first + 1] = blocks[..., first + 1] & 0xBF | 0x30  # an exponent below the largest
    if form.name == "F32":
        raw = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32).view(np.uint8)
    return raw


def in_memory(raw: np.ndarray, form: Format) -> StoredMatrix:
    """Rows of 512 numbers with these bytes."""
    return StoredMatrix(form, len(raw), 512, lambda first, count: raw[first : first + count].tobytes())


@pytest.mark.parametrize("code", FORMATS)
def test_numbers_are_those_of_the_format(code: int) -> None:
    form = FORMATS[code]
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(code)] == (form.weights, form.bytes)
    raw = raw_blocks(form, 3, 512)
    want = dequantize(raw, gguf.GGMLQuantizationType(code)).reshape(3, 512)
    g = Graph("blocks")
    matrix = Matrix(g, "w", in_memory(raw, form))
    g.output("all", matrix.product(g.constant(np.eye(512, dtype=np.float32))).transpose())
    g.output("some", matrix.rows(g.input("index", (2,), DType.i64)))
    found = tt.compile(g, target="reference")(index=np.array([2, 0]))
    assert np.abs(want).max() > 0
    np.testing.assert_allclose(found["all"], want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
    np.testing.assert_allclose(found["some"], want[[2, 0]], rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    ("name", "dtype", "blocks"), [("Q4_0", "int4", 16), ("Q4_K", "int4", 16), ("Q8_0", "int8", 16), ("Q6_K", "int8", 32)]
)
def test_codes_stay_narrow(name: str, dtype: str, blocks: int) -> None:
    form = next(f for f in FORMATS.values() if f.name == name)
    found = split_blocks(raw_blocks(form, 2, 512).tobytes(), form, 512)
    assert found.codes().dtype.name == dtype
    assert found.part("scale").shape == (2, blocks)
    assert (found.offset is not None) == (name == "Q4_K")


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q8_0", "Q6_K"])
def test_no_wide_copy_of_a_product_s_weights(name: str) -> None:
    """A program holds less than half of the bytes that a matrix of codes would take in fp32."""
    form = next(f for f in FORMATS.values() if f.name == name)
    g = Graph("product")
    matrix = Matrix(g, "w", in_memory(raw_blocks(form, 512, 512), form))
    g.output("y", matrix.product(g.input("x", ("B", "S", 512), DType.fp32)))
    f = tt.compile(g)
    f(x=np.ones((1, 3, 512), np.float32))
    assert f.memory["constants"] < 512 * 512 * 2
