import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.canonicalise import canonicalise
from tatami.region.fusion.partition import partition
from tatami.region.ir import (
    Binary,
    Cast,
    Const,
    Index,
    Iter,
    Let,
    Param,
    Read,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Target,
    Unary,
    Yield,
)
from tatami.region.lower import lower
from tatami.region.rules.reduces import distribute, hoist_invariant, merge_nested_reduce
from tatami.region.walk import nodes
from tatami.tiny.ir import Program
from tests.tiny_programs import Builder, attention, conv_padded, gemm_bias_relu, layer_norm, row_softmax

F = DType.fp32


def canonical(tiny: Module[Program]) -> Region:
    book = analyse(tiny)
    view = extract(tiny, book)
    module = canonicalise(lower(tiny, book, view, partition(tiny, book, view, PRESETS["cpu:avx2"])))
    (region,) = module.main.body
    assert isinstance(region, Region)
    return region


def test_gemm_reads_its_operands_inside_the_reduce() -> None:
    region = canonical(gemm_bias_relu())
    acc = region.lets[0]
    body = Binary("mul", Read("n0", (expr("m"), expr("k"))), Read("n1", (expr("k"), expr("n"))))
    assert acc.expr == Reduce("sum", ("k",), None, F, body)
    assert [let.axes for let in region.lets] == [("m", "n")] * 3
    assert region.yields == (Yield("n13", "n14", cast=DType.fp16),)
    assert [i.name for i in region.iters] == ["m", "n"]
    assert [i.name for i in region.reduce_axes] == ["k"]


def test_softmax_has_its_four_lets() -> None:
    region = canonical(row_softmax())
    assert [let.axes for let in region.lets] == [("i0",), ("i0", "i1"), ("i0",), ("i0", "i1")]
    assert region.reduce_axes == ()


@pytest.mark.parametrize(("build", "lets"), [(conv_padded, 1), (layer_norm, 8), (attention, 7)])
def test_the_examples_become_few_lets(build, lets: int) -> None:
    assert len(canonical(build()).lets) == lets


def region_of(lets: tuple[Let, ...], out: str, tensors: dict[str, tuple[str, ...]], dtype: DType = F) -> Region:
    axes = {"m": "M", "n": "N", "k": "K"}
    iters = {a for let in lets for a in let.axes}
    last = next(let for let in lets if let.name == out)
    return Region(
        name="r",
        iters=tuple(Iter(a, expr(s)) for a, s in axes.items() if a in iters),
        reduce_axes=tuple(Iter(a, expr(s)) for a, s in axes.items() if a not in iters),
        inputs=tuple(Param(t, MemRef(dtype, tuple(expr(axes[a]) for a in names))) for t, names in tensors.items()),
        outputs=(Target("out", MemRef(dtype, tuple(expr(axes[a]) for a in last.axes))),),
        lets=lets,
        yields=(Yield(out, "out"),),
    )


def read(tensor: str, *axes: str) -> Read:
    return Read(tensor, tuple(expr(a) for a in axes))


def nested(outer: str, inner: str) -> Region:
    lets = (
        Let("t", ("m", "n"), F, Reduce(inner, ("k",), None, F, read("x", "m", "n", "k"))),
        Let("s", ("m",), F, Reduce(outer, ("n",), None, F, Ref("t"))),
    )
    return region_of(lets, "s", {"x": ("m", "n", "k")})


def test_nested_sums_merge_and_different_ops_do_not() -> None:
    merged = merge_nested_reduce(nested("sum", "sum"))
    assert merged.lets[1].expr == Reduce("sum", ("n", "k"), None, F, read("x", "m", "n", "k"))
    for outer, inner in (("max", "sum"), ("sum", "max")):
        assert merge_nested_reduce(nested(outer, inner)) == nested(outer, inner)


WHOLE = Cast(Index(expr("m"), DType.i64), F)
"""A float that is an integer, hence finite."""


def scaled(fn: str, factor: RegionExpr = WHOLE) -> Region:
    body = Binary("mul", factor, read("x", "m", "k"))
    return region_of((Let("y", ("m",), F, Reduce(fn, ("k",), None, F, body)),), "y", {"c": ("m",), "x": ("m", "k")})


@pytest.mark.parametrize("factor", [WHOLE, Const(0.5, F), Unary("tanh", WHOLE)])
def test_a_finite_factor_leaves_a_sum_but_not_a_max(factor: RegionExpr) -> None:
    inner, outer = hoist_invariant(scaled("sum", factor)).lets
    assert inner.expr == Reduce("sum", ("k",), None, F, read("x", "m", "k"))
    assert outer.expr == Binary("mul", Ref("y_s"), factor)
    assert hoist_invariant(scaled("max", factor)) == scaled("max", factor)


