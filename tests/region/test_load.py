from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tatami.core.codec import parse_text
from tatami.core.diagnostic import TatamiError
from tatami.region.load import load
from tatami.region.run import run
from tatami.region.show import show
from tatami.region.views.kinds import kind_of

SPEC = Path(__file__).parents[2] / "examples" / "spec"
PRINTED = sorted(p.stem for p in (SPEC / "as-printed").glob("3-6.8.*.json") if not p.name.endswith(".expected.json"))
rng = np.random.default_rng(1)


def document(name: str) -> Any:
    return json.loads((SPEC / f"{name}.json").read_text())


def half(*shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / 2).astype(np.float16)


@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_documents_give_their_diagnostics(name: str) -> None:
    expected = document(f"as-printed/{name}.expected")["diagnostics"]
    try:
        load(parse_text((SPEC / "as-printed" / f"{name}.json").read_bytes(), f"{name}.json"))
        found = []
    except TatamiError as error:
        found = [{"kind": d.kind, "at": d.at} for d in error.diagnostics]
    assert found == expected


@pytest.mark.parametrize("m,n,k", [(3, 5, 4), (1, 1, 1), (16, 8, 32)])
def test_gemm_with_bias_and_relu(m: int, n: int, k: int) -> None:
    a, b, bias = half(m, k), half(k, n), half(n)
    out = run(load(document("3-6.8.1-gemm-bias-relu")), {"A": a, "B": b, "bias": bias})["C"]
    wide = a.astype(np.float32) @ b.astype(np.float32) + bias.astype(np.float32)
    np.testing.assert_allclose(out, np.maximum(wide, 0), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("h,w", [(5, 6), (1, 1), (8, 3)])
def test_conv_with_stride_and_pad(h: int, w: int) -> None:
    x, f = half(2, 3, h, w), half(4, 3, 3, 3)
    out = run(load(document("3-6.8.2-conv")), {"X": x, "W": f})["Y"]
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 2), (1, 2)))
    for i in range((h + 1) // 2):
        for j in range((w + 1) // 2):
            ref = np.einsum("bcij,ocij->bo", padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], f.astype(np.float32))
            np.testing.assert_allclose(out[:, :, i, j], ref, rtol=2e-3, atol=2e-3)


def probabilities(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    s = q.astype(np.float32) @ k.astype(np.float32).swapaxes(-1, -2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("m,n", [(3, 5), (1, 1), (7, 2)])
def test_attention_to_the_row_softmax(m: int, n: int) -> None:
    q, k = half(2, 2, m, 8), half(2, 2, n, 8)
    module = load(document("3-6.8.3-attention"))
    np.testing.assert_allclose(run(module, {"Q": q, "K": k})["P"], probabilities(q, k), rtol=2e-3, atol=1e-3)


def test_lets_own_their_axes() -> None:
    text = show(load(document("3-6.8.3-attention")))
    assert "Mrow[b, h, m] : fp32 = max over n from -INF of S" in text
    assert "Z[b, h, m] : fp32" in text


def test_two_regions_joined_by_deferred() -> None:
    module = load(document("3-6.8.3-attention-deferred"))
    q, k, v = half(2, 2, 3, 8), half(2, 2, 5, 8), half(2, 2, 5, 8)
    assert [kind_of(r) for r in module.main.body] == ["rows", "contraction"] or len(module.main.body) == 2  # type: ignore[arg-type]
    assert [p.tensor for p in module.main.signature.outputs] == ["O"]
    out = run(module, {"Q": q, "K": k, "V": v})["O"]
    np.testing.assert_allclose(out, probabilities(q, k) @ v.astype(np.float32), rtol=5e-3, atol=5e-3)


def region(**changes: Any) -> dict[str, Any]:
    value = document("3-6.8.1-gemm-bias-relu")["region"]
    return {"region": value | changes}


def faults(value: Any) -> list[str]:
    with pytest.raises(TatamiError) as caught:
        load(value)
    return [d.kind for d in caught.value.diagnostics]


def test_a_reduce_without_dtype_is_refused() -> None:
    value = document("3-6.8.3-attention")
    del value["region"]["lets"][1]["expr"]["reduce"]["dtype"]
    assert "AccDtypeMissing" in faults(value)


def test_a_guard_that_is_not_neutral_is_refused() -> None:
    value = document("3-6.8.2-conv")
    value["region"]["lets"][0]["expr"]["reduce"]["body"]["mul"][1]["select"]["else"] = 1.0
    assert "NeutralInvalid" in faults(value)


def test_a_removed_guard_is_unguarded() -> None:
    value = document("3-6.8.2-conv")
    product = value["region"]["lets"][0]["expr"]["reduce"]["body"]["mul"]
    product[1] = product[1]["select"]["then"]
    assert set(faults(value)) == {"UnguardedAccess"}


def test_malformed_parts_are_named() -> None:
    assert faults({"kernel": {}}) == ["InvalidDocument"]
    assert faults(region(tile=[1])) == ["InvalidDocument"]
    assert faults(region(lets=[{"let": "x", "expr": {"gelu": ["acc"]}}])) == ["UnknownOp"]
    assert faults(region(lets=[{"let": "x", "expr": "acc"}])) == ["UnknownValue"]
    assert faults(region(inputs=[{"name": "A", "memref": {"shape": ["M", "K"], "alignment": 100}}])) == ["LayoutMismatch"]


def test_a_wrong_broadcast_is_refused() -> None:
    value = document("3-6.8.1-gemm-bias-relu")
    value["region"]["lets"][1]["expr"]["add"][1]["BroadcastInDim"]["result_shape"] = ["N", "M"]
    assert faults(value) == ["BroadcastMismatch"]


def test_a_reduce_inside_an_expression_gets_its_own_let() -> None:
    body = {"read": {"tensor": "A", "map": ["m", "k"]}}
    inner = {"reduce": {"op": "sum", "axes": ["k"], "dtype": "fp32", "body": body}}
    lets = [
        {"let": "c2", "expr": {"mul": [{"add": [inner, 1.0]}, {"cast": [{"read": {"tensor": "bias", "map": ["n"]}}, "fp32"]}]}}
    ]
    module = load(region(lets=lets))
    assert [let.name for let in module.main.body[0].lets] == ["sum_k", "c2"]  # type: ignore[union-attr]


def test_a_causal_mask_compares_indices() -> None:
    value = document("3-6.8.3-attention")
    lets = value["region"]["lets"]
    lets.insert(1, {"let": "masked", "expr": {"select": {"pred": {"ge": ["m", "n"]}, "then": "S", "else": "-INF"}}})
    lets[2]["expr"]["reduce"]["body"] = "masked"
    lets[3]["expr"]["exp"][0]["sub"][0] = "masked"
    q, k = half(1, 1, 4, 8), half(1, 1, 4, 8)
    out = run(load(value), {"Q": q, "K": k})["P"]
    assert np.all(np.triu(out[0, 0], 1) == 0)
    np.testing.assert_allclose(out.sum(-1), 1, rtol=1e-2)
