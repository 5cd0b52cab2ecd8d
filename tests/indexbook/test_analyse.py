"""The book agrees with tiny's computation: every operand, read through its pieces, is the operand's value."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import Expr, Shape, expr, shape
from tatami.core.module import Module
from tatami.core.scalar import number
from tatami.indexbook.analyse import analyse
from tatami.indexbook.ir import IndexBook, IndexInfo, Operand
from tatami.indexbook.show import show
from tatami.indexbook.verify import verify
from tatami.tiny.ir import Elementwise, ExpandOp, GatherOp, Node, Program, ReduceOp, ScatterOp, ViewOp
from tatami.tiny.run import run
from tests.tiny.build import F32, I64, Build


def read(operand: Operand, info: IndexInfo, values: dict[str, np.ndarray], sizes: dict[str, int]) -> np.ndarray:
    """The operand's value at every point of axes, then reduced."""
    extent = [int(evaluate(a.size, sizes)) for a in (*info.axes, *info.reduced)]
    grid = np.meshgrid(*(np.arange(n) for n in extent), indexing="ij") if extent else []
    env: dict[str, Any] = {**sizes, **{a.name: g for a, g in zip((*info.axes, *info.reduced), grid)}}

    def at(e: Expr) -> np.ndarray:
        return np.broadcast_to(evaluate(e, env), extent)

    out = np.zeros(extent)
    todo = np.ones(extent, bool)
    for piece in operand.pieces:
        holds = np.ones(extent, bool)
        for g in piece.guards:
            holds &= (at(g.index) >= 0) & (at(g.index) < evaluate(g.size, sizes))
        here = todo & holds
        if piece.read is None:
            out[here] = number(piece.fill)  # type: ignore[arg-type]
        else:
            base = values[piece.read.value]
            index = tuple(at(e)[here] for e in piece.read.map)
            for i, n in zip(index, base.shape):
                assert i.size == 0 or (i.min() >= 0 and i.max() < n), "read outside"
            out[here] = base[index] if index else base
        todo &= ~here
    assert not todo.any(), "no piece applies"
    return out


