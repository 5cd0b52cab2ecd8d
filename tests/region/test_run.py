from __future__ import annotations

import numpy as np
import pytest

import tatami.region.meaning.region as region_run
from tatami.core.dtype import DType
from tatami.region.meaning import inlined_lets
from tatami.region.run import run, run_region
from tests.region import examples as ex

rng = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("m,n,k", [(5, 7, 3), (1, 1, 1), (4, 4, 0), (0, 3, 2)])
def test_gemm_is_numpys_product(m: int, n: int, k: int) -> None:
    a, b, bias = random(m, k), random(k, n), random(n)
    out = run(ex.program_of(ex.gemm()), {"A": a, "B": b, "bias": bias})["C"]
    np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-5)


def test_gemm_of_fp16_accumulates_in_fp32() -> None:
    a, b = (np.full(s, 1 / 16, np.float16) for s in ((2, 4096), (4096, 2)))
    out = run(ex.program_of(ex.gemm(DType.fp16)), {"A": a, "B": b, "bias": np.zeros(2, np.float16)})["C"]
    assert out.dtype == np.float16
    assert np.all(out == 16)


def test_softmax_rows_sum_to_one() -> None:
    x = random(4, 9)
    out = run(ex.program_of(ex.softmax()), {"X": x})["Y"]
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_layer_norm() -> None:
    x, g = random(3, 24), random(24)
    out = run(ex.program_of(ex.layer_norm()), {"X": x, "g": g})["Y"]
    np.testing.assert_allclose(
        out, (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g, rtol=1e-4, atol=1e-5
    )


def test_attention() -> None:
    q, k, v = random(2, 3, 8), random(2, 5, 8), random(2, 5, 8)
    out = run(ex.program_of(ex.attention()), {"Q": q, "K": k, "V": v})["O"]
    s = q @ k.transpose(0, 2, 1)
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(out, p / p.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("h,w", [(7, 6), (1, 1), (4, 5)])
def test_conv_reads_zeros_outside_the_image(h: int, w: int) -> None:
    x, f = random(2, 3, h, w), random(4, 3, 3, 3)
    out = run(ex.program_of(ex.conv()), {"X": x, "F": f})["Y"]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2)))
    ref = np.zeros((2, 4, (h + 1) // 2, (w + 1) // 2))
    for i in range(ref.shape[2]):
        for j in range(ref.shape[3]):
            ref[:, :, i, j] = np.einsum("bcij,ocij->bo", padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], f)
    np.testing.assert_allclose(out, ref, rtol=1e-4, atol=1e-4)


def test_a_let_is_read_at_shifted_positions() -> None:
    x = np.arange(9, dtype=np.float32)
    out = run(ex.program_of(ex.two_windows()), {"X": x})["Y"]
    w = x[:-2] + x[1:-1] + x[2:]
    np.testing.assert_array_equal(out, np.maximum(np.maximum(w[:-2], w[1:-1]), w[2:]))


def test_a_scan_runs_along_its_axis() -> None:
    x = random(3, 5)
    np.testing.assert_allclose(run(ex.program_of(ex.running_sum()), {"X": x})["Y"], 2 * np.cumsum(x, 1), rtol=1e-5)


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
def test_slices_change_nothing(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    region = make()  # type: ignore[operator]
    sizes = {"M": 5, "N": 4, "K": 3, "B": 2, "D": 6, "H": 5, "W": 6, "Ci": 2, "Co": 3, "L": 9}
    arrays = {p.name: random(*inlined_lets.clamped_shape(p.memref.shape, sizes)) for p in region.inputs}
    whole = run_region(region, arrays, sizes, "float64")
    monkeypatch.setattr(region_run, "MAX_ELEMENTS", 4)
    monkeypatch.setattr(inlined_lets, "MAX_STORED", 0)
    for name, array in run_region(region, arrays, sizes, "float64").items():
        np.testing.assert_allclose(array, whole[name], rtol=1e-12, atol=1e-12)


def test_an_unguarded_read_outside_is_a_diagnostic() -> None:
    import msgspec

    region = ex.two_windows()
    broken = msgspec.structs.replace(
        region, lets=(ex.let("w", "i", ex.total("p", ex.read("X", "i + p + 1"))), *region.lets[1:])
    )
    with pytest.raises(Exception, match="is read at 1"):
        run(ex.program_of(broken), {"X": np.zeros(9, np.float32)})


def test_observe_sees_lets_and_tensors() -> None:
    seen: list[str] = []
    run(ex.program_of(ex.softmax()), {"X": random(2, 3)}, observe=lambda p, i, a: seen.append(f"{p}/{i}{list(a.shape)}"))
    assert seen == ["main/softmax.top[2]", "main/softmax.e[2, 3]", "main/softmax.z[2]", "main/softmax.p[2, 3]", "main/Y[2, 3]"]
