"""Weights with a scale per block, against ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import tatami as tt
from tatami.report.playback import play_back
from tests.onnx.microsoft.against_onnxruntime import agree, model_of, node

RNG = np.random.default_rng(8)
LOOSE = (1e-3, 1e-3)
N, K = 12, 70


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def packed_weights(bits: int, block: int, zero: str, dtype: str = "f4") -> dict[str, np.ndarray]:
    blocks = -(-K // block)
    out = {"b": RNG.integers(0, 256, (N, blocks, block * bits // 8)).astype("u1")}
    out["s"] = RNG.uniform(0.01, 0.03, (N, blocks)).astype(dtype)
    if zero == "packed":
        out["z"] = RNG.integers(0, 256, (N, -(-blocks * bits // 8))).astype("u1")
    if zero == "float":
        out["z"] = RNG.uniform(0, 2**bits, (N, blocks)).astype(dtype)
    return out


@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
def test_products_with_four_bits(zero: str, block: int) -> None:
    weights = packed_weights(4, block, zero)
    made = node("MatMulNBits", ["a", *weights], N=N, K=K, bits=4, block_size=block)
    feeds = [{"a": x(b, t, K)} for b, t in ((1, 3), (2, 5))]
    agree(made, *feeds, weights=weights, open={"a": ("B", "T", K)}, tolerance=LOOSE)


@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("zero", ["", "packed"])
def test_products_with_other_bits(zero: str, bits: int) -> None:
    weights = packed_weights(bits, 32, zero)
    agree(
        node("MatMulNBits", ["a", *weights], N=N, K=K, bits=bits, block_size=32),
        {"a": x(3, K)},
        weights=weights,
        tolerance=LOOSE,
    )


def test_half_precision_and_bias() -> None:
    weights = packed_weights(4, 32, "packed", "f2") | {"bias": x(N, dtype="f2")}
    made = node("MatMulNBits", ["a", "b", "s", "z", "", "bias"], N=N, K=K, bits=4, block_size=32)
    agree(made, {"a": x(3, K, dtype="f2")}, weights=weights, tolerance=(2e-2, 2e-2))


def test_a_group_for_each_row_of_weights() -> None:
    """ONNX Runtime's kernel reads the first eight entries of each block only, so numpy says what is wanted."""
    weights = packed_weights(4, 32, "float") | {"g": RNG.integers(0, 3, K).astype("i4")}
    made = node("MatMulNBits", ["a", "b", "s", "z", "g"], N=N, K=K, bits=4, block_size=32)
    a, codes = x(3, K), np.stack([weights["b"] & 15, weights["b"] >> 4], -1).reshape(N, -1)[:, :K]
    dense = (codes - weights["z"][:, weights["g"]]) * weights["s"][:, weights["g"]]
    agree(made, {"a": a}, weights=weights, wanted=[[a @ dense.T]], tolerance=LOOSE)