@pytest.mark.parametrize("factor", [read("c", "m"), Unary("exp", WHOLE), Const(float("inf"), F), Binary("div", WHOLE, WHOLE)])
def test_a_factor_that_may_be_infinite_stays_in_a_sum(factor: RegionExpr) -> None:
    """inf * 0 in one term makes the sum NaN, and a sum of nothing is 0."""
    assert hoist_invariant(scaled("sum", factor)) == scaled("sum", factor)


def test_a_sum_is_computed_once_for_axes_that_only_its_factor_has() -> None:
    let = Let("y", ("m",), F, Reduce("sum", ("k",), None, F, Binary("mul", WHOLE, read("x", "k"))))
    inner, outer = hoist_invariant(region_of((let,), "y", {"c": ("m",), "x": ("k",)})).lets
    assert inner.axes == () and inner.expr == Reduce("sum", ("k",), None, F, read("x", "k"))
    assert outer.axes == ("m",)


def test_nothing_leaves_a_sum_of_nothing() -> None:
    """A factor may read an element that does not exist: x[0] of no elements."""
    body = Binary("mul", Read("c", (expr(0),)), read("x", "m", "k"))
    region = region_of((Let("y", ("m",), F, Reduce("sum", ("k",), None, F, body)),), "y", {"c": ("k",), "x": ("m", "k")})
    region = msgspec.structs.replace(region, reduce_axes=(Iter("k", expr(0)),))
    assert hoist_invariant(region) == region


def products(dtype: DType) -> Region:
    a, x, y = read("a", "k"), read("x", "m", "k"), read("y", "m", "k")
    body = Binary("add", Binary("mul", a, x), Binary("mul", a, y))
    let = Let("s", ("m",), dtype, Reduce("sum", ("k",), None, dtype, body))
    return region_of((let,), "s", {"a": ("k",), "x": ("m", "k"), "y": ("m", "k")}, dtype)


def test_distribution_is_exact_for_integers_and_refused_for_floats() -> None:
    made = distribute(products(DType.i32), "s").lets[0].expr
    assert isinstance(made, Reduce)
    assert made.body == Binary("mul", read("a", "k"), Binary("add", read("x", "m", "k"), read("y", "m", "k")))
    with pytest.raises(TatamiError, match="E1402"):
        distribute(products(F), "s")


def test_rules_are_stable() -> None:
    from tatami.region.canonicalise import canonical_region

    for build in (gemm_bias_relu, row_softmax, conv_padded, layer_norm, attention):
        once = canonical(build())
        assert canonical_region(once) == once
        assert msgspec.structs.asdict(once)


def test_a_constant_factor_of_an_operand_is_applied_after_the_contraction() -> None:
    b = Builder()
    x, w = b.input("x", ("M", "K")), b.input("w", ("K", "N"))
    y = b.matmul(b.op("mul", x, b.const(0.125)), w)
    b.output("y", y)
    region = canonical(b.module())
    assert [let.name for let in region.lets] == [f"{y}_s", y]
    assert isinstance(region.lets[0].expr, Reduce)


def test_a_mean_of_means_is_one_sum() -> None:
    b = Builder()
    x = b.input("x", ("M", 4, 8))
    inner = b.op("mul", b.reduce("sum", x, 2), b.const(0.125))
    b.output("y", b.op("mul", b.reduce("sum", inner, 1), b.const(0.25)))
    reduces = [let.expr for let in canonical(b.module()).lets if isinstance(let.expr, Reduce)]
    assert [len(e.axes) for e in reduces] == [2]


def test_an_index_that_is_a_coordinate_inside_the_data_is_a_plain_read() -> None:
    b = Builder()
    x = b.input("x", (4, 3))
    b.output("y", b.op("exp", b.gather(x, (4, 3), (None, "i1"), b.iota((4, 3), 0))))
    b2 = Builder()
    short = b2.input("x", (2, 3))
    b2.output("y", b2.op("exp", b2.gather(short, (4, 3), (None, "i1"), b2.iota((4, 3), 0))))
    plain, checked = canonical(b.module()), canonical(b2.module())
    assert [type(n).__name__ for n in nodes(plain.lets[0].expr)] == ["Unary", "Read"]
    assert [type(n).__name__ for n in nodes(checked.lets[0].expr)] == ["Unary", "ReadAt", "Index"]
