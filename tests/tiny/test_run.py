"""The numpy meaning of tiny."""

import ml_dtypes
import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.numbers.numerics import philox, philox_words
from tatami.core.ops import OPS
from tatami.core.signature import Equation
from tatami.core.tensor import numpy_dtype
from tatami.tiny.infer import Type
from tatami.tiny.ir import (
    BitcastOp,
    Bounds,
    CallOp,
    Elementwise,
    GatherOp,
    IotaOp,
    Program,
    RandOp,
    ResultOp,
    ResultType,
    ScanOp,
    ScatterOp,
    SizeOp,
    ViewOp,
)
from tatami.tiny.run import run
from tests.tiny.build import BOOL, F16, F32, I32, I64, Build


def test_naive_gemm_equals_numpy() -> None:
    b = Build()
    x, w = b.input("x", F32, "M", "K"), b.input("w", F32, "K", "N")
    x3 = b.expand(x, ("M", "N", "K"), (0, 2))
    w3 = b.expand(b.permute(w, 1, 0), ("M", "N", "K"), (1, 2))
    m = b.module(b.reduce(b.fn("mul", x3, w3), "sum", (2,), F32))
    for sizes in ((3, 4, 5), (1, 1, 1), (0, 3, 2), (2, 0, 2)):
        a, c = np.random.rand(sizes[0], sizes[1]).astype("f4"), np.random.rand(sizes[1], sizes[2]).astype("f4")
        assert np.allclose(run(m, {"x": a, "w": c})["y0"], a @ c)


def test_movement_equals_numpy() -> None:
    b = Build()
    x = b.input("x", F32, 4, 6)
    outs = [
        b.reshape(x, 3, 8),
        b.pad(x, (0, 1), (2, 0), value=7),
        b.pad(x, (-1, 0), (0, -2)),
        b.shrink(x, (1, 0), (4, 5), (2, 3)),
        b.flip(x, 0, 1),
        b.expand(x, (2, 4, 6), (1, 2)),
        b.add(ViewOp(shape(2, 3), (expr("2*i0 + i1//2"), expr("5 - i1"))), x),
        b.add(IotaOp(1), own=Type(I64, shape(2, 3))),
    ]
    X = np.arange(24, dtype="f4").reshape(4, 6)
    r = run(b.module(*outs), {"x": X})
    expected = [
        X.reshape(3, 8),
        np.pad(X, ((0, 1), (2, 0)), constant_values=7),
        X[1:, :4],
        X[1:4:2, 0:5:3],
        X[::-1, ::-1],
        np.broadcast_to(X, (2, 4, 6)),
        X[np.array([[0, 0, 1], [2, 2, 3]]), np.array([[5, 4, 3], [5, 4, 3]])],
        np.broadcast_to(np.arange(3), (2, 3)),
    ]
    for k, e in enumerate(expected):
        assert np.array_equal(r[f"y{k}"], e), k


def test_reduce_over_a_size_zero_axis_gives_the_neutral() -> None:
    b = Build()
    x = b.input("x", F32, "N", 2)
    m = b.module(*(b.reduce(x, op, (0,), F32) for op in ("sum", "max", "min", "prod")))
    r = run(m, {"x": np.zeros((0, 2), "f4")})
    assert [float(r[f"y{k}"][0]) for k in range(4)] == [0, -np.inf, np.inf, 1]


def test_reduce_accumulates_in_its_dtype_and_starts_at_init() -> None:
    b = Build()
    x = b.input("x", F16, 4096)
    m = b.module(b.cast(b.reduce(x, "sum", (0,), F32), F16), b.reduce(x, "sum", (0,), F32, 5))
    r = run(m, {"x": np.ones(4096, "f2")})
    assert r["y0"] == 4096
    assert r["y1"] == 4101