def test_flat_scales_of_older_models() -> None:
    weights = {k: v.reshape(-1) if k != "b" else v for k, v in packed_weights(4, 32, "packed").items()}
    agree(
        node("MatMulNBits", ["a", *weights], N=N, K=K, bits=4, block_size=32), {"a": x(3, K)}, weights=weights, tolerance=LOOSE
    )


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_bitsandbytes(block: int, kind: int) -> None:
    weights = {"b": RNG.integers(0, 256, N * K // 2).astype("u1"), "m": RNG.uniform(0.5, 2, -(-N * K // block)).astype("f4")}
    made = node("MatMulBnb4", ["a", "b", "m"], N=N, K=K, block_size=block, quant_type=kind)
    agree(made, {"a": x(2, 3, K)}, weights=weights, tolerance=LOOSE)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_rows_of_packed_bytes(shape: tuple[int, ...], zero: bool, bits: int) -> None:
    weights = {"d": RNG.integers(0, 256, (20, 64 * bits // 8)).astype("u1"), "s": RNG.uniform(0.01, 0.1, (20, 2)).astype("f4")}
    if zero:
        weights["z"] = RNG.integers(0, 256, (20, 2 * bits // 8)).astype("u1")
    made = node("GatherBlockQuantized", ["d", "i", "s", *(["z"] if zero else [])], bits=bits, block_size=32, quantize_axis=1)
    agree(made, {"i": RNG.integers(0, 20, shape)}, weights=weights)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("along", "across"), [(0, 1), (0, 2), (1, 2), (2, 2), (2, 1)])
def test_rows_of_four_bit_tensors(along: int, across: int, signed: bool) -> None:
    kind = ml_dtypes.int4 if signed else ml_dtypes.uint4
    shape = [3, 20, 20]
    blocks = [*shape]
    blocks[across] = 2
    data, zero = (RNG.integers(-8 if signed else 0, 8, s).astype(kind) for s in (shape, blocks))
    weights = {"d": data, "s": RNG.uniform(0.01, 0.1, blocks).astype("f4"), "z": zero}
    made = node("GatherBlockQuantized", ["d", "i", "s", "z"], block_size=16, gather_axis=along, quantize_axis=across)
    agree(made, {"i": RNG.integers(-shape[along], shape[along], (2, 4))}, weights=weights)


def test_rows_beyond_the_table_are_zeros() -> None:
    weights = {"d": RNG.integers(0, 256, (20, 32)).astype("u1"), "s": RNG.uniform(0.01, 0.1, (20, 2)).astype("f4")}
    made = node("GatherBlockQuantized", ["d", "i", "s"], block_size=32)
    agree(made, {"i": np.array([3, 20, -20, -21, 19, 99])}, weights=weights)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:generic"])
@pytest.mark.parametrize(
    ("rows", "block", "zero", "bits"),
    [(1, 32, "", 4), (5, 16, "packed", 4), (30, 64, "packed", 4), (1, 32, "", 8), (30, 64, "", 8)],
)
def test_operands_rounded_to_eight_bits_at_level_four(rows: int, block: int, zero: str, bits: int, target: str) -> None:
    """Sums of integers for each block, against float64 of the rounded operand; the packed weights keep their bits."""
    n, k = 70, 192
    blocks = k // block
    codes = RNG.integers(0, 1 << bits, (n, k)).astype("u1")
    held = codes[:, 0::2] | codes[:, 1::2] << 4 if bits == 4 else codes
    weights = {"b": held.reshape(n, blocks, -1)}
    weights["s"] = RNG.uniform(0.01, 0.03, (n, blocks)).astype("f4")
    points = RNG.integers(0, 16, (n, blocks)).astype("u1") if zero else np.full((n, blocks), 1 << bits - 1, "u1")
    if zero:
        even = np.pad(points, ((0, 0), (0, blocks % 2)))
        weights["z"] = even[:, 0::2] | even[:, 1::2] << 4
    made = node("MatMulNBits", ["a", *weights], N=n, K=k, bits=bits, block_size=block, accuracy_level=4)
    a = x(rows, k)
    model = model_of([made], {"a": a}, {"y": (TensorProto.FLOAT, None)}, weights)
    f = tt.compile(model.SerializeToString(), target=target, threads=1)
    a[0, :block] = 0
    parts = a.reshape(rows, blocks, block)
    scale = np.abs(parts).max(2) * np.float32(1 / 127)
    rounded = np.rint(parts / np.where(scale == 0, np.float32(1), scale)[:, :, None]) * scale[:, :, None].astype("f8")
    real = (codes - np.repeat(points, block, 1).astype("f8")) * np.repeat(weights["s"], block, 1)
    (y,) = f(a=a).values()
    wanted = rounded.reshape(rows, k) @ real.T
    by_fours = "vnni" in f.compilation.target.features
    assert ("tatami_blockdots_f32" in f.stages["loop"].text) == (bits == 4 or by_fours)
    assert ("by blocks_vnni" in f.stages["plan"].text) == by_fours
    assert np.abs(y - wanted).max() <= 2e-6 * np.abs(wanted).max()
    played = play_back(f.compilation.values(), {"a": a}, {}, f(a=a))
    assert played.first_divergence is None


def test_level_four_of_an_open_number_of_rows() -> None:
    """One program for each number of rows, 0 included, with a bias; blocks that do not divide k stay in fp32."""
    for k, is_rounded in ((128, True), (100, False)):
        weights = {"b": RNG.integers(0, 256, (24, -(-k // 32), 16)).astype("u1")}
        weights |= {"s": RNG.uniform(0.01, 0.03, (24, -(-k // 32))).astype("f4"), "bias": x(24)}
        made = node("MatMulNBits", ["a", "b", "s", "", "", "bias"], N=24, K=k, bits=4, block_size=32, accuracy_level=4)
        feeds = [{"a": x(b, t, k)} for b, t in ((1, 1), (2, 5))]
        agree(made, *feeds, weights=weights, open={"a": ("B", "T", k)}, tolerance=LOOSE if is_rounded else (2e-2, 2e-2))
