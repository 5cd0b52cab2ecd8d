"""Spec documents: repaired ones agree with numpy, originals give exactly the listed diagnostics, patches work."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tatami.core.algebra.substitute import specialise
from tatami.core.codec import parse_text
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.indexbook.analyse import analyse
from tatami.indexbook.verify import verify as verify_book
from tatami.tiny.ir import Program
from tatami.tiny.json_form import decode, encode
from tatami.tiny.load import load
from tatami.tiny.normalize import normalize
from tatami.tiny.run import run
from tatami.tiny.verify import verify

SPEC = Path(__file__).parents[2] / "examples" / "spec"
PRINTED = sorted(p.stem for p in (SPEC / "as-printed").glob("*.json") if '"uops"' in p.read_text())


def document(name: str) -> dict[str, Any]:
    return parse_text((SPEC / f"{name}.json").read_text())


def outputs(module: Module[Program], inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> np.ndarray:
    """The one output, the same from the imported and the normalised form; every form verifies and round-trips."""
    module = specialise(module, {name: expr(value) for name, value in (sizes or {}).items()})
    assert verify(module, "tiny@imported") == []
    normal = normalize(module)
    assert verify(normal) == []
    assert verify_book(analyse(normal), normal) == []
    assert decode(encode(normal.main)) == normal.main
    (first,) = run(module, inputs, mode="float64").values()
    (second,) = run(normal, inputs, mode="float64").values()
    assert np.allclose(first, second)
    return first


def f16(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).integers(-8, 8, shape) / 8).astype("f2")


def conv(x: np.ndarray, w: np.ndarray, stride: int = 2, pad: int = 1, groups: int = 1) -> np.ndarray:
    x = np.pad(x.astype("f8"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kh, kw = w.shape[2:]
    oh, ow = (x.shape[2] - kh) // stride + 1, (x.shape[3] - kw) // stride + 1
    per_in, per_out = w.shape[1], w.shape[0] // groups
    out = np.zeros((x.shape[0], w.shape[0], oh, ow))
    for g in range(groups):
        for i in range(kh):
            for j in range(kw):
                window = x[:, g * per_in : (g + 1) * per_in, i : i + stride * oh : stride, j : j + stride * ow : stride]
                out[:, g * per_out : (g + 1) * per_out] += np.einsum(
                    "nchw,oc->nohw", window, w[g * per_out : (g + 1) * per_out, :, i, j]
                )
    return out


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (1, 1, 1), (7, 2, 0)])
def test_gemm_documents(m: int, k: int, n: int) -> None:
    a, b, bias = f16(m, k), f16(k, n), f16(n)
    exact = a.astype("f8") @ b.astype("f8")
    assert np.allclose(outputs(load(document("2-5.1-gemm")), {"A": a, "B": b}), exact)
    got = outputs(load(document("3-3.5.1-gemm-bias-relu")), {"A": a, "B": b, "bias": bias})
    assert np.allclose(got, np.maximum(exact + bias, 0))


@pytest.mark.parametrize(("groups", "stride", "size"), [(1, 2, (13, 11)), (2, 2, (5, 6)), (2, 1, (4, 4))])
def test_conv_document_with_pool_and_groups(groups: int, stride: int, size: tuple[int, int]) -> None:
    x, w, b = f16(2, 2 * groups, *size), f16(3 * groups, 2, 3, 3), f16(3 * groups)
    got = outputs(load(document("2-5.2-conv")), {"X": x, "W": w, "bias": b}, {"Sh": stride, "Sw": stride})
    assert np.allclose(got, conv(x, w, stride, 1, groups) + b[:, None, None])


def test_strides_of_the_conv_document_are_bound_by_normalisation() -> None:
    module = load(document("2-5.2-conv"))
    assert module.main.signature.must_bind == ("Dh", "Dw", "Sh", "Sw", "pb", "pl", "pr", "pt")
    normal = normalize(module)
    assert normal.main.signature.must_bind == ()
    fixed = normalize(specialise(module, {"Cin": expr(3), "Rcout": expr(4)}))
    assert all(not info.flags for info in analyse(fixed).main.values.values())


def test_conv_document_with_contract() -> None:
    x, w = f16(2, 5, 13, 11), f16(7, 5, 3, 3)
    assert np.allclose(outputs(load(document("3-3.5.2-conv")), {"X": x, "W": w}), conv(x, w))


@pytest.mark.parametrize("sizes", [(1, 2, 33, 40, 16), (2, 1, 3, 3, 3)])
def test_attention_documents(sizes: tuple[int, ...]) -> None:
    b, h, m, n, d = sizes
    q, k = f16(b, h, m, d), f16(b, h, n, d)
    exact = softmax(np.einsum("bhmd,bhnd->bhmn", q.astype("f8"), k.astype("f8")))
    for name in ("2-5.3-attention", "3-3.5.3-attention"):
        assert np.allclose(outputs(load(document(name)), {"Q": q, "K": k}), exact, atol=1e-5)


@pytest.mark.parametrize("name", PRINTED)
def test_originals_give_the_listed_diagnostics(name: str) -> None:
    expected = document(f"as-printed/{name}.expected")["diagnostics"]
    try:
        load(document(f"as-printed/{name}"))
        found = []
    except TatamiError as error:
        found = [{"kind": d.kind, "at": d.at} for d in error.diagnostics]
        assert all(d.why and d.suggestion for d in error.diagnostics)
    assert found == expected


def patched(value: dict[str, Any]) -> dict[str, Any]:
    """The document with the patches of all its diagnostics applied, in order."""
    value = copy.deepcopy(value)
    try:
        load(value)
        return value
    except TatamiError as error:
        for d in error.diagnostics:
            assert d.patch is not None, d
            for op in d.patch.ops:
                *parents, last = op["path"].strip("/").split("/")
                where: Any = value
                for key in parents:
                    where = where[int(key)] if isinstance(where, list) else where[key]
                where[int(last) if isinstance(where, list) else last] = op["value"]
    return value


def test_patches_repair_the_originals() -> None:
    q, k = f16(1, 2, 5, 3), f16(1, 2, 4, 3)
    exact = softmax(np.einsum("bhmd,bhnd->bhmn", q.astype("f8"), k.astype("f8")))
    assert np.allclose(outputs(load(patched(document("as-printed/3-3.5.3-attention"))), {"Q": q, "K": k}), exact, atol=1e-5)
    load(patched(document("as-printed/2-5.3-attention")))
    load(patched(document("as-printed/2-5.2-conv")))
    a, b, bias = f16(3, 4), f16(4, 5), f16(5)
    got = outputs(load(patched(document("as-printed/3-3.5.1-gemm-bias-relu"))), {"A": a, "B": b, "bias": bias})
    assert np.allclose(got, np.maximum(a.astype("f8") @ b.astype("f8") + bias, 0))


def tiny(uops: list[Any], out: str = "y", **tensors: tuple[str, list[Any]]) -> dict[str, Any]:
    table = {n: {"dtype": d, "shape": s} for n, (d, s) in tensors.items()}
    return {"uops": uops, "tensors": table, "outputs": [out]}


def value_of(doc: dict[str, Any], sizes: dict[str, int] | None = None, **inputs: np.ndarray) -> np.ndarray:
    return outputs(load(doc), inputs, sizes)


X = np.arange(24, dtype="f4").reshape(4, 6)


def test_immediates_keep_operand_order() -> None:
    got = value_of(tiny([{"id": "y", "uop": "SUB", "src": [0.5, "x"]}], x=("fp32", [4, 6])), x=X)
    assert np.array_equal(got, 0.5 - X)


def test_nested_expressions() -> None:
    uops = [{"uop": "EXP2", "src": [{"mul": ["x", {"sub": [1, 0.5]}]}], "out": "y"}]
    assert np.allclose(value_of(tiny(uops, x=("fp32", [4, 6])), x=X), 2.0 ** (X * 0.5))


@pytest.mark.parametrize(
    ("uop", "arg", "expected"),
    [
        ("RESHAPE", {"result_shape": [3, 8]}, X.reshape(3, 8)),
        ("PERMUTE", {"perm": [1, 0]}, X.T),
        ("PAD", {"pad": [[0, 1], [2, 0]], "value": 7}, np.pad(X, ((0, 1), (2, 0)), constant_values=7)),
        ("SHRINK", {"lo": [1, 0], "hi": [4, 5], "step": [2, 3]}, X[1:4:2, 0:5:3]),
        ("FLIP", {"axes": [1]}, X[:, ::-1]),
        ("VIEW", {"result_shape": [2, 3], "index_map": ["i0 + 1", "2*i1"]}, X[1:3, ::2]),
        ("VIEW", {"result_shape": [2, 3], "index_map": {"axes": ["a", "b"], "map": ["a + 1", "2*b"]}}, X[1:3, ::2]),
        ("EXPAND", {"result_shape": [2, 4, 6], "broadcast_dimensions": [1, 2]}, np.broadcast_to(X, (2, 4, 6))),
        ("EXPAND", {"result_shape": [2, 4, 6]}, np.broadcast_to(X, (2, 4, 6))),
        ("REDUCE", {"op": "SUM", "axes": [0], "dtype": "fp32", "init": 5}, X.sum(0) + 5),
        ("REDUCE", {"op": "MAX", "axes": [-1], "dtype": "fp32"}, X.max(1)),
        ("LOAD", {}, X),
        ("POOL", {"kernel": [3], "stride": [2]}, np.stack([X[:, 0:3], X[:, 2:5]], 1)),
    ],
)
def test_each_uop_equals_numpy(uop: str, arg: dict[str, Any], expected: np.ndarray) -> None:
    doc = tiny(
        [{"id": "y", "uop": uop, "src": ["x"], "arg": arg}, {"id": "z", "uop": "MUL", "src": ["y", 1]}], "z", x=("fp32", [4, 6])
    )
    assert np.array_equal(value_of(doc, x=X), expected)


def test_both_readings_of_broadcast_dimensions() -> None:
    x = np.arange(6, dtype="f4").reshape(2, 1, 3)
    for dims in ([0, 2], [0, 1, 2]):
        uops = [
            {"id": "y", "uop": "EXPAND", "src": ["x"], "arg": {"result_shape": ["M", "N", "K"], "broadcast_dimensions": dims}}
        ]
        doc = tiny(
            [*uops, {"id": "z", "uop": "ADD", "src": ["y", "o"]}], "z", x=("fp32", ["M", 1, "K"]), o=("fp32", ["M", "N", "K"])
        )
        assert np.array_equal(value_of(doc, x=x, o=np.zeros((2, 4, 3), "f4")), np.broadcast_to(x, (2, 4, 3)))


def test_symbolic_axes_and_pads() -> None:
    uops = [
        {"id": "p", "uop": "PAD", "src": ["x"], "arg": {"pad": [[0, "a"], ["b", 0]], "value": 7}},
        {"id": "y", "uop": "REDUCE", "src": ["p"], "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"}},
    ]
    got = value_of(tiny(uops, x=("fp32", ["M", "K"])), {"a": 1, "b": 2}, x=X)
    assert np.array_equal(got, np.pad(X, ((0, 1), (2, 0)), constant_values=7).sum(1))
    uops = [{"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": ["K"], "dtype": "fp32"}}]
    assert np.array_equal(value_of(tiny(uops, x=("fp32", ["M", "K"])), x=X), X.sum(1))


def test_nine_shrinks_equal_pool() -> None:
    x, w = f16(1, 2, 7, 7), f16(3, 2, 3, 3)
    uops: list[Any] = []
    total = None
    for i in range(3):
        for j in range(3):
            t = f"{i}{j}"
            uops += [
                {"id": f"s{t}", "uop": "SHRINK", "src": ["x"], "arg": {"lo": [0, 0, i, j], "hi": [1, 2, i + 5, j + 5], "step": [1, 1, 2, 2]}},
                {"id": f"v{t}", "uop": "SHRINK", "src": ["w"], "arg": {"lo": [0, 0, i, j], "hi": [3, 2, i + 1, j + 1]}},
                {"id": f"c{t}", "uop": "CONTRACT", "src": [f"s{t}", {"uop": "RESHAPE", "src": [f"v{t}"], "arg": {"result_shape": [3, 2]}}],
                 "arg": {"lhs_idx": ["n", "c", "h", "w"], "rhs_idx": ["o", "c"], "out_idx": ["n", "o", "h", "w"], "reduce_idx": ["c"]}},
            ]  # fmt: skip
            if total is not None:
                uops.append({"id": f"a{t}", "uop": "ADD", "src": [total, f"c{t}"]})
            total = f"c{t}" if total is None else f"a{t}"
    got = value_of(tiny(uops, str(total), x=("fp16", [1, 2, 7, 7]), w=("fp16", [3, 2, 3, 3])), x=x, w=w)
    assert np.allclose(got, conv(x, w, 2, 0))


def test_view_window_then_mul_reduce_is_conv() -> None:
    x, w = f16(1, 2, 7, 7), f16(3, 2, 3, 3)
    uops = [
        {
            "id": "v",
            "uop": "VIEW",
            "src": ["x"],
            "arg": {"result_shape": [1, 3, 3, 3, 2, 3, 3], "index_map": ["i0", "i4", "2*i2 + i5", "2*i3 + i6"]},
        },
        {"id": "w1", "uop": "RESHAPE", "src": ["w"], "arg": {"result_shape": [1, 3, 1, 1, 2, 3, 3]}},
        {"id": "p", "uop": "MUL", "src": ["v", "w1"]},
        {"id": "y", "uop": "REDUCE", "src": ["p"], "arg": {"op": "SUM", "axes": [4, 5, 6], "dtype": "fp32"}},
    ]
    assert np.allclose(value_of(tiny(uops, x=("fp16", [1, 2, 7, 7]), w=("fp16", [3, 2, 3, 3])), x=x, w=w), conv(x, w, 2, 0))


def test_store_names_an_output() -> None:
    doc = {
        "uops": [{"uop": "EXP2", "src": ["x"], "out": "t"}, {"uop": "STORE", "src": ["C", "t"]}],
        "tensors": {"x": {"dtype": "fp32", "shape": [2]}},
    }
    assert list(run(load(doc), {"x": np.zeros(2, "f4")})) == ["C"]


@pytest.mark.parametrize(
    ("uops", "kind", "at"),
    [
        ([{"id": "y", "uop": "FOO", "src": ["x"]}], "UnknownOp", "y"),
        ([{"id": "y", "uop": "VALID", "src": ["x"]}], "UnknownOp", "y"),
        ([{"id": "y", "uop": "IF", "src": ["x"]}], "UnknownOp", "y"),
        ([{"id": "y", "uop": "RANGE", "src": []}], "UnknownOp", "y"),
        ([{"id": "y", "uop": "INDEX", "src": ["x"]}], "UnknownOp", "y"),
        ([{"id": "y", "uop": "INPUT", "arg": {"dtype": "fp32", "shape": [2]}}], "InvalidDocument", "y"),
        ([{"id": "y", "uop": "INPUT", "arg": {"tensor_id": "a", "shape": [2]}}], "InvalidDocument", "y"),
        ([{"id": "y", "uop": "INPUT", "arg": {"tensor_id": "a", "dtype": "fp32"}}], "InvalidDocument", "y"),
        ([{"id": "y", "uop": "NEG", "src": ["q"]}], "UnknownValue", "y"),
        ([{"id": "y", "uop": "NEG", "src": ["y"]}], "CyclicGraph", "y"),
        ([{"id": "y", "uop": "NEG", "src": ["x"]}, {"id": "y", "uop": "NEG", "src": ["x"]}], "DuplicateId", "y"),
        ([{"id": "y", "uop": "NEG", "src": ["x"], "name": "y"}], "InvalidDocument", "y"),
        ([{"id": "y", "uop": "RESHAPE", "src": ["x"], "arg": {"result_shape": [5, 5]}}], "AxisSizeMismatch", "y"),
        ([{"id": "y", "uop": "PERMUTE", "src": ["x"], "arg": {"perm": [0, 0]}}], "InvalidPermutation", "y"),
        ([{"id": "y", "uop": "PERMUTE", "src": ["x"], "arg": {"perm": [0]}}], "InvalidPermutation", "y"),
        ([{"id": "y", "uop": "EXPAND", "src": ["x"], "arg": {"result_shape": [2, 4, 6], "broadcast_dimensions": [0, 1]}}], "BroadcastMismatch", "y"),
        ([{"id": "y", "uop": "SHRINK", "src": ["x"], "arg": {"lo": [0, 0], "hi": [5, 6]}}], "AxisOutOfRange", "y"),
        ([{"id": "y", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [2], "index_map": ["i0 % 2", "0"]}}], "MissingDivGuard", "y"),
        ([{"id": "y", "uop": "REDUCE", "src": ["k"], "arg": {"op": "SUM", "axes": ["K"], "dtype": "fp32"}}], "AmbiguousAxis", "y"),
        ([{"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [0]}}], "AccDtypeMissing", "y"),
        ([{"id": "y", "uop": "ADD", "src": ["x", "h"]}], "DTypeMismatch", "y"),
        ([{"id": "y", "uop": "ADD", "src": ["i", 0.5]}], "DTypeMismatch", "y"),
        ([{"id": "y", "uop": "ADD", "src": ["k", "m"]}], "BroadcastMismatch", "y"),
    ],
)  # fmt: skip
def test_faults_are_diagnosed(uops: list[Any], kind: str, at: str) -> None:
    doc = tiny(uops, x=("fp32", [4, 6]), h=("fp16", [4, 6]), i=("i32", [2]), k=("fp32", ["K", "K"]), m=("fp32", ["K", "N"]))
    with pytest.raises(TatamiError) as error:
        load(doc)
    assert (error.value.diagnostics[0].kind, error.value.diagnostics[0].at) == (kind, at)


def test_a_view_with_a_product_of_axes_is_diagnosed() -> None:
    doc = tiny(
        [{"id": "y", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [2, 2], "index_map": ["i0*i1", "0"]}}],
        x=("fp32", [4, 6]),
    )
    assert [d.kind for d in verify(load(doc), "tiny@imported")] == ["NonAffineView"]


def test_unknown_op_lists_the_legal_names() -> None:
    with pytest.raises(TatamiError, match="RESHAPE"):
        load(tiny([{"id": "y", "uop": "FOO", "src": ["x"]}], x=("fp32", [2])))


def test_tags_change_nothing() -> None:
    uops = [{"id": "y", "uop": "NEG", "src": ["x"], "tag": "debug"}]
    bare = [{"id": "y", "uop": "NEG", "src": ["x"]}]
    tagged, plain = (load(tiny(u, x=("fp32", [2]))) for u in (uops, bare))
    assert tagged.main.nodes[1].tag == "debug"
    assert analyse(normalize(tagged)).main == analyse(normalize(plain)).main


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"uops": 3},
        {"uops": [3]},
        {"uops": [{"uop": "NEG", "src": "x"}]},
        {"uops": [{"src": []}]},
        {"uops": [], "tensors": []},
    ],
)
def test_malformed_documents_are_one_diagnostic(bad: dict[str, Any]) -> None:
    with pytest.raises(TatamiError, match="InvalidDocument"):
        load(bad)


def test_the_signatures_symbols_are_the_truth() -> None:
    doc = tiny([{"id": "y", "uop": "NEG", "src": ["x"]}], x=("fp32", ["M", 4]))
    doc["signature"] = {"inputs": [{"tensor": "x", "dtype": "fp32", "shape": ["M2", 4]}], "outputs": [{"tensor": "y"}]}
    with pytest.raises(TatamiError, match=r"E1304 AxisAlignmentMismatch.*axis 0: M and M2"):
        load(doc)


def test_the_chain_of_the_matmul_document() -> None:
    """spec 5 §1.1: leaves by VIEW, a right-aligned MUL, a sum over the last axis."""
    uops = [
        {"uop": "VIEW", "src": ["X"], "out": "x"},
        {"uop": "VIEW", "src": ["W"], "out": "w"},
        {"uop": "RESHAPE", "src": ["x"], "arg": {"result_shape": ["M", 1, "K"]}, "out": "x3"},
        {"uop": "RESHAPE", "src": ["w"], "arg": {"result_shape": [1, "K", "N"]}, "out": "w3"},
        {"uop": "PERMUTE", "src": ["w3"], "arg": {"dims": [0, 2, 1]}, "out": "wt"},
        {"uop": "MUL", "src": ["x3", "wt"], "out": "p"},
        {"uop": "REDUCE", "src": ["p"], "arg": {"op": "sum", "axes": [-1], "acc_dtype": "fp32"}, "out": "y"},
    ]
    a, b = f16(3, 4), f16(4, 5)
    got = value_of(tiny(uops, X=("fp16", ["M", "K"]), W=("fp16", ["K", "N"])), X=a, W=b)
    assert np.allclose(got, a.astype("f8") @ b.astype("f8"))
