"""Normalisation keeps the meaning and reaches its form."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.tiny.infer import Type
from tatami.tiny.ir import ConstOp, Elementwise, ExpandOp, IotaOp, Node, Program, ReduceOp, SizeOp
from tatami.tiny.normalize import normalize
from tatami.tiny.run import run
from tatami.tiny.show import show, uop_name
from tatami.tiny.verify import verify
from tests.tiny.build import BOOL, F16, F32, I32, I64, Build


def uops(module: Module[Program], program: str = "main") -> list[str]:
    return [uop_name(n.op) for n in module.programs[program].nodes]


def normal(b: Build, *outputs: str, **inputs: np.ndarray) -> Module[Program]:
    """Normalised, verified and equal in both modes."""
    before = b.module(*outputs)
    after = normalize(before)
    assert verify(after) == []
    again = normalize(after)
    assert show(again) == show(after)
    for mode in ("declared", "float64"):
        left, right = (run(m, inputs, mode=mode) for m in (before, after))
        for name in left:
            assert np.array_equal(left[name], right[name], equal_nan=True), mode
    return after


X = np.random.default_rng(0).random((2, 3, 4, 5), "f4")


@pytest.mark.parametrize("sizes", [(1, 3, 1, 1), (5,), (4, 1), ()])
def test_broadcasts_become_explicit(sizes: tuple[int, ...]) -> None:
    b = Build()
    x, y = b.input("x", F32, "N", 3, "H", 5), b.input("y", F32, *("H" if s == 4 else s for s in sizes))
    m = normal(b, b.fn("add", x, y), x=X, y=np.ones(sizes, "f4"))
    assert uops(m) == ["INPUT", "INPUT", "EXPAND", "ADD"]
    add = m.main.nodes[-1]
    shapes = {n.id: n.shape for n in m.main.nodes}
    assert {shapes[s] for s in add.src} == {add.shape}


def test_equal_nodes_are_one_but_not_equal_looking_constants() -> None:
    b = Build()
    x = b.input("x", F32, 2)
    plus, minus = b.const(0.0, F32), b.const(-0.0, F32)
    out = [b.fn("exp", x), b.fn("exp", x), b.fn("add", x, plus), b.fn("add", x, minus)]
    m = normal(b, *out, x=np.array([-0.0, 1], "f4"))
    assert uops(m).count("EXP") == 1
    assert uops(m).count("CONST") == 2


def test_dead_nodes_leave_and_inputs_stay_in_order() -> None:
    b = Build()
    b.input("unused", F32, 2)
    x = b.input("x", F32, 2)
    b.fn("exp", x)
    m = normal(b, b.fn("neg", x), unused=np.zeros(2, "f4"), x=np.ones(2, "f4"))
    assert uops(m) == ["INPUT", "INPUT", "NEG"]
    assert [n.op.tensor_id for n in m.main.nodes[:2]] == ["unused", "x"]  # type: ignore[union-attr]


def test_movement_chains_collapse() -> None:
    b = Build()
    x = b.input("x", F32, 2, 3, 4, 5)
    y = b.permute(b.permute(x, 3, 2, 1, 0), 3, 2, 1, 0)
    z = b.reshape(b.reshape(b.reshape(x, 6, 20), 120), 2, 3, 4, 5)
    w = b.shrink(b.pad(x, (0, 0), (0, 0), (0, 0), (0, 0)), (0, 0, 0, 0), (2, 3, 4, 5))
    e = b.expand(b.expand(x, (7, 2, 3, 4, 5), (1, 2, 3, 4)), (8, 7, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    m = normal(b, b.fn("add", b.fn("add", y, z), w), e, x=X)
    assert sorted(uops(m)) == ["ADD", "ADD", "EXPAND", "INPUT"]


def test_a_part_of_parts_end_to_end_is_a_part_of_one() -> None:
    b = Build()
    x, y, z = (b.input(n, F32, 2, 3) for n in "xyz")
    coordinate = b.add(IotaOp(1), own=Type(I64, shape(2, 9)))

    def padded(part: str, before: int) -> str:
        return b.pad(part, (0, 0), (before, 6 - before))

    def behind(left: str, right: str, start: int) -> str:
        bound = b.expand(b.const(start, I64), (2, 9), ())
        return b.fn("where", b.fn("lt", coordinate, bound), left, right)

    whole = behind(behind(padded(x, 0), padded(y, 3), 3), padded(z, 6), 6)
    parts = [b.shrink(whole, (0, lo), (2, hi)) for lo, hi in ((0, 3), (3, 6), (6, 9), (4, 6))]
    data = {n: X[0, 0, :2, :3] + k for k, n in enumerate("xyz")}
    assert uops(normal(b, *parts, **data)) == ["INPUT"] * 3 + ["SHRINK"]
    across = normal(b, *parts, b.shrink(whole, (0, 2), (2, 4)), **data)
    assert uops(across).count("WHERE") == 1  # reaches into two of three


@pytest.mark.parametrize(
    ("fn", "constant", "dtype", "folds"),
    [
        ("mul", 1, F32, True),
        ("div", 1, F32, True),
        ("sub", 0, F32, True),
        ("add", 0, F32, False),
        ("add", 0, I32, True),
        ("mul", 0, F32, False),
        ("mul", 0, I32, False),
        ("idiv", 1, I32, True),
        ("sub", -0.0, F32, False),
    ],
)
def test_only_exact_algebra(fn: str, constant: float, dtype: DType, folds: bool) -> None:
    b = Build()
    x = b.input("x", dtype, 3)
    y = b.fn(fn, x, b.const(constant, dtype))
    data = np.array([-0.0, 2, np.nan], "f4") if dtype == F32 else np.array([0, 2, -3], "i4")
    assert (len(uops(normal(b, y, x=data))) == 1) is folds


def test_twice_is_once() -> None:
    b = Build()
    x = b.input("x", F32, 3)
    m = normal(b, b.fn("neg", b.fn("neg", x)), b.fn("relu", b.fn("relu", x)), b.cast(x, F32), x=np.array([-1, 0, np.nan], "f4"))
    assert uops(m) == ["INPUT", "RELU"]


def test_uniform_constants_fold_and_select_chooses() -> None:
    b = Build()
    x = b.input("x", F32, "N")
    two = b.expand(b.const(2.0, F32), ("N",), ())
    three = b.fn("add", two, b.expand(b.const(1.0, F32), ("N",), ()))
    yes = b.expand(b.const(True, BOOL), ("N",), ())
    m = normal(b, b.fn("where", yes, b.fn("mul", x, three), x), x=np.ones(3, "f4"))
    assert uops(m) == ["INPUT", "CONST", "EXPAND", "MUL"]
    assert m.main.nodes[1].op == ConstOp(3.0)


def test_size_arithmetic_folds() -> None:
    b = Build()
    b.input("x", F32, "N", 4)
    n = b.add(SizeOp(expr("N")), own=Type(I64, ()))
    four = b.add(SizeOp(expr(4)), own=Type(I64, ()))
    m = normal(b, b.fn("mul", b.fn("add", n, four), four), x=np.ones((3, 4), "f4"))
    assert m.main.nodes[-1].op == SizeOp(expr("4*N + 16"))


def test_a_product_under_a_sum_takes_its_dtype() -> None:
    b = Build()
    x = b.input("x", F16, 3)
    p = b.fn("mul", x, x)
    m = normalize(b.module(b.reduce(p, "sum", (0,), F32)))
    assert m.main.nodes[1].dtype == F32
    assert run(m, {"x": np.full(3, 300, "f2")})["y0"] == 270000
    for outputs in ((b.reduce(p, "sum", (0,), F32), p), (b.reduce(p, "max", (0,), F32),)):
        kept = normalize(b.module(*outputs))
        assert next(n for n in kept.main.nodes if isinstance(n.op, Elementwise)).dtype == F16


def test_constant_work_moves_to_setup_and_movement_stays() -> None:
    b = Build()
    x = b.input("x", F32, "M", 4)
    w = b.param("w", np.random.default_rng(1).random((4, 5), "f4"))
    s = b.param("s", np.random.default_rng(2).random((1, 5), "f4"))
    scaled = b.fn("mul", w, s)
    p = b.fn("mul", b.reshape(x, "M", 1, 4), b.permute(scaled, 1, 0))
    m = normal(b, b.reduce(p, "sum", (2,), F32), x=X[0, 0, :, :4])
    assert uops(m, "setup") == ["INPUT", "INPUT", "EXPAND", "MUL"]
    assert "PERMUTE" in uops(m)
    assert [p.tensor for p in m.main.signature.inputs] == ["x", "const0"]
    assert m.main.signature.inputs[1].storage == "const_pool"
    assert [o.tensor for o in m.programs["setup"].signature.outputs] == ["const0"]
    assert set(m.origins) == {"main", "setup"}


def test_a_weight_alone_stays_in_main() -> None:
    b = Build()
    w = b.param("w", np.ones((2, 3), "f4"))
    x = b.input("x", F32, 3, 2)
    assert "setup" not in normal(b, b.fn("add", x, b.permute(w, 1, 0)), x=np.ones((3, 2), "f4")).programs


def test_const_pool_without_payload_is_the_callers() -> None:
    b = Build()
    w = b.input("w", F32, 3, storage="const_pool")
    m = normal(b, b.fn("exp", w), w=np.ones(3, "f4"))
    assert list(m.programs) == ["main"]


def test_scalar_constants_are_folded_into_main() -> None:
    b = Build()
    x = b.input("x", F32, 3)
    s = b.param("s", np.array(2, "f4"))
    m = normal(b, b.fn("mul", x, s), x=np.ones(3, "f4"))
    assert [p.tensor for p in m.main.signature.inputs] == ["x"]
    assert uops(m) == ["INPUT", "CONST", "EXPAND", "MUL"]


def test_cheap_generated_masks_stay_and_costly_tables_move() -> None:
    b = Build()
    x = b.input("x", F32, 4, 4)
    rows, columns = (b.add(IotaOp(a), own=Type(I64, shape(4, 4))) for a in (0, 1))
    mask = b.fn("ge", rows, columns)
    table = b.fn("sin", b.cast(rows, F32))
    m = normal(b, b.fn("where", mask, x, table), x=np.ones((4, 4), "f4"))
    assert "GE" in uops(m)
    assert "SIN" in uops(m, "setup")


def test_symbols_that_must_bind_take_their_defaults() -> None:
    import msgspec

    b = Build()
    x = b.input("x", F32, "N")
    y = b.shrink(x, (0,), ("N - S",))
    p = b.program(y)
    signature = msgspec.structs.replace(p.signature, defaults={"S": 2}, must_bind=("S",))
    m = normalize(Module({"main": msgspec.structs.replace(p, signature=signature)}))
    assert m.main.signature.must_bind == ()
    assert run(m, {"x": np.arange(5, dtype="f4")})["y0"].tolist() == [0, 1, 2]


def test_a_reshape_that_gives_an_inputs_symbol_replaces_it() -> None:
    b = Build()
    x, _ = b.input("x", F32, "M", "N"), b.input("z", F32, "K")
    y = b.reshape(x, "K")
    b.equations.clear()
    signature = normalize(b.module(y)).main.signature
    assert [i.shape for i in signature.inputs] == [shape("M", "N"), shape("M*N")]
    assert signature.assumptions == ()


def test_an_equation_that_gives_no_symbol_stays_and_the_reshape_pads() -> None:
    b = Build()
    x = b.input("x", F32, "N", 4)
    y = b.reshape(b.shrink(x, (0, 0), ("min(3, N)", 4)), "N", 4)
    b.equations.clear()
    m = normalize(b.module(y))
    (equation,) = m.main.signature.assumptions
    assert {equation.lhs, equation.rhs} == {expr("4*min(3, N)"), expr("4*N")}
    assert verify(m) == []
    assert run(m, {"x": np.ones((3, 4), "f4")})["y0"].shape == (3, 4)


@pytest.mark.parametrize(("dtype", "bound", "lo"), [("u8", 10, 256), ("i8", 100, 200)])
def test_parts_by_coordinates_that_wrap_around_stay(dtype: str, bound: int, lo: int) -> None:
    g = tt.Graph("part")
    x, y = g.input("x", (300,), tt.fp32), g.input("y", (300,), tt.fp32)
    at = g.iota((300,), 0, getattr(tt, dtype))
    g.output("z", (at < bound).where(x, y)[lo : lo + 1])
    given = {"x": np.arange(300, dtype="f4"), "y": -np.arange(300, dtype="f4")}
    place = np.arange(300).astype({"u8": "u1", "i8": "i1"}[dtype])
    want = np.where(place < bound, given["x"], given["y"])[lo : lo + 1]
    assert np.array_equal(tt.compile(g)(**given)["z"], want)


def test_ten_thousand_nodes() -> None:
    b = Build()
    b.input("x", F32, "M")
    nodes = dict(b.nodes)
    for k in range(10_000):
        nodes[f"n{k + 1}"] = Node(f"n{k + 1}", Elementwise("exp2"), (f"n{k}",), F32, shape("M"))
    b.nodes = nodes
    m = normalize(b.module("n10000"))
    assert len(m.main.nodes) == 10_001
    assert verify(m) == []


def test_reduce_over_nothing_is_a_cast() -> None:
    b = Build()
    x = b.input("x", F16, 3)
    y = b.add(ReduceOp("sum", (), F32), x)
    assert uops(normal(b, y, x=np.ones(3, "f2"))) == ["INPUT", "CAST"]


def test_normal_form_keeps_explicit_expands() -> None:
    b = Build()
    x = b.input("x", F32, 3)
    y = b.fn("neg", b.add(ExpandOp(shape(2, 3), (1,)), x))
    assert uops(normal(b, y, x=np.ones(3, "f4"))) == ["INPUT", "EXPAND", "NEG"]
