"""Facts of Tiny IR that `docs/design/tiny.md` cites: documents compiled for the CPU, compared with numpy and the reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tatami.api import CompiledFunction, compile, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.ops import OPS, result_dtype
from tatami.report.playback import compare_outputs, play_back
from tatami.tiny.json_form import decode, encode

SPEC = Path(__file__).parents[2] / "examples" / "spec"
RNG = np.random.default_rng(0)


def tiny(uops: list[Any], out: str = "y", **tensors: tuple[str, list[Any]]) -> dict[str, Any]:
    return {"uops": uops, "tensors": {n: {"dtype": d, "shape": s} for n, (d, s) in tensors.items()}, "outputs": [out]}


def compiled(document: Any, sizes: dict[str, int] | None = None, **inputs: np.ndarray) -> tuple[np.ndarray, CompiledFunction]:
    """The one result of the kernels; every stage that computes agrees."""
    f = compile(document, threads=2, sizes=sizes)
    got = f({n: a.copy() for n, a in inputs.items()})
    found = play_back(f.compilation.values(), inputs, sizes or {}, got)
    assert found.first_divergence is None, found.first_divergence
    reference = f.compilation.reference_run(inputs, sizes or {})
    assert [a.difference for a in compare_outputs(f.signature, got, reference)] == [None]
    return next(iter(got.values())), f


def faults(document: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(TatamiError) as error:
        prepare(document)
    assert all(d.why and d.suggestion for d in error.value.diagnostics)
    return [(d.code, d.kind, d.at) for d in error.value.diagnostics]


def f16(*shape: int) -> np.ndarray:
    return (RNG.integers(-8, 8, shape) / 8).astype("f2")


X = np.arange(24, dtype="f4").reshape(4, 6)


def test_a_dump_has_ids_only_and_loads_back() -> None:
    f = compile(SPEC / "2-5.1-gemm.json")
    for stage in ("tiny@imported", "tiny"):
        module = f.stages[stage].value
        assert decode(encode(module.main)) == module.main
        nodes = json.loads(f.stages[stage].json)["programs"]["main"]["uops"]
        assert all(set(n) <= {"id", "uop", "src", "arg", "tag", "dtype", "shape"} for n in nodes)
        assert len({n["id"] for n in nodes}) == len(nodes)


@pytest.mark.parametrize("tagged", [False, True])
def test_tags_leave_the_kernels_as_they_are(tagged: bool) -> None:
    def document(tag: bool) -> dict[str, Any]:
        more = {"tag": "hint"} if tag else {}
        return tiny(
            [{"id": "a", "uop": "NEG", "src": ["x"], **more}, {"id": "y", "uop": "EXP2", "src": ["a"], **more}],
            x=("fp32", ["N"]),
        )

    assert compile(document(tagged)).stages["c"].text == compile(document(False)).stages["c"].text


def test_an_immediate_may_come_first() -> None:
    got, _ = compiled(tiny([{"id": "y", "uop": "SUB", "src": [0.5, "x"]}], x=("fp32", [4, 6])), x=X)
    assert np.array_equal(got, 0.5 - X)


def test_one_object_serves_all_sizes() -> None:
    uops = [{"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"}}]
    f = compile(tiny(uops, x=("fp32", ["M", 16])))
    assert "M" in f.stages["tiny"].text
    for m in (1, 7, 0):
        a = RNG.standard_normal((m, 16)).astype("f4")
        (got,) = f({"x": a}).values()
        assert got.shape == (m,) and np.allclose(got, a.sum(1), atol=1e-5)


def test_two_dtypes_need_a_cast_and_its_patch_runs() -> None:
    document = tiny([{"id": "y", "uop": "ADD", "src": ["x", "h"]}], x=("fp32", [3]), h=("fp16", [3]))
    with pytest.raises(TatamiError) as error:
        prepare(document)
    (d,) = error.value.diagnostics
    assert d.kind == "DTypeMismatch" and "CAST" in d.suggestion and d.patch is not None
    for op in d.patch.ops:
        *parents, last = op["path"].strip("/").split("/")
        where: Any = document
        for key in parents:
            where = where[int(key)] if isinstance(where, list) else where[key]
        if isinstance(where, list) and op["op"] == "add":
            where.insert(int(last) if last != "-" else len(where), op["value"])
        else:
            where[int(last) if isinstance(where, list) else last] = op["value"]
    got, _ = compiled(document, x=np.ones(3, "f4"), h=np.full(3, 0.5, "f2"))
    assert np.array_equal(got.astype("f4"), np.full(3, 1.5, "f4"))


@pytest.mark.parametrize(
    ("uop", "arg", "expected"),
    [
        ("RESHAPE", {"result_shape": [3, 8]}, X.reshape(3, 8)),
        ("PERMUTE", {"perm": [1, 0]}, X.T),
        ("PAD", {"pad": [[0, 1], [2, 0]], "value": 7}, np.pad(X, ((0, 1), (2, 0)), constant_values=7)),
        ("SHRINK", {"lo": [1, 0], "hi": [4, 5], "step": [2, 3]}, X[1:4:2, 0:5:3]),
        ("SHRINK", {"lo": [0, 1], "hi": [3, 6], "step": [3, 2]}, X[0:3:3, 1:6:2]),
        ("FLIP", {"axes": [1]}, X[:, ::-1]),
        ("VIEW", {"result_shape": [2, 3], "index_map": ["i0 + 1", "2*i1"]}, X[1:3, ::2]),
        ("EXPAND", {"result_shape": [2, 4, 6], "broadcast_dimensions": [1, 2]}, np.broadcast_to(X, (2, 4, 6))),
        ("REDUCE", {"op": "SUM", "axes": [0], "dtype": "fp32", "init": 5}, X.sum(0) + 5),
        ("REDUCE", {"op": "SUM", "axes": [0, 1], "dtype": "fp32"}, X.sum()),
        ("REDUCE", {"op": "MAX", "axes": [1], "dtype": "fp32"}, X.max(1)),
        ("REDUCE", {"op": "MIN", "axes": [0], "dtype": "fp32"}, X.min(0)),
    ],
)
def test_movement_and_reduce_compile_to_what_numpy_says(uop: str, arg: dict[str, Any], expected: np.ndarray) -> None:
    got, _ = compiled(tiny([{"id": "y", "uop": uop, "src": ["x"], "arg": arg}], x=("fp32", [4, 6])), x=X)
    assert got.shape == np.shape(expected) and np.array_equal(got, expected)


def test_reduce_over_outer_axes_or_a_symbol_with_a_start() -> None:
    a = RNG.standard_normal((3, 4, 5)).astype("f4")
    uops = [{"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [0, 2], "dtype": "fp32"}}]
    got, _ = compiled(tiny(uops, x=("fp32", [3, 4, 5])), x=a)
    assert np.allclose(got, a.sum((0, 2)), atol=1e-5)
    uops = [{"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "MAX", "axes": ["K"], "dtype": "fp32", "init": 5}}]
    got, _ = compiled(tiny(uops, x=("fp32", ["M", "K"])), x=X)
    assert np.array_equal(got, np.maximum(X.max(1), 5))


def test_both_forms_of_expand() -> None:
    row = np.arange(3, dtype="f4")
    uops = [{"id": "e", "uop": "EXPAND", "src": ["x"], "arg": {"result_shape": ["M", "N"], "broadcast_dimensions": [1]}},
            {"id": "y", "uop": "ADD", "src": ["e", "o"]}]  # fmt: skip
    got, _ = compiled(tiny(uops, x=("fp32", ["N"]), o=("fp32", ["M", "N"])), x=row, o=np.zeros((2, 3), "f4"))
    assert np.array_equal(got, np.broadcast_to(row, (2, 3)))
    thin = np.arange(6, dtype="f4").reshape(2, 1, 3)
    uops = [{"id": "e", "uop": "EXPAND", "src": ["x"], "arg": {"result_shape": ["M", "N", "K"], "broadcast_dimensions": [0, 2]}},
            {"id": "y", "uop": "ADD", "src": ["e", "o"]}]  # fmt: skip
    got, _ = compiled(tiny(uops, x=("fp32", ["M", 1, "K"]), o=("fp32", ["M", "N", "K"])), x=thin, o=np.zeros((2, 4, 3), "f4"))
    assert np.array_equal(got, np.broadcast_to(thin, (2, 4, 3)))


def test_symbolic_pads_run_after_binding() -> None:
    uops = [{"id": "y", "uop": "PAD", "src": ["x"], "arg": {"pad": [[0, "a"], ["b", 0]], "value": 7}}]
    got, _ = compiled(tiny(uops, x=("fp32", ["M", "K"])), {"a": 1, "b": 2}, x=X)
    assert np.array_equal(got, np.pad(X, ((0, 1), (2, 0)), constant_values=7))


@pytest.mark.parametrize("step", [2, 3])
def test_strided_shrink_of_odd_sizes(step: int) -> None:
    a = RNG.standard_normal((7, 11)).astype("f4")
    uops = [{"id": "y", "uop": "SHRINK", "src": ["x"], "arg": {"lo": [0, 1], "hi": ["M", 11], "step": [step, step]}}]
    got, f = compiled(tiny(uops, x=("fp32", ["M", 11])), x=a)
    assert np.array_equal(got, a[::step, 1::step])
    assert f"{step}*i" in f.stages["indexbook"].text


def test_a_flipped_operand_multiplies() -> None:
    a, b = f16(5, 7), f16(7, 3)
    uops = [
        {"id": "f", "uop": "FLIP", "src": ["a"], "arg": {"axes": [1]}},
        {"id": "l", "uop": "RESHAPE", "src": ["f"], "arg": {"result_shape": ["M", "K", 1]}},
        {"id": "r", "uop": "RESHAPE", "src": ["b"], "arg": {"result_shape": [1, "K", "N"]}},
        {"id": "p", "uop": "MUL", "src": ["l", "r"]},
        {"id": "y", "uop": "REDUCE", "src": ["p"], "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"}},
    ]
    got, f = compiled(tiny(uops, a=("fp16", ["M", "K"]), b=("fp16", ["K", "N"])), a=a, b=b)
    assert np.allclose(got, a[:, ::-1].astype("f4") @ b.astype("f4"), atol=1e-5)
    assert not [w for w in f.compilation.warnings if w.code in ("E1102", "W2201")]


def test_a_window_by_view_is_a_convolution() -> None:
    torch = pytest.importorskip("torch")
    x, w = f16(1, 2, 7, 7), f16(3, 2, 3, 3)
    uops = [
        {"id": "v", "uop": "VIEW", "src": ["x"],
         "arg": {"result_shape": [1, 3, 3, 3, 2, 3, 3], "index_map": ["i0", "i4", "2*i2 + i5", "2*i3 + i6"]}},
        {"id": "w1", "uop": "RESHAPE", "src": ["w"], "arg": {"result_shape": [1, 3, 1, 1, 2, 3, 3]}},
        {"id": "p", "uop": "MUL", "src": ["v", "w1"]},
        {"id": "y", "uop": "REDUCE", "src": ["p"], "arg": {"op": "SUM", "axes": [4, 5, 6], "dtype": "fp32"}},
    ]  # fmt: skip
    got, _ = compiled(tiny(uops, x=("fp16", [1, 2, 7, 7]), w=("fp16", [3, 2, 3, 3])), x=x, w=w)
    want = torch.conv2d(torch.from_numpy(x).float(), torch.from_numpy(w).float(), stride=2)
    assert np.allclose(got, want.numpy(), atol=1e-5)


SCALAR: dict[str, Callable[..., np.ndarray]] = {"NEG": np.negative, "SQRT": np.sqrt, "EXP2": np.exp2, "RELU": lambda x: np.where(x < 0, 0, x).astype(x.dtype),
          "RSQRT": lambda x: (1 / np.sqrt(x.astype("f8"))).astype(x.dtype), "ADD": np.add, "SUB": np.subtract, "MUL": np.multiply,
          "FDIV": np.divide, "POW": np.power, "MAX": np.maximum, "MIN": np.minimum}  # fmt: skip
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 0.5, -3.0, 7.0], "f4")


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "i32"])
@pytest.mark.parametrize("uop", SCALAR)
def test_elementwise_ops_meet_nan_infinity_and_minus_zero(uop: str, dtype: str) -> None:
    name = {"FDIV": "div"}.get(uop, uop.lower())
    kind = DType(dtype)
    if result_dtype(OPS[name], (kind,) * OPS[name].arity) is None:
        pytest.skip(f"{uop} has no {dtype}")
    numpy_type = {"fp16": "f2", "fp32": "f4", "i32": "i4"}[dtype]
    base = CORNERS if kind.is_float else np.array([0, 1, -1, 7, -8, 2**31 - 1, -(2**31), 3, 5, 2, 9])
    x = base.astype(numpy_type)
    y = base[::-1].astype(numpy_type) if kind.is_float else np.array([1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2], numpy_type)
    unary = OPS[name].arity == 1
    tensors: dict[str, Any] = {"x": (dtype, [11])} if unary else {"x": (dtype, [11]), "y": (dtype, [11])}
    inputs = {"x": x} if unary else {"x": x, "y": y}
    f = compile(tiny([{"id": "z", "uop": uop, "src": list(inputs)}], "z", **tensors))
    (got,) = f(inputs).values()
    with np.errstate(all="ignore"):
        want = SCALAR[uop](*inputs.values())
    exact = uop not in ("EXP2", "POW", "RSQRT")
    same = np.array_equal(got, want, equal_nan=kind.is_float) if exact else np.allclose(got, want, rtol=1e-3, equal_nan=True)
    assert same, (got, want)
    if kind.is_float and uop in ("NEG", "MUL", "ADD"):
        zeros = want == 0
        assert np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


def test_where_takes_a_bool() -> None:
    c, a, b = np.array([True, False, True]), np.arange(3, dtype="f4"), -np.ones(3, "f4")
    uops = [{"id": "y", "uop": "WHERE", "src": ["c", "a", "b"]}]
    got, _ = compiled(tiny(uops, c=("bool", [3]), a=("fp32", [3]), b=("fp32", [3])), c=c, a=a, b=b)
    assert np.array_equal(got, np.where(c, a, b))
    assert faults(tiny(uops, c=("fp32", [3]), a=("fp32", [3]), b=("fp32", [3])))[0][1] == "UnsupportedDType"


def test_cast_truncates_and_rounds() -> None:
    for to, want in (("i32", [1, -1, 2]), ("fp16", [1.5, -1.25, 2.75]), ("bool", [True, True, True])):
        got, _ = compiled(
            tiny([{"id": "y", "uop": "CAST", "src": ["x"], "arg": {"to": to}}], x=("fp32", [3])),
            x=np.array([1.5, -1.25, 2.75], "f4"),
        )
        assert got.tolist() == want


def test_the_dtype_of_a_reduce_is_that_of_its_sum() -> None:
    uops = [
        {"id": "s", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [0], "dtype": "fp32"}},
        {"id": "y", "uop": "CAST", "src": ["s"], "arg": {"to": "fp16"}},
    ]
    got, _ = compiled(tiny(uops, x=("fp16", ["N"])), x=np.ones(4096, "f2"))
    assert got.dtype == np.float16 and got == 4096


def test_broadcasts_are_explicit_after_normalisation() -> None:
    uops = [{"id": "a", "uop": "ADD", "src": ["x", "c"]}, {"id": "y", "uop": "ADD", "src": ["a", "w"]}]
    document = tiny(uops, x=("fp32", ["N", "C", "H", "W"]), c=("fp32", [1, "C", 1, 1]), w=("fp32", ["W"]))
    x, c, w = (RNG.standard_normal(s).astype("f4") for s in ((2, 3, 4, 5), (1, 3, 1, 1), (5,)))
    got, f = compiled(document, x=x, c=c, w=w)
    assert np.allclose(got, x + c + w, atol=1e-6)
    main = f.stages["tiny"].value.main
    shapes = {n.id: n.shape for n in main.nodes}
    adds = [n for n in main.nodes if getattr(n.op, "fn", "") == "add"]
    assert len(adds) == 2 and all(shapes[s] == n.shape for n in adds for s in n.src)


def test_a_mismatch_names_both_shapes_and_the_axis() -> None:
    document = tiny([{"id": "y", "uop": "MUL", "src": ["a", "b"]}], a=("fp32", ["M", "K", "N"]), b=("fp32", ["M", "K", "N2"]))
    with pytest.raises(TatamiError) as error:
        prepare(document)
    (d,) = error.value.diagnostics
    assert (d.code, d.at) == ("E1001", "y") and "N2" in d.why and "[M, K, N]" in d.why and "axis" in d.why


def chain(shrink: bool) -> dict[str, Any]:
    """Pads of ever other constants; with `shrink`, each is cut away again."""
    uops, last = [], "x"
    for k in range(12):
        uops.append({"id": f"p{k}", "uop": "PAD", "src": [last], "arg": {"pad": [[1, 1], [1, 1]], "value": k}})
        last = f"p{k}"
        if shrink:
            uops.append({"id": f"s{k}", "uop": "SHRINK", "src": [last], "arg": {"lo": [1, 1], "hi": [5, 7]}})
            last = f"s{k}"
    return tiny(uops, last, x=("fp32", [4, 6]))


def test_many_pieces_warn_and_a_reducible_chain_does_not() -> None:
    warned = prepare(chain(False))
    warned.values()
    assert [w.at for w in warned.warnings if w.code == "W2101"] and all(w.suggestion for w in warned.warnings)
    got, f = compiled(chain(True), x=X)
    assert np.array_equal(got, X) and not [w for w in f.compilation.warnings if w.code == "W2101"]


def test_the_permute_of_the_naive_gemm_is_optional() -> None:
    document = json.loads((SPEC / "2-5.1-gemm.json").read_text())
    nodes = {n["id"]: n for n in document["uops"]}
    nodes["n3"].update(uop="RESHAPE", arg={"result_shape": [1, "K", "N"]})
    nodes["n4"].update(uop="PERMUTE", arg={"perm": [0, 2, 1]})
    a, b = f16(33, 20), f16(20, 17)
    for d in (SPEC / "2-5.1-gemm.json", document):
        got, f = compiled(d, A=a, B=b)
        assert np.allclose(got.astype("f8"), a.astype("f8") @ b.astype("f8"), rtol=2e-3, atol=1e-3)
        (pattern,) = f.stages["poly_view"].value.main.patterns
        assert pattern.pattern == "matmul"
        assert len(f.stages["execution"].value.main.instructions) == 1


def test_the_convolution_document_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    x, w, b = f16(2, 4, 13, 11), f16(6, 2, 3, 3), f16(6)
    bound = {"Sh": 2, "Sw": 2, "pt": 1, "pb": 1, "pl": 1, "pr": 1, "Dh": 1, "Dw": 1}
    f = compile(SPEC / "2-5.2-conv.json", sizes=bound)
    (got,) = f(X=x, W=w, bias=b).values()
    t = [torch.from_numpy(v).float() for v in (x, w, b)]
    want = torch.conv2d(*t, stride=2, padding=1, groups=2).numpy()
    assert np.allclose(got.astype("f4"), want, rtol=2e-3, atol=2e-3)
    assert "POOL" not in f.stages["tiny"].text.upper()


def test_nine_strided_slices_equal_the_window() -> None:
    torch = pytest.importorskip("torch")
    x, w = f16(1, 2, 7, 7), f16(3, 2, 3, 3)
    uops: list[Any] = []
    total = ""
    for k in range(9):
        i, j = divmod(k, 3)
        uops += [
            {"id": f"s{k}", "uop": "SHRINK", "src": ["x"], "arg": {"lo": [0, 0, i, j], "hi": [1, 2, i + 5, j + 5], "step": [1, 1, 2, 2]}},
            {"id": f"r{k}", "uop": "RESHAPE", "src": [f"s{k}"], "arg": {"result_shape": [1, 1, 2, 3, 3]}},
            {"id": f"v{k}", "uop": "SHRINK", "src": ["w"], "arg": {"lo": [0, 0, i, j], "hi": [3, 2, i + 1, j + 1]}},
            {"id": f"w{k}", "uop": "RESHAPE", "src": [f"v{k}"], "arg": {"result_shape": [1, 3, 2, 1, 1]}},
            {"id": f"p{k}", "uop": "MUL", "src": [f"r{k}", f"w{k}"]},
            {"id": f"c{k}", "uop": "REDUCE", "src": [f"p{k}"], "arg": {"op": "SUM", "axes": [2], "dtype": "fp32"}},
        ]  # fmt: skip
        if total:
            uops.append({"id": f"a{k}", "uop": "ADD", "src": [total, f"c{k}"]})
        total = f"a{k}" if total else f"c{k}"
    got, _ = compiled(tiny(uops, total, x=("fp16", [1, 2, 7, 7]), w=("fp16", [3, 2, 3, 3])), x=x, w=w)
    want = torch.conv2d(torch.from_numpy(x).float(), torch.from_numpy(w).float(), stride=2).numpy()
    assert np.allclose(got, want, atol=1e-4)


def test_the_printed_attention_runs_after_its_patches() -> None:
    document = json.loads((SPEC / "as-printed" / "2-5.3-attention.json").read_text())
    found = faults(document)
    assert ("E1001", "BroadcastMismatch", "n10") in found
    for _ in range(8):
        try:
            prepare(document)
            break
        except TatamiError as error:
            for d in error.diagnostics:
                assert d.patch is not None, d
                for op in d.patch.ops:
                    *parents, last = op["path"].strip("/").split("/")
                    where: Any = document
                    for key in parents:
                        where = where[int(key)] if isinstance(where, list) else where[key]
                    where[int(last) if isinstance(where, list) else last] = op["value"]
    q, k = f16(1, 2, 5, 4), f16(1, 2, 3, 4)
    compiled(document, Q=q, K=k)
    got, f = compiled(SPEC / "2-5.3-attention.json", Q=q, K=k)
    s = np.einsum("bhmd,bhnd->bhmn", q.astype("f8"), k.astype("f8"))
    e = np.exp(s - s.max(-1, keepdims=True))
    assert np.allclose(got, e / e.sum(-1, keepdims=True), atol=2e-3)
    assert "PERMUTE" not in f.stages["tiny"].text.upper()


def test_an_input_nobody_reads_is_allowed() -> None:
    document = json.loads((SPEC / "2-5.2-conv.json").read_text())
    nodes = {n["id"]: n for n in document["uops"]}
    nodes["y"]["src"] = ["y0"]
    document["uops"] = [n for n in document["uops"] if n["id"] not in ("b1", "b2", "y1") and "b1" not in n.get("src", [])]
    bound = {"Sh": 2, "Sw": 2, "pt": 1, "pb": 1, "pl": 1, "pr": 1, "Dh": 1, "Dw": 1}
    (got,) = compile(document, sizes=bound)(X=f16(2, 4, 7, 7), W=f16(6, 2, 3, 3), bias=f16(6)).values()
    assert got.shape == (2, 6, 4, 4)