def test_every_scalar_op_runs_at_every_dtype_it_allows() -> None:
    for op in OPS.values():
        for dtype in DType:
            if dtype == DType.unknown:
                continue
            b = Build()
            try:
                first = BOOL if op.name == "where" else dtype
                src = [b.input(f"x{k}", first if k == 0 else dtype, 3) for k in range(op.arity)]
                y = b.add(Elementwise(op.name), *src)
            except TatamiError:
                continue
            data = {}
            for p in b.inputs:
                array = np.array([0, 1, 2], numpy_dtype(p.dtype))
                data[p.tensor] = array
            out = run(b.module(y), data)["y0"]
            assert out.dtype == numpy_dtype(b.nodes[y].dtype), op.name
            assert out.shape == (3,)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_max_propagates_nan_and_relu_keeps_it(dtype: type) -> None:
    b = Build()
    kinds: dict[type, DType] = {np.float32: F32, np.float16: F16}
    kind = kinds.get(dtype, DType.bf16)
    x, y = b.input("x", kind, 3), b.input("y", kind, 3)
    r = run(
        b.module(b.fn("max", x, y), b.fn("relu", x)),
        {"x": np.array([np.nan, 1, -1], dtype), "y": np.array([0, np.nan, 2], dtype)},
    )
    assert np.isnan(r["y0"].astype("f4")[:2]).all()
    assert np.isnan(r["y1"].astype("f4")[0])
    assert r["y1"].astype("f4")[2] == 0


def test_a_wider_product_is_exact() -> None:
    b = Build()
    x = b.input("x", F16, 1)
    p = b.fn("mul", x, x)
    n = b.nodes[p]
    b.nodes[p] = type(n)(n.id, n.op, n.src, F32, n.shape)
    assert run(b.module(p), {"x": np.array([300], "f2")})["y0"][0] == 90000


def test_scan_gather_scatter_equal_numpy() -> None:
    b = Build()
    x, i = b.input("x", F32, 4, 3), b.input("i", I64, 5, 3)
    outs = [
        b.add(ScanOp("sum", 0, F32), x),
        b.add(ScanOp("sum", 1, F32, exclusive=True, reverse=True), x),
        b.add(GatherOp(shape(5, 3), (None, expr("i1"))), x, i),
    ]
    up = b.input("u", F32, 5, 3)
    outs += [b.add(ScatterOp(op, (None, expr("i1"))), x, up, i) for op in ("set", "add", "max")]
    rng = np.random.default_rng(0)
    X, I, U = rng.random((4, 3), "f4"), rng.integers(-4, 4, (5, 3)), rng.random((5, 3), "f4")
    r = run(b.module(*outs), {"x": X, "i": I, "u": U})
    assert np.allclose(r["y0"], np.cumsum(X, 0))
    assert np.allclose(r["y1"], np.cumsum(X[:, ::-1], 1)[:, ::-1] - X, atol=1e-6)
    assert np.array_equal(r["y2"], np.take_along_axis(X, I % 4, 0))
    replaced, added, largest = X.copy(), X.copy(), X.copy()
    for a in range(5):
        for c in range(3):
            replaced[I[a, c], c] = U[a, c]
            added[I[a, c], c] += U[a, c]
            largest[I[a, c], c] = max(largest[I[a, c], c], U[a, c])
    assert np.array_equal(r["y3"], replaced)
    assert np.allclose(r["y4"], added)
    assert np.array_equal(r["y5"], largest)


@pytest.mark.parametrize(("bounds", "expected"), [("clamp", [0, 0, 3]), ("zero", [0, 0, 0]), ("error", None), ("wrap", None)])
def test_out_of_range_policy(bounds: Bounds, expected: list[int] | None) -> None:
    b = Build()
    x, i = b.input("x", F32, 4), b.input("i", I64, 3)
    m = b.module(b.add(GatherOp(shape(3), (None,), bounds), x, i))
    data = {"x": np.arange(4, dtype="f4"), "i": np.array([-9, 0, 9])}
    if expected is None:
        with pytest.raises(TatamiError, match="IndexOutOfRange"):
            run(m, data)
    else:
        assert run(m, data)["y0"].tolist() == expected


