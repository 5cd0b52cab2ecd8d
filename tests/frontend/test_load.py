"""The spec's own frontend documents."""

import copy
from typing import Any

import numpy as np
import pytest

from tatami.core.codec import dump_text, parse_text, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.frontend.graph import Graph
from tatami.frontend.load import load
from tatami.frontend.run import run
from tatami.frontend.verify import verify
from tatami.tiny.lower import lower
from tatami.tiny.run import run as run_tiny
from tests.frontend.cases import CASES

SPEC = {
    "signature": {
        "inputs": [
            {"tensor": "A", "role": "data", "mutability": "immutable"},
            {"tensor": "B", "role": "data", "mutability": "immutable"},
            {"tensor": "bias", "role": "param", "mutability": "immutable", "storage": "const_pool"},
        ],
        "outputs": [{"tensor": "C2"}],
    },
    "tensors": {
        "A": {"dtype": "fp16", "shape": ["M", "K"]},
        "B": {"dtype": "fp16", "shape": ["K", "N"]},
        "bias": {"dtype": "fp16", "shape": ["N"]},
        "C2": {"dtype": "fp16", "shape": ["M", "N"]},
    },
    "graph": [
        {"op": "GEMM", "name": "gemm", "inputs": ["A", "B"], "outputs": ["C0"], "attrs": {"acc_dtype": "fp32"}},
        {"op": "Elementwise", "name": "bias_add", "fn": "add", "inputs": ["C0", "bias"], "outputs": ["C1"]},
        {"op": "Elementwise", "name": "relu", "fn": "relu", "inputs": ["C1"], "outputs": ["C2"]},
    ],
}


def test_the_spec_s_gemm_has_its_casts_inserted():
    m = load(SPEC)
    assert verify(m) == []
    assert [n.op for n in m.main.graph] == ["gemm", "cast", "expand", "add", "relu", "cast"]
    assert {k: str(t.dtype) for k, t in m.main.tensors.items()} | {"C0": "fp32", "C1": "fp32", "C2": "fp16"} == {
        k: str(t.dtype) for k, t in m.main.tensors.items()
    }


def test_the_spec_s_gemm_runs():
    m = load(SPEC)
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float16) for s in ((5, 6), (6, 7), (7,)))
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64), 0)
    for got in (run(m, {"A": a, "B": b, "bias": c}), run_tiny(lower(m), {"A": a, "B": b, "bias": c})):
        np.testing.assert_allclose(got["C2"].astype(np.float64), want, rtol=2e-3, atol=2e-3)


def test_declared_tensors_are_not_cast():
    doc: Any = copy.deepcopy(SPEC)
    doc["tensors"]["C0"] = {"dtype": "fp32", "shape": ["M", "N"]}
    with pytest.raises(TatamiError) as e:
        load(doc)
    assert e.value.diagnostics[0].code == "E1006"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d.pop("graph"), "E1605"),
        (lambda d: d["graph"][0].update(op="GEMMM"), "E1601"),
        (lambda d: d["graph"][1].update(inputs=["C9", "bias"]), "E1602"),
        (lambda d: d["graph"][1].pop("fn"), "E1009"),
        (lambda d: d["graph"][0]["attrs"].update(alpha="x"), "E1009"),
        (lambda d: d["tensors"].pop("bias"), "E1602"),
        (lambda d: d["tensors"]["bias"].update(shape=["M"]), "E1001"),
        (lambda d: d["graph"][2].update(outputs=["C1"]), "E1603"),
        (lambda d: d["graph"].append(7), "E1605"),
        (lambda d: d["signature"]["outputs"].append({"tensor": "nope"}), "E1602"),
        (lambda d: d["tensors"]["A"].update(dtype="fp12"), "E1605"),
        (lambda d: d.update(extra=1), "E1605"),
        (lambda d: d["signature"]["inputs"][0].update(dtype="fp16", shape=["M2", "K"]), "E1304"),
        (lambda d: d["signature"]["outputs"][0].update(dtype="fp16", shape=["M", "N", 1]), "E1304"),
        (lambda d: d["signature"]["inputs"][0].update(dtype="fp32", shape=["M", "K"]), "E1006"),
    ],
)
def test_faults_are_named(change, code):
    doc = copy.deepcopy(SPEC)
    change(doc)
    with pytest.raises(TatamiError) as e:
        load(doc)
    assert e.value.diagnostics[0].code == code


def test_conv_and_norms_in_the_field_s_words():
    doc = {
        "signature": {"inputs": [{"tensor": "X"}, {"tensor": "W"}], "outputs": [{"tensor": "Y"}]},
        "tensors": {
            "X": {"dtype": "fp32", "shape": ["N", 3, "H", "W"]},
            "W": {"dtype": "fp32", "shape": [8, 3, 3, 3]},
            "Y": {"dtype": "fp32", "shape": ["N"]},
        },
        "graph": [
            {"op": "Conv2D", "inputs": ["X", "W"], "outputs": ["c"], "attrs": {"strides": [2, 2], "pads": [1, 1, 1, 1]}},
            {"op": "SiLU", "inputs": ["c"], "outputs": ["s"]},
            {"op": "LayerNorm", "inputs": ["s"], "outputs": ["n"], "attrs": {"axis": 1, "eps": 1e-6}},
            {"op": "Reduce", "fn": "max", "inputs": ["n"], "outputs": ["Y"], "attrs": {"axes": [1, 2, 3]}},
        ],
    }
    m = load(doc)
    assert verify(m) == []
    assert [n.op for n in m.main.graph] == ["conv", "silu", "layer_norm", "reduce_max"]


@pytest.mark.parametrize("name", ["conv2d", "attention-mask", "slice", "gemm", "split"])
def test_our_own_bodies_load_back(name):
    g = Graph()
    out = CASES[name][0](g)
    for i, y in enumerate(out if isinstance(out, tuple) else (out,)):
        g.output(f"y{i}", y)
    body = g.module().main
    assert load(parse_text(dump_text(to_builtins(body)))).main == body