def check(module: Module[Program], inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> Module[Any]:
    book = analyse(module)
    assert verify(book, module) == []
    values: dict[str, np.ndarray] = {}
    run(module, inputs, sizes, observe=lambda _, i, v: values.__setitem__(i, v))
    for node in module.main.nodes:
        info = book.main.values[node.id]
        if info.gathered is not None or info.scattered is not None:
            continue
        sources = [node.id] if info.is_movement else node.src
        for s, operand in zip(sources, info.operands):
            got = read(operand, info, values, sizes)
            want = values[s]
            if info.reduced:
                assert isinstance(node.op, ReduceOp)
                axes = [a for a in range(want.ndim) if a not in node.op.axes] + sorted(node.op.axes)
                want = np.transpose(want, axes)
            assert np.array_equal(got, np.broadcast_to(want, got.shape)), (node.id, show(book))
    return book


def entry(book: Module[Any], ident: str) -> str:
    line = next(t for t in show(book).splitlines() if t.startswith(f"{ident} "))
    return " ".join(line.split()[1:])


def test_leaf_unary_and_permute() -> None:
    b = Build()
    x = b.input("x", F32, "M", "K")
    b.fn("exp2", b.permute(x, 1, 0))
    book = check(b.module("n2"), {"x": np.random.rand(2, 3).astype("f4")}, {"M": 2, "K": 3})
    assert entry(book, "n0") == "i0:M i1:K leaf"
    assert entry(book, "n1") == "i0:K i1:M view n0[i1, i0]"
    assert entry(book, "n2") == "i0:K i1:M n0[i1, i0]"
    axes = book.main.values
    assert [a.id for a in axes["n1"].axes] == [axes["n0"].axes[1].id, axes["n0"].axes[0].id]
    assert axes["n2"].axes == axes["n1"].axes


def test_naive_gemm_is_the_specs_book() -> None:
    b = Build()
    x, w = b.input("A", F32, "M", "K"), b.input("B", F32, "K", "N")
    p = b.fn("mul", b.expand(x, ("M", "K", "N"), (0, 1)), b.expand(w, ("M", "K", "N"), (1, 2)))
    c = b.reduce(p, "sum", (1,), F32)
    book = check(b.module(c), {"A": np.ones((2, 3), "f4"), "B": np.ones((3, 4), "f4")}, {"M": 2, "K": 3, "N": 4})
    assert entry(book, p) == "i0:M i1:K i2:N n0[i0, i1] n1[i1, i2]"
    assert entry(book, c) == "i0:M i1:N | r0:K n4[i0, r0, i1] acc fp32"
    product, total = book.main.values[p], book.main.values[c]
    assert total.reduce_axes == (product.axes[1].id,)
    assert [a.id for a in total.axes] == [product.axes[0].id, product.axes[2].id]


def test_a_size_one_axis_is_broadcast_without_guard() -> None:
    b = Build()
    x = b.input("x", F32, "M", "K")
    y = b.reshape(x, "M", 1, "K")
    book = check(b.module(y), {"x": np.ones((2, 3), "f4")}, {"M": 2, "K": 3})
    assert entry(book, y) == "i0:M i1:1' i2:K view n0[i0, i2]"


def test_pad_has_disjoint_inside_and_outside_pieces() -> None:
    b = Build()
    x = b.input("x", F32, "N")
    y = b.pad(x, (1, 2), value=7)
    book = check(b.module(y), {"x": np.ones(3, "f4")}, {"N": 3})
    assert entry(book, y) == "i0:(N + 3) view (n0[i0 - 1] if 0 <= i0 - 1 < N else 7)"


def test_conv_window_reads_the_unpadded_input() -> None:
    b = Build()
    x = b.input("X", F32, "N", "C", "H", "W")
    padded = b.pad(x, (0, 0), (0, 0), (1, 1), (1, 1))
    out = shape("N", "C", "(H - 1)//2 + 1", "(W - 1)//2 + 1", 3, 3)
    y = b.add(ViewOp(out, tuple(expr(e) for e in ("i0", "i1", "2*i2 + i4", "2*i3 + i5"))), padded)
    book = check(b.module(y), {"X": np.random.rand(1, 2, 5, 6).astype("f4")}, {"N": 1, "C": 2, "H": 5, "W": 6})
    pieces = book.main.values[y].operands[0].pieces
    assert [str(e) for e in pieces[0].read.map] == ["i0", "i1", "2*i2 + i4 - 1", "2*i3 + i5 - 1"]
    assert [(str(g.index), str(g.size)) for g in pieces[0].guards] == [("2*i2 + i4 - 1", "H"), ("2*i3 + i5 - 1", "W")]
    assert pieces[1].read is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((6, 4), (3, 8), "view n0[2*i0 + i1//4, i1 - 4*(i1//4)]"),
        (("M", 4, "N"), ("M", 2, 2, "N"), "view n0[i0, 2*i1 + i2, i3]"),
        (("N", "C", 3), ("N", "3*C"), "view n0[i0, i1//3, i1 - 3*(i1//3)]"),
        ((1, "M", 1), ("M",), "view n0[0, i0, 0]"),
    ],
)
def test_reshape_maps(old: tuple, new: tuple, expected: str) -> None:
    b = Build()
    x = b.input("x", F32, *old)
    y = b.reshape(x, *new)
    sizes = {"M": 3, "N": 5, "C": 2}
    data = np.arange(np.prod([evaluate(s, sizes) for s in shape(*old)])).reshape([evaluate(s, sizes) for s in shape(*old)])
    assert expected in entry(check(b.module(y), {"x": data.astype("f4")}, sizes), y)


def test_merge_and_split_back_is_the_identity() -> None:
    b = Build()
    x = b.input("x", F32, "M", "N")
    y = b.reshape(b.reshape(x, "M*N"), "M", "N")
    book = analyse(b.module(y))
    assert entry(book, y) == "i0:M i1:N view n0[i0, i1]"
    assert book.main.values["n1"].flags == ("non_scop",)
    assert book.main.values[y].flags == ()


def map_of(operand: Operand) -> Shape:
    """The index map of an operand's first piece."""
    read = operand.pieces[0].read
    assert read is not None
    return read.map


@pytest.mark.parametrize("sizes", [("N",), ("M", "N"), ("B", 1, 1, "N"), (1, "H", "M", "N")])
def test_masks_are_zero_on_broadcast_axes(sizes: tuple) -> None:
    b = Build()
    s = b.input("S", F32, "B", "H", "M", "N")
    mask = b.input("mask", F32, *sizes)
    full = ("B", "H", "M", "N")
    y = b.fn("add", s, b.expand(mask, full, tuple(range(4 - len(sizes), 4))))
    book = analyse(b.module(y))
    have = [str(e) for e in map_of(book.main.values[y].operands[1])]
    offset = 4 - len(sizes)
    assert have == ["0" if n == 1 else f"i{k + offset}" for k, n in enumerate(sizes)]


def test_unequal_sizes_fail_at_once() -> None:
    b = Build()
    b.input("x", F32, "M", 3)
    b.input("y", F32, 2)
    b.nodes["n2"] = Node("n2", Elementwise("add"), ("n0", "n1"), F32, shape("M", 3))
    with pytest.raises(TatamiError, match="E1001"):
        analyse(b.module("n2"))