def test_philox_known_answers() -> None:
    def words(key: tuple[int, int], counter: tuple[int, ...]) -> list[str]:
        c = tuple(np.asarray(v, np.uint64) for v in counter)
        return [f"{int(w):08x}" for w in philox_words(key, c)]  # type: ignore[arg-type]

    f = 0xFFFFFFFF
    assert words((0, 0), (0, 0, 0, 0)) == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    assert words((f, f), (f, f, f, f)) == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]
    pi = ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344))
    assert words(*pi) == ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"]


def test_rand_is_word_by_row_major_index() -> None:
    b = Build()
    k = b.input("k", DType.u64)
    r = run(b.module(b.add(RandOp(shape(3, 3)), k)), {"k": np.array(7, "u8")})["y0"]
    assert np.array_equal(r.reshape(-1), philox(7, np.arange(3)).reshape(-1)[:9])


def test_sizes_are_values_and_defaults_bind() -> None:
    b = Build()
    b.input("x", F32, "N")
    b.defaults["M"] = 4
    s = b.add(SizeOp(expr("2*N + M")), own=Type(I64, ()))
    assert run(b.module(s), {"x": np.zeros(3, "f4")})["y0"] == 10
    assert run(b.module(s), {"x": np.zeros(3, "f4")}, {"M": 1})["y0"] == 7


def test_broken_assumption_names_both_sides() -> None:
    b = Build()
    x = b.input("x", F32, "M", "N")
    b.input("y", F32, "K")
    y = b.reshape(x, "K")
    assert b.equations == [Equation(expr("M*N"), expr("K"))]
    with pytest.raises(TatamiError, match=r"E1304.*M\*N = 6 where K = 5"):
        run(b.module(y), {"x": np.zeros((2, 3), "f4"), "y": np.zeros(5, "f4")})


def test_symbols_are_solved_from_linear_sizes() -> None:
    b = Build()
    x = b.input("x", F32, "2*N + 1")
    m = b.module(b.fn("neg", x))
    assert run(m, {"x": np.ones(7, "f4")})["y0"].shape == (7,)
    with pytest.raises(TatamiError, match="UnboundSymbol"):
        run(m, {"x": np.ones(6, "f4")})


@pytest.mark.parametrize("bad", [{}, {"x": np.zeros(3, "f8")}, {"x": np.zeros((3, 1), "f4")}])
def test_wrong_inputs_are_diagnosed(bad: dict) -> None:
    b = Build()
    x = b.input("x", F32, "N")
    with pytest.raises(TatamiError, match="InputMismatch"):
        run(b.module(b.fn("neg", x)), bad)


def test_bitcast_keeps_bits() -> None:
    b = Build()
    x = b.input("x", F32, 2)
    r = run(b.module(b.add(BitcastOp(DType.u32), x)), {"x": np.array([1, -0.0], "f4")})["y0"]
    assert r.tolist() == [0x3F800000, 0x80000000]


def test_float64_mode_does_not_round() -> None:
    b = Build()
    x = b.input("x", F16, 1)
    y = b.fn("exp", x)
    exact = run(b.module(y), {"x": np.array([1], "f2")}, mode="float64")["y0"]
    assert exact.dtype == np.float64
    assert exact[0] == np.exp(1.0)


def test_calls_bind_the_callees_sizes() -> None:
    c = Build()
    z = c.input("z", F32, "A", "B")
    callee = c.program(c.reduce(z, "sum", (1,), F32), c.fn("neg", z))
    b = Build()
    x = b.input("x", F32, "M", "K")
    call = b.add(
        CallOp(
            "program", ("f",), (ResultType(F32, shape("M")), ResultType(F32, shape("M", "K"))), {"A": expr("M"), "B": expr("K")}
        ),
        x,
    )
    m = b.module(b.add(ResultOp(0), call), b.add(ResultOp(1), call), f=callee)
    X = np.random.rand(2, 3).astype("f4")
    r = run(m, {"x": X})
    assert np.allclose(r["y0"], X.sum(1))
    assert np.array_equal(r["y1"], -X)


