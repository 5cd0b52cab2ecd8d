"""Each rule of the verifier of PolyViews, with a view that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.indexbook.analyse import analyse
from tatami.indexbook.ir import Guard
from tatami.poly_view.extract import extract
from tatami.poly_view.ir import PolyView
from tatami.poly_view.verify import lost_contractions, verify
from tatami.tiny.ir import CallOp, Program, ResultOp, ResultType
from tests.tiny.build import F16, F32, Build

replace = msgspec.structs.replace


def product(**between: Any) -> Module[Program]:
    """y[M, N] = sum over k of x[M, k] * w[k, N], with what stands between product and sum."""
    b = Build()
    x, w = b.input("x", F32, "M", "K"), b.input("w", F32, "K", "N")
    p = b.fn("mul", b.expand(x, ("M", "N", "K"), (0, 2)), b.expand(b.permute(w, 1, 0), ("M", "N", "K"), (1, 2)))
    if between.get("cast"):
        p = b.cast(b.cast(p, F16), F32)
    if between.get("pad"):
        p = b.pad(p, (0, 0), (0, 0), (1, 0))
    y = b.reduce(p, between.get("op", "sum"), (2,), F32)
    more = [b.fn("neg", p)] if between.get("used") else [p] if between.get("stored") else []
    return b.module(b.fn("relu", y), *more)


TINY = product()
BOOK = analyse(TINY)
VIEW = extract(TINY, BOOK).main


def faults(view: PolyView, tiny: Module[Program] = TINY) -> list[str]:
    found = verify(Module({"main": view}), tiny, BOOK if tiny is TINY else analyse(tiny))
    return [f"{d.at}: {d.why}" for d in found]


def statement(of: str, **fields: Any) -> PolyView:
    return replace(VIEW, statements=tuple(replace(s, **fields) if s.value == of else s for s in VIEW.statements))


def reads(value: str, change: Callable[[Any], Any], number: int = 0) -> PolyView:
    s = next(s for s in VIEW.statements if s.value == value)
    return statement(value, reads=tuple(change(a) if k == number else a for k, a in enumerate(s.reads)))


def edge(number: int, **fields: Any) -> PolyView:
    return replace(VIEW, edges=tuple(replace(e, **fields) if k == number else e for k, e in enumerate(VIEW.edges)))


def pattern(**fields: Any) -> PolyView:
    return replace(VIEW, patterns=(replace(VIEW.patterns[0], **fields),))


MUL, SUM, RELU = (s.value for s in VIEW.statements)
axes = next(s.axes for s in VIEW.statements if s.value == MUL)
WRONG: list[tuple[PolyView, str]] = [
    (statement(RELU, value="q"), "q: the statement computes a value that the program lacks"),
    (statement(MUL, axes=axes[::-1]), f"{MUL}: its axes differ from the IndexBook's"),
    (statement(SUM, reduced=()), f"{SUM}: its axes differ from the IndexBook's"),
    (reads(MUL, lambda a: replace(a, tensor="q")), f"{MUL}: it reads q, which does not exist"),
    (reads(MUL, lambda a: replace(a, map=a.map[:1])), f"{MUL}: it reads n0 with 1 coordinates of 2"),
    (reads(MUL, lambda a: replace(a, map=(*a.map, None))), f"{MUL}: it reads n0 with 3 coordinates of 2"),
    (
        reads(MUL, lambda a: replace(a, map=shape("q0", "i2"))),
        f"{MUL}: a coordinate names q0, which is neither an axis nor a size",
    ),
    (pattern(value=MUL), f"{MUL}: a contraction pattern stands at a value that is not a reduce"),
    (pattern(value="q"), "q: a contraction pattern stands at a value that is not a reduce"),
    (pattern(m=()), f"{SUM}: its roles cover i1, r0 but its axes are i0, i1, r0"),
    (pattern(n=()), f"{SUM}: its roles cover i0, r0 but its axes are"),
    (pattern(k=()), f"{SUM}: its roles cover i0, i1 but its axes are"),
    (pattern(batch=("i0",)), f"{SUM}: its roles cover i0, i0, i1, r0 but its axes are"),
    (edge(0, producer="q"), "q: the edge to "),
    (edge(0, producer="n0"), "n0: the edge to "),
    (edge(0, consumer="q"), "the edge to q ends at no statement"),
    (edge(0, producer=VIEW.edges[0].consumer, consumer=VIEW.edges[0].producer), "runs against program order"),
    (edge(0, consumer=VIEW.edges[0].producer), "runs against program order"),
    (edge(0, fusible=False, rule=""), "is forbidden by no rule"),
]


@pytest.mark.parametrize(("view", "why"), WRONG, ids=[w for _, w in WRONG])
def test_a_broken_rule_is_named(view: PolyView, why: str) -> None:
    assert any(why in f for f in faults(view)), faults(view)


def test_what_breaks_no_rule_is_accepted() -> None:
    assert faults(VIEW) == []
    assert faults(edge(0, fusible=False, rule="shape")) == [] == faults(edge(0, fusible=True, rule=""))
    assert faults(reads(MUL, lambda a: replace(a, map=(None, a.map[1])))) == []
    assert faults(reads(MUL, lambda a: replace(a, map=(a.map[0] + expr("M - M"), a.map[1])))) == []
    assert faults(reads(RELU, lambda a: replace(a, map=(expr("M - 1"), *a.map[1:])))) == []


def test_faults_of_a_statement_are_counted() -> None:
    both = reads(MUL, lambda a: replace(a, tensor="q", map=shape("q0", "i2")))
    assert len([f for f in faults(both) if f.startswith(MUL)]) == 2


@pytest.mark.parametrize(("count", "found"), [(16, 0), (17, 1)])
def test_many_pieces_are_slow(count: int, found: int) -> None:
    s = next(s for s in VIEW.statements if s.value == RELU)
    pieces = tuple(replace(s.reads[0], guards=(Guard(expr("i0"), expr("M") + k),)) for k in range(count))
    said = faults(statement(RELU, reads=(*pieces, pieces[0])))
    assert len(said) == found and all("17 pieces; more than 16" in f for f in said)


def test_views_are_of_programs_that_there_are() -> None:
    found = verify(Module({"f": VIEW, "main": edge(0, fusible=False, rule="")}), TINY, BOOK)
    assert [d.why.split(" ")[0] for d in found] == ["no", "the"]
    assert [d.at for d in verify(Module({"main": VIEW}), TINY, Module({}))] == ["main"]


def test_sizes_that_a_step_finds_are_known() -> None:
    b = Build()
    x = b.input("x", F32, 4)
    call = b.add(CallOp("host", ("unique",), (ResultType(F32, shape("S")),), new_symbols=("S",)), x)
    tiny = b.module(b.fn("neg", b.add(ResultOp(0), call)))
    view = extract(tiny, analyse(tiny)).main
    last = view.statements[-1]
    read = replace(last.reads[0], map=(expr("S - 1"),))
    assert faults(replace(view, statements=(*view.statements[:-1], replace(last, reads=(read,)))), tiny) == []


LOST: list[tuple[dict[str, Any], str]] = [
    ({}, "the summed axes do not occur in both operands"),
    ({"cast": True}, "a conversion stands between product"),
    ({"used": True}, "is used elsewhere too"),
    ({"stored": True}, "is used elsewhere too"),
    ({"pad": True}, "is padded or sliced before the sum"),
]


@pytest.mark.parametrize(("between", "why"), LOST, ids=[w for _, w in LOST])
def test_a_lost_contraction_is_named_with_its_reason(between: dict[str, Any], why: str) -> None:
    tiny = product(**between)
    view = extract(tiny, analyse(tiny)).main
    found = faults(replace(view, patterns=()), tiny)
    assert len(found) == 1 and why in found[0], found


def test_what_is_no_product_of_two_sides_is_not_lost() -> None:
    most = product(op="max")
    assert faults(replace(extract(most, analyse(most)).main, patterns=()), most) == []
    b = Build()
    x = b.input("x", F32, "M", "K")
    for made in (b.fn("mul", x, x), b.fn("add", x, x), b.fn("neg", x), x):
        b.reduce(made, "sum", (1,), F32)
    tiny = b.module(*(i for i, n in b.nodes.items() if type(n.op).__name__ == "ReduceOp"))
    assert faults(replace(extract(tiny, analyse(tiny)).main, patterns=()), tiny) == []


def test_a_view_is_of_a_program_and_of_its_indexbook() -> None:
    assert [d.at for d in verify(Module({"f": VIEW}), TINY, Module({"f": BOOK.main}))] == ["f"]
    lacks = "the statement computes a value that the program lacks"
    values = BOOK.main.values
    for book in (
        replace(BOOK.main, values={n: v for n, v in values.items() if n != RELU}),
        replace(BOOK.main, values={**values, "q": values[RELU]}),
    ):
        view = VIEW if RELU not in book.values else statement(RELU, value="q")
        assert lacks in [d.why for d in verify(Module({"main": view}), TINY, Module({"main": book}))]


def test_sizes_that_a_call_finds_are_known_without_a_value_of_theirs() -> None:
    b = Build()
    x = b.input("x", F32, 4)
    b.add(CallOp("host", ("count",), (), new_symbols=("S",)), x)
    tiny = b.module(b.fn("neg", x))
    view = extract(tiny, analyse(tiny)).main
    (last,) = [s for s in view.statements if s.reads]
    changed = replace(last, reads=(replace(last.reads[0], map=(expr("S - 1"),)),))
    statements = tuple(changed if s is last else s for s in view.statements)
    assert faults(replace(view, statements=statements), tiny) == []


def summed(left: str, right: str, fn: str = "mul", **sizes: Any) -> Module[Program]:
    """y[m, n] = sum over k of a function of two operands, each over some of the axes m, n, k."""
    b = Build()
    names = "mnk"
    full = tuple(sizes.get(a, a.upper()) for a in names)
    operands = []
    for name, own in (("x", left), ("w", right)):
        x = b.input(name, F32, *(full[names.index(a)] for a in own))
        operands.append(b.expand(x, full, tuple(names.index(a) for a in own)))
    return b.module(b.reduce(b.fn(fn, *operands), "sum", (2,), F32))


@pytest.mark.parametrize(
    ("left", "right", "fn", "sizes", "lost"),
    [
        ("mk", "nk", "mul", {}, 1),
        ("mk", "nk", "add", {}, 0),
        ("mk", "k", "mul", {}, 0),
        ("k", "nk", "mul", {}, 0),
        ("mk", "n", "mul", {}, 0),
        ("mnk", "mnk", "mul", {}, 0),
        ("mk", "nk", "mul", {"m": 1}, 0),
    ],
)
def test_two_sides_and_what_they_share_make_a_contraction(left: str, right: str, fn: str, sizes: Any, lost: int) -> None:
    tiny = summed(left, right, fn, **sizes)
    assert len(faults(replace(extract(tiny, analyse(tiny)).main, patterns=()), tiny)) == lost


def test_axes_of_one_element_have_no_role() -> None:
    tiny = summed("mk", "nk", m=1)
    view = extract(tiny, analyse(tiny)).main
    assert faults(view, tiny) == []
    if view.patterns:
        assert not {"i0"} & {*view.patterns[0].m, *view.patterns[0].batch}


def test_what_is_read_otherwise_is_not_lost() -> None:
    """Reads in pieces, no reads, and reads of a value that does not exist."""
    bare = replace(VIEW, patterns=())

    def lost(of: str, change: Callable[[tuple[Any, ...]], tuple[Any, ...]], view: PolyView = bare) -> list[str]:
        statements = tuple(replace(s, reads=change(s.reads)) if s.value == of else s for s in view.statements)
        return [d.why for d in lost_contractions(replace(view, statements=statements), TINY.main)]

    assert len(lost(SUM, lambda r: r)) == 1
    assert lost(SUM, lambda r: r + r) == [] == lost(SUM, lambda r: ())
    assert lost(SUM, lambda r: (replace(r[0], tensor="q"),)) == []
    assert lost(MUL, lambda r: (*r, r[0])) == [] == lost(MUL, lambda r: r[:1])
    assert len(lost(MUL, lambda r: (replace(r[0], map=(*r[0].map, None)), r[1]))) == 1
    tiny = product(cast=True)
    view = extract(tiny, analyse(tiny)).main
    casts = [s.value for s in view.statements if s.kind == "elementwise" and s.value not in (MUL,)]
    for value in casts:
        statements = tuple(replace(s, reads=()) if s.value == value else s for s in view.statements)
        assert isinstance(lost_contractions(replace(view, statements=statements, patterns=()), tiny.main), list)
