import islpy as isl
import msgspec
import pytest

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.indexbook.analyse import analyse
from tatami.indexbook.ir import Guard
from tatami.poly_view.extract import extract
from tatami.poly_view.guards import GuardCache, are_independent
from tatami.poly_view.ir import Edge, PolyView
from tatami.poly_view.isl_cache import IslCache
from tatami.poly_view.show import access_text, domain_text, show
from tatami.poly_view.verify import verify
from tatami.tiny.ir import Program
from tests.tiny_programs import Builder, attention, conv_padded, gemm_bias_relu, layer_norm, row_softmax

EXAMPLES = (gemm_bias_relu, conv_padded, layer_norm, row_softmax, attention)


def viewed(tiny: Module[Program]) -> PolyView:
    return extract(tiny, analyse(tiny)).main


def edge(view: PolyView, producer: str, consumer: str) -> Edge:
    return next(e for e in view.edges if (e.producer, e.consumer) == (producer, consumer))


def test_gemm_is_a_matmul_with_its_roles() -> None:
    (p,) = viewed(gemm_bias_relu()).patterns
    assert (p.pattern, p.m, p.n, p.k, p.batch) == ("matmul", ("i0",), ("i1",), ("r0",), ())
    assert [str(e) for e in p.lhs.map] == ["i0", "r0"]
    assert [str(e) for e in p.rhs.map] == ["r0", "i1"]
    assert p.affine_offsets == {}


def test_a_shared_leading_axis_is_batch() -> None:
    b = Builder()
    b.output("y", b.matmul(b.input("a", ("B", "M", "K")), b.input("b", ("B", "K", "N"))))
    (p,) = viewed(b.module()).patterns
    assert (p.pattern, p.batch, p.m, p.n, p.k) == ("batched_matmul", ("i0",), ("i1",), ("i2",), ("r0",))


def test_conv_has_affine_offsets() -> None:
    (p,) = viewed(conv_padded()).patterns
    assert p.pattern == "conv"
    assert {k: str(e) for k, e in p.affine_offsets.items()} == {"lhs.2": "2*i2 + r1 - 1", "lhs.3": "2*i3 + r2 - 1"}


def test_attention_names_its_two_contractions() -> None:
    assert [p.role for p in viewed(attention()).patterns] == ["qk_matmul", "pv_matmul"]


def test_a_sum_of_squares_is_a_dot() -> None:
    b = Builder()
    x = b.input("x", ("M", "K"))
    b.output("y", b.reduce("sum", b.op("mul", x, x), 1))
    (p,) = viewed(b.module()).patterns
    assert p.pattern == "dot"


def test_a_product_used_twice_is_no_pattern_and_is_reported() -> None:
    b = Builder()
    x, w = b.input("x", ("M", 1, "K")), b.input("w", (1, "N", "K"))
    full = ("M", "N", "K")
    p = b.op("mul", b.expand(x, full, (0, 1, 2)), b.expand(w, full, (0, 1, 2)))
    b.output("y", b.reduce("sum", p, 2))
    b.output("p", p)
    m = b.module()
    view = extract(m, analyse(m))
    assert view.main.patterns == ()
    assert [d.code for d in verify(view, m, analyse(m))] == ["W2201"]


def test_edges_say_how_the_consumer_reads() -> None:
    b = Builder()
    x = b.input("x", (4, 6))
    e = b.op("exp", x)
    r = b.op("relu", b.reshape(e, 24))
    s = b.op("relu", b.pad(e, (1, 0), (0, 0)))
    w = b.reduce("max", b.view(e, (2, 6, 3), "i0 + i2", "i1"), 2)
    for name, v in (("r", r), ("s", s), ("w", w)):
        b.output(name, v)
    view = viewed(b.module())
    assert edge(view, e, r).rule == "reshape"
    assert edge(view, e, s).rule == "inline"
    assert edge(view, e, w).halo == {"i0": 2}


def test_a_window_over_a_reduce_has_a_halo_in_bytes() -> None:
    b = Builder()
    x = b.input("x", (16, 8))
    first = b.reduce("sum", b.view(x, (14, 8, 3), "i0 + i2", "i1"), 2)
    second = b.reduce("sum", b.view(first, (12, 8, 3), "i0 + i2", "i1"), 2)
    b.output("y", second)
    made = edge(viewed(b.module()), first, second)
    assert (made.rule, made.halo, made.fusible) == ("halo", {"i0": 2}, True)
    assert made.halo_bytes == 2 * 8 * 4