def test_if_takes_one_branch() -> None:
    def branch(fn: str) -> Program:
        c = Build()
        return c.program(c.fn(fn, c.input("z", F32, "A")))

    b = Build()
    p, x = b.input("p", BOOL), b.input("x", F32, "N")
    call = b.add(CallOp("if", ("yes", "no"), (ResultType(F32, shape("N")),), {"A": expr("N")}), p, x)
    m = b.module(b.add(ResultOp(0), call), yes=branch("neg"), no=branch("abs"))
    X = np.array([-2, 3], "f4")
    assert run(m, {"p": np.array(True), "x": X})["y0"].tolist() == [2, -3]
    assert run(m, {"p": np.array(False), "x": X})["y0"].tolist() == [2, 3]


def test_loop_carries_stops_and_stacks() -> None:
    c = Build()
    i, _ = c.input("i", I64), c.input("go", BOOL)
    acc, limit = c.input("acc", I64), c.input("limit", I64)
    total = c.fn("add", acc, i)
    body = c.program(c.fn("lt", total, limit), total, acc)
    b = Build()
    trip, go = b.input("trip", I64), b.input("go", BOOL)
    start, limit = b.input("start", I64), b.input("limit", I64)
    op = CallOp("loop", ("body",), (ResultType(I64, ()), ResultType(I64, shape("T"))), {}, ("T",), {"carried": 1})
    call = b.add(op, trip, go, start, limit)
    m = b.module(b.add(ResultOp(0), call), b.add(ResultOp(1), call), body=body)

    def go_with(trip: int, limit: int) -> list:
        r = run(m, {"trip": np.array(trip), "go": np.array(True), "start": np.array(0), "limit": np.array(limit)})
        return [int(r["y0"]), r["y1"].tolist()]

    assert go_with(4, 100) == [6, [0, 0, 1, 3]]
    assert go_with(9, 6) == [6, [0, 0, 1, 3]]
    assert go_with(0, 6) == [0, []]


def test_host_routines_decide_sizes() -> None:
    b = Build()
    x = b.input("x", I32, "N")
    op = CallOp("host", ("nonzero",), (ResultType(I64, shape(1, "C")),), {}, ("C",))
    y = b.add(ResultOp(0), b.add(op, x))
    n = b.add(SizeOp(expr("C")), own=Type(I64, ()))
    m = b.module(y, n)
    r = run(m, {"x": np.array([0, 3, 0, 1], "i4")})
    assert r["y0"].tolist() == [[1, 3]]
    assert r["y1"] == 2


def test_sort_is_stable_in_both_directions() -> None:
    b = Build()
    x = b.input("x", F32, 5)
    up = b.add(CallOp("routine", ("sort",), (ResultType(F32, shape(5)), ResultType(I64, shape(5))), attrs={"axis": 0}), x)
    down = b.add(
        CallOp(
            "routine", ("sort",), (ResultType(F32, shape(5)), ResultType(I64, shape(5))), attrs={"axis": 0, "descending": True}
        ),
        x,
    )
    m = b.module(*(b.add(ResultOp(1), c) for c in (up, down)))
    r = run(m, {"x": np.array([1, 0, 1, 2, 0], "f4")})
    assert r["y0"].tolist() == [1, 4, 0, 2, 3]
    assert r["y1"].tolist() == [3, 0, 2, 1, 4]


def test_observe_sees_every_value() -> None:
    b = Build()
    x = b.input("x", F32, 2)
    y = b.fn("neg", x)
    seen: list[tuple[str, str]] = []
    run(b.module(y), {"x": np.zeros(2, "f4")}, observe=lambda p, i, _: seen.append((p, i)))
    assert seen == [("main", "n0"), ("main", "n1")]


