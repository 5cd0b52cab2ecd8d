"""A view by an expression reads inside its tensor, or E1804 says where it does not: the same on every target."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

import tatami as tt
from tatami.core.algebra.bounds import affine_ends, bounds
from tatami.core.algebra.visit import evaluate
from tatami.core.codec import from_builtins, parse_text
from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.core.signature import Equation
from tatami.tiny.ir import GatherOp, Program, ViewOp
from tatami.tiny.verify import verify

SIGNATURE = "graph<N=4, M=2> main(x: f32[N], w: f32[M]) -> f32[M] "
VIEWS = {  # expression, (N, M) that read inside, (N, M) that do not, whether the ends are sizes
    "idx0 + 3": (((5, 2), (4, 1), (1, 0), (0, 0)), ((4, 2), (3, 1)), True),
    "N - 2 - idx0": (((4, 2), (3, 2), (0, 0)), ((2, 2), (1, 1)), True),
    "2 * idx0 + M": (((5, 2), (2, 1)), ((4, 2), (1, 1)), True),
    "idx0 * idx0": (((5, 3), (1, 1), (0, 0)), ((4, 3), (0, 1)), False),
    "(3 * idx0 + 1) / 2 - 1": (((4, 0), (3, 0)), ((3, 3), (1, 2)), False),
    "max(idx0 - M, 0) + 2": (((3, 2), (9, 4), (0, 0)), ((2, 2), (1, 1)), None),
}


def value_of(text: str, idx0: int, n: int, m: int) -> int:
    return int(eval(text.replace("/", "//"), {"max": max, "min": min}, {"idx0": idx0, "N": n, "M": m}))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("text", VIEWS)
def test_reads_are_inside_or_refused(text: str, target: str) -> None:
    f = tt.compile(tt.parse(SIGNATURE + "{ return x.view_expr([M], " + text + ") + 0.0 * w }"), target=target)
    inside, outside, _ = VIEWS[text]
    for n, m in inside:
        x = np.arange(n, dtype=np.float32)
        assert f(x=x, w=np.ones(m, np.float32))["output"].tolist() == [value_of(text, i, n, m) for i in range(m)]
    for n, m in outside:
        assert any(not 0 <= value_of(text, i, n, m) < n for i in range(m))
        with pytest.raises(tt.TatamiError, match="E1804"):
            f(x=np.arange(n, dtype=np.float32), w=np.ones(m, np.float32))


@pytest.mark.parametrize("text", VIEWS)
def test_only_what_no_equation_says_is_checked_element_by_element(text: str) -> None:
    f = tt.compile(tt.parse(SIGNATURE + "{ return x.view_expr([M], " + text + ") * w }"))
    ops = {type(n.op) for n in f.compilation.stages["tiny"].main.nodes}
    by_size = VIEWS[text][2]
    assert (ViewOp in ops, GatherOp in ops) == ((True, False) if by_size else (False, True))


def test_what_is_kept_inside_is_not_checked() -> None:
    text = "graph<N=4> main(x: f32[N]) -> f32[N] { return x.view_expr([N], min(max(idx0 - 1, 0), N - 1)) * 2.0 }"
    f = tt.compile(tt.parse(text))
    main = f.compilation.stages["tiny"].main
    (gather,) = (n.op for n in main.nodes if isinstance(n.op, GatherOp))
    assert not main.signature.assumptions and gather.bounds == "assume"
    assert f(x=np.arange(4, dtype=np.float32))["output"].tolist() == [0, 0, 2, 4]
    assert f(x=np.zeros(0, np.float32))["output"].shape == (0,)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_map_is_checked_axis_by_axis(target: str) -> None:
    """Element [0, 2] of two rows of two is outside, though the tensor has four elements."""
    g = tt.Graph("g")
    x = g.input("x", ("N", "K"), tt.fp32)
    g.output("y", x.one("view", shape=(expr(2), expr(2)), map=(expr("i0"), expr("i0*i1 + 1"))))
    f = tt.compile(g, target=target)
    assert f(x=np.arange(6, dtype=np.float32).reshape(2, 3))["y"].tolist() == [[1, 1], [4, 5]]
    for shape in ((2, 2), (1, 3)):
        with pytest.raises(tt.TatamiError, match="E1804"):
            f(x=np.ones(shape, np.float32))


def test_what_a_callee_reads_outside_is_told_where_it_is_called() -> None:
    text = """graph<N=4> third(x: f32[N]) -> f32[2] { return x.view_expr([2], idx0 + 3) }
    graph<N=4> main(x: f32[N]) -> f32[2] { return third(x) }"""
    f = tt.compile(tt.parse(text))
    with pytest.raises(tt.TatamiError, match="reads outside its tensor: N - 1 = 3 where at least 4 is needed"):
        f(x=np.ones(4, np.float32))


def test_ends_are_reached_and_bounds_hold() -> None:
    extents = {"i": expr("N"), "j": expr(3)}
    for text in ("i + 2*j - 1", "N*j - i", "4 - i*N"):
        ends = affine_ends(expr(text), extents)
        assert ends is not None
        for n in range(1, 5):
            values = [evaluate(expr(text), {"i": i, "j": j, "N": n}) for i in range(n) for j in range(3)]
            assert [evaluate(e, {"N": n}) for e in ends] == [min(values), max(values)]
    assert affine_ends(expr("i*j"), extents) is None and affine_ends(expr("i//2"), extents) is None
    for text in ("max(i - 1, 0)", "min(i + 1, N - 1)", "min(i, 2*j) - max(j, i)"):
        ends = bounds(expr(text), extents)
        assert ends is not None
        for n in range(1, 5):
            values = [evaluate(expr(text), {"i": i, "j": j, "N": n}) for i in range(n) for j in range(3)]
            low, high = (evaluate(e, {"N": n}) for e in ends)
            assert low <= min(values) and max(values) <= high


def test_a_tiny_document_without_the_equation_is_refused_and_told_it() -> None:
    f = tt.compile(tt.parse(SIGNATURE + "{ return x.view_expr([M], idx0 + 3) * w }"))
    module = f.compilation.stages["tiny"]
    assert verify(module) == []

    def with_assumptions(*equations: Equation) -> Module[Program]:
        signature = replace(module.main.signature, assumptions=equations)
        return Module({"main": replace(module.main, signature=signature)})

    (fault,) = verify(with_assumptions())
    assert fault.kind == "IndexOutOfRange"
    told = re.findall(r"{.*?}", fault.suggestion)
    assert verify(with_assumptions(*(from_builtins(parse_text(t), Equation) for t in told))) == []