def test_a_chain_of_movement_stays_small() -> None:
    b = Build()
    y = b.input("x", F32, 4, 6, 8)
    for k in range(20):
        if k % 3 == 0:
            y = b.permute(y, 2, 0, 1)
        elif k % 3 == 1:
            a, c, d = b.shape(y)
            y = b.reshape(b.reshape(y, a * c, d), a, c, d)
        else:
            y = b.shrink(b.pad(y, (1, 0), (0, 1), (2, 2)), (1, 0, 2), (b.shape(y)[0] + 1, b.shape(y)[1], b.shape(y)[2] + 2))
    book = check(b.module(y), {"x": np.random.rand(4, 6, 8).astype("f4")}, {})
    (piece,) = book.main.values[y].operands[0].pieces
    assert all(len(str(e)) <= 4 for e in piece.read.map)


@pytest.mark.parametrize("steps", [20, 200])
def test_reshapes_that_do_not_undo_each_other_grow_linearly(steps: int) -> None:
    """Maps of 7x4 read as 4x7 again and again double with each step; a copy stands where one is too long."""

    def book_of(count: int) -> tuple[int, IndexBook]:
        b = Build()
        y = b.input("x", F32, 30, 77)
        for _ in range(count):
            y = b.reshape(b.permute(y, 1, 0), 30, 77)
        module = b.module(y)
        made = analyse(module)
        assert verify(made, module) == []
        return len(show(made)), made.main

    short, _ = book_of(steps // 2)
    start = time.process_time()
    size, book = book_of(steps)
    assert time.process_time() - start < 1.0 * max(1.0, steps / 200)
    assert size < 2.5 * short
    read = [p.read.value for info in book.values.values() for o in info.operands for p in o.pieces if p.read]
    assert 2 <= len(set(read)) <= steps // 2


def test_long_chains_compute_what_numpy_does() -> None:
    g = tt.Graph("g")
    x = np.arange(30 * 77, dtype=np.float32).reshape(30, 77)
    y, want = g.input("x", (30, 77), tt.fp32), x
    for _ in range(20):
        y, want = y.permute(1, 0).reshape((30, 77)), want.T.reshape(30, 77)
    g.output("y", y + 1.0)
    assert np.array_equal(tt.compile(g)(x=x)["y"], want + 1)


def test_long_chains_of_changing_ranks_are_cut_where_the_next_step_is_too_long() -> None:
    """A short map may become too long in one step, if its axes are many and the sizes of the reshape share few factors."""
    x = np.arange(1920, dtype=np.float32).reshape(4, 6, 8, 10)
    shapes = [(4, 6, 8, 10), (8, 3, 16, 5), (12, 2, 8, 10), (20, 6, 4, 4), (2, 10, 12, 8), (96, 20), (5, 384)]
    for seed in range(3):
        rng, g = np.random.default_rng(seed), tt.Graph("g")
        y, want = g.input("x", x.shape, tt.fp32), x
        for _ in range(60):
            turn = tuple(map(int, rng.permutation(y.rank)))
            to = shapes[int(rng.integers(len(shapes)))]
            y, want = y.permute(turn).reshape(to), want.transpose(turn).reshape(to)
        g.output("y", y + 1.0)
        assert np.array_equal(tt.compile(g, target="reference")(x=x)["y"], want + 1)
        book, tiny = (prepare(g).stages[name] for name in ("indexbook", "tiny"))
        assert [d for d in verify(book, tiny) if not d.is_warning] == []


def test_many_different_pads_warn_and_a_reducible_chain_does_not() -> None:
    for different in (True, False):
        b = Build()
        y = b.input("x", F32, 30)
        for k in range(12):
            y = b.shrink(b.pad(y, (1, 1), value=k if different else 0), (0,), (31,))
        found = verify(analyse(b.module(y)), b.module(y))
        assert [d.kind for d in found if d.at == y] == (["ExcessivePiecewise"] if different else [])


def test_gather_composes_movement_of_its_data() -> None:
    b = Build()
    w, i = b.input("W", F32, "D", "V"), b.input("i", I64, "S")
    full = b.add(ExpandOp(shape("S", "D"), (0,)), i)
    y = b.add(GatherOp(shape("S", "D"), (None, expr("i1"))), b.permute(w, 1, 0), full)
    info = analyse(b.module(y)).main.values[y]
    assert info.gathered is not None
    assert (info.gathered.value, [str(e) for e in info.gathered.map]) == (w, ["i1", "None"])
    assert str(map_of(info.operands[0])) == "(Expr('i0'),)"
    assert info.flags == ("non_scop",)


def test_gather_of_padded_data_needs_it_in_memory() -> None:
    b = Build()
    w, i = b.input("W", F32, "V"), b.input("i", I64, "S")
    p = b.pad(w, (0, 1))
    y = b.add(GatherOp(shape("S"), (None,)), p, i)
    info = analyse(b.module(y)).main.values[y]
    assert info.gathered is not None
    assert info.gathered.value == p


def test_scatter_runs_over_its_updates() -> None:
    b = Build()
    t, u, i = b.input("t", F32, "N", "D"), b.input("u", F32, "S", "D"), b.input("i", I64, "S", "D")
    y = b.add(ScatterOp("add", (None, expr("i1"))), t, u, i)
    info = analyse(b.module(y)).main.values[y]
    assert [a.name for a in info.reduced] == ["r0", "r1"]
    assert [str(e) for e in info.scattered or ()] == ["None", "r1"]
    assert map_of(info.operands[1]) == (expr("r0"), expr("r1"))


def test_a_symbol_that_multiplies_an_axis_is_non_scop() -> None:
    b = Build()
    x = b.input("x", F32, "N*K")
    y = b.add(ViewOp(shape("N"), (expr("K*i0"),)), x)
    assert analyse(b.module(y)).main.values[y].flags == ("non_scop",)


@st.composite
def movement_chains(draw: st.DrawFn) -> Build:
    b = Build()
    rank = draw(st.integers(1, 3))
    y = b.input("x", F32, *(draw(st.integers(1, 4)) for _ in range(rank)))
    for _ in range(draw(st.integers(1, 6))):
        sizes = [s.as_int() or 0 for s in b.shape(y)]
        kind = draw(st.sampled_from(["permute", "reshape", "expand", "pad", "shrink", "flip", "view"]))
        if kind == "permute":
            y = b.permute(y, *draw(st.permutations(range(len(sizes)))))
        elif kind == "reshape":
            total = int(np.prod(sizes))
            divisors = [d for d in range(1, total + 1) if total % d == 0] or [1]
            first = draw(st.sampled_from(divisors))
            rest = total // first if first else 0
            second = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0] or [1]))
            y = b.reshape(y, first, second, rest // second) if total else y
        elif kind == "expand" and len(sizes) < 4:
            new = draw(st.integers(1, 3))
            at = draw(st.integers(0, len(sizes)))
            full = [*sizes[:at], new, *sizes[at:]]
            y = b.expand(y, tuple(full), tuple(k for k in range(len(full)) if k != at))
        elif kind == "pad":
            pairs = [(draw(st.integers(-1 if n > 1 else 0, 2)), draw(st.integers(0, 2))) for n in sizes]
            y = b.pad(y, *pairs, value=draw(st.integers(0, 2)))
        elif kind == "shrink":
            lo = [draw(st.integers(0, n - 1)) if n else 0 for n in sizes]
            hi = [draw(st.integers(a, n)) for a, n in zip(lo, sizes)]
            y = b.shrink(y, tuple(lo), tuple(hi), tuple(draw(st.integers(1, 3)) for _ in sizes))
        elif kind == "flip":
            y = b.flip(y, *draw(st.sets(st.integers(0, len(sizes) - 1))))
        elif kind == "view" and all(sizes):
            entries = tuple(expr(f"i0//{draw(st.integers(1, 3))} + {draw(st.integers(0, 0))}") for _ in sizes)
            y = b.add(ViewOp(shape(min(sizes)), entries), y)
    b.fn("neg", y)
    return b


@given(movement_chains())
@settings(max_examples=150, deadline=None)
def test_random_movement_chains_equal_numpy(b: Build) -> None:
    sizes = [s.as_int() or 0 for s in b.inputs[0].shape]
    x = np.arange(1, 1 + np.prod(sizes), dtype="f4").reshape(sizes)
    check(b.module(list(b.nodes)[-1]), {"x": x}, {})


@given(movement_chains(), st.data())
@settings(max_examples=60, deadline=None)
def test_random_chains_with_symbolic_sizes_equal_numpy(b: Build, data: st.DataObject) -> None:
    """The same chains where the input's first axis is a symbol, as far as the chain allows it."""
    c = Build()
    first = b.inputs[0]
    y = c.input("x", F32, "S", *first.shape[1:])
    from tatami.tiny.ir import FlipOp, PadOp, PermuteOp

    for node in list(b.nodes.values())[1:]:
        if isinstance(node.op, PermuteOp | PadOp | FlipOp):
            y = c.add(node.op, y)
        elif isinstance(node.op, ExpandOp):
            sizes = list(c.shape(y))
            new = [d for d in range(len(sizes) + 1) if d not in node.op.broadcast_dimensions]
            for d in new:
                sizes.insert(d, node.op.result_shape[d])
            y = c.add(ExpandOp(tuple(sizes), node.op.broadcast_dimensions), y)
        else:
            break
    y = c.fn("neg", y)
    size = data.draw(st.integers(2, 4))
    x = np.random.rand(size, *[s.as_int() or 0 for s in first.shape[1:]]).astype("f4")
    module = c.module(y)
    assert free_vars(module.main.signature.inputs[0].shape[0]) == {"S"}
    check(module, {"x": x}, {"S": size})