@pytest.mark.parametrize("mode", ["declared", "float64"])
@pytest.mark.parametrize("kind", [F32, F16, I32])
def test_deferred_products_equal_formed_ones(kind: DType, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    b = Build()
    x, w, v = b.input("x", kind, 2, 3, 4), b.input("w", kind, 5, 4), b.input("v", kind, 4)
    acc = I32 if kind == I32 else F32
    full = (2, 3, 5, 4)
    left, right = b.expand(x, full, (0, 1, 3)), b.expand(w, full, (2, 3))
    outs = [
        b.reduce(b.fn("mul", left, right), "sum", (3,), acc),
        b.reduce(b.fn("mul", left, right), "sum", (1, 3), acc, 2),
        b.reduce(b.fn("mul", right, left), "sum", (0, 1, 2, 3), acc),
        b.reduce(b.fn("mul", right, b.expand(v, full, (3,))), "sum", (1, 2), acc),
        b.reduce(b.fn("mul", b.expand(v, full, (3,)), b.expand(v, full, (3,))), "sum", (0,), acc),
    ]
    m = b.module(*outs)
    data = {p.tensor: rng.integers(-4, 5, [int(str(s)) for s in p.shape]).astype(numpy_dtype(kind)) for p in b.inputs}
    formed = run(m, data, mode=mode)  # type: ignore[arg-type]
    monkeypatch.setattr("tatami.tiny.run.LIMIT", 0)
    monkeypatch.setattr("tatami.tiny.meaning.contraction.LIMIT", 7)
    deferred = run(m, data, mode=mode)  # type: ignore[arg-type]
    for name in formed:
        assert np.array_equal(formed[name], deferred[name]), name
        assert formed[name].dtype == deferred[name].dtype


def test_a_large_naive_contraction_needs_little_memory() -> None:
    b = Build()
    x, w = b.input("x", F16, "M", "K"), b.input("w", F16, "K", "N")
    full = ("M", "N", "K")
    p = b.fn("mul", b.expand(x, full, (0, 2)), b.expand(b.permute(w, 1, 0), full, (1, 2)))
    m = b.module(b.reduce(p, "sum", (2,), F32))
    data = {"x": np.ones((700, 600), "f2"), "w": np.ones((600, 500), "f2")}
    assert (run(m, data, mode="float64")["y0"] == 600).all()


@pytest.mark.parametrize(
    ("sizes", "entries"),
    [((3, 3), ("2*i0 + i1", "5 - i0 - i1")), ((2, 4), ("i1", "i0*C")), ((2, 3), ("i0//2", "i1")), ((1,), ("0", "i0 + 3"))],
)
def test_views_by_strides_equal_index_arrays(sizes: tuple[int, ...], entries: tuple[str, ...]) -> None:
    b = Build()
    x = b.input("x", F32, "A", "B")
    b.defaults["C"] = 2
    m = b.module(b.add(ViewOp(shape(*sizes), tuple(expr(e) for e in entries)), x))
    data = np.random.default_rng(0).random((14, 14), "f4")[::2, ::2]
    grid = dict(zip(("i0", "i1"), np.indices(sizes)), C=2)
    from tatami.core.algebra.visit import evaluate

    index = tuple(np.broadcast_to(evaluate(expr(e), grid), sizes) for e in entries)
    assert np.array_equal(run(m, {"x": data})["y0"], data[index])


@pytest.mark.parametrize("entries", [("i0 + 5",), ("i0 - 1",), ("4 - i0 - i1",)])
def test_views_that_leave_their_operand_are_diagnosed(entries: tuple[str, ...]) -> None:
    b = Build()
    x = b.input("x", F32, 6)
    m = b.module(b.add(ViewOp(shape(3, 3), tuple(expr(e) for e in entries)), x))
    if entries == ("4 - i0 - i1",):
        run(m, {"x": np.zeros(6, "f4")})
        return
    with pytest.raises(TatamiError, match="IndexOutOfRange"):
        run(m, {"x": np.zeros(6, "f4")})