def test_gathered_data_is_a_forbidden_edge_with_a_remedy() -> None:
    b = Builder()
    e = b.op("exp", b.input("x", (100, 8)))
    y = b.gather(e, ("B", 8), (None, "i1"), b.input("i", ("B", 8), DType.i64))
    b.output("y", y)
    made = edge(viewed(b.module()), e, y)
    assert (made.fusible, made.rule) == (False, "non_scop")
    assert made.change


def test_readers_of_a_mutable_input_come_before_its_update() -> None:
    b = Builder()
    c = b.input("c", (6, 4), mutability="mutable")
    total = b.reduce("sum", c, 0)
    n = b.scatter("set", c, b.input("u", (2, 4)), (None, "i1"), b.input("i", (2, 4), DType.i64))
    b.output("c", n, updates="c")
    b.output("t", total)
    assert [(d.source, d.target) for d in viewed(b.module()).dependences if d.kind == "anti"] == [(total, n)]


def test_pad_of_slice_of_pad_keeps_no_redundant_guard() -> None:
    b = Builder()
    x = b.input("x", (8,))
    y = b.pad(b.shrink(b.pad(x, (2, 2)), (1,), (11,)), (1, 1))
    b.output("y", b.op("exp", y))
    (s,) = viewed(b.module()).statements
    assert [len(a.guards) for a in s.reads] == [1]


@pytest.mark.parametrize("build", EXAMPLES)
def test_the_dump_is_isl_text(build) -> None:
    view = viewed(build())
    for s in view.statements:
        isl.Set(domain_text(s))
        for a in s.reads:
            isl.Map(access_text(s, a))
    assert show(Module({"main": view})).startswith("poly_view main\n")


@pytest.mark.parametrize("build", EXAMPLES)
def test_the_api_built_access_equals_the_text(build) -> None:
    cache = IslCache()
    for s in viewed(build()).statements:
        extents = {a.name: a.size for a in (*s.axes, *s.reduced)}
        for a in s.reads:
            made = cache.access(tuple(e for e in a.map if e is not None), extents, a.guards)
            assert made is not None
            parsed = isl.Map(access_text(s, a))
            parsed = parsed.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
            for k in range(parsed.dim(isl.dim_type.param)):
                parsed = parsed.lower_bound_val(isl.dim_type.param, k, isl.Val(1))
            assert isl.Map.from_pw_multi_aff(made).is_equal(parsed)


@pytest.mark.parametrize("build", EXAMPLES)
def test_the_view_passes_its_verifier_and_round_trips(build) -> None:
    tiny = build()
    book = analyse(tiny)
    view = extract(tiny, book)
    assert verify(view, tiny, book) == []
    assert from_builtins(to_builtins(view.main), PolyView) == view.main


def test_planted_faults_are_found() -> None:
    tiny = gemm_bias_relu()
    book = analyse(tiny)
    view = extract(tiny, book)
    first = view.main.statements[0]
    faults = [
        msgspec.structs.replace(view.main, statements=(msgspec.structs.replace(first, axes=()), *view.main.statements[1:])),
        msgspec.structs.replace(view.main, edges=(Edge("n9", "n8", True, "pointwise"),)),
        msgspec.structs.replace(view.main, patterns=(msgspec.structs.replace(view.main.patterns[0], k=()),)),
    ]
    for fault in faults:
        assert any(d.code == "E1605" for d in verify(Module({"main": fault}), tiny, book))


def test_guards_on_one_axis_that_follow_from_another_are_dropped() -> None:
    extents = {"i": expr("N"), "j": expr("N")}
    wide, narrow = Guard(expr("i - 1"), expr("N + 2")), Guard(expr("i - 2"), expr("N - 1"))
    other = Guard(expr("j - 1"), expr("N"))
    assert GuardCache().needed((wide, narrow, other), extents) == (narrow, other)
    assert GuardCache().needed((Guard(expr("i"), expr("N")),), extents) == ()


def test_independent_guards_are_what_isl_keeps() -> None:
    extents = {"i": expr("N"), "j": expr(8)}
    guards = (Guard(expr("i - 1"), expr("N")), Guard(expr("2*j - 3"), expr(8)))
    assert are_independent(guards, extents)
    assert IslCache().without_redundant(guards, extents) == guards
