"""Each rule of the verifier of IndexBooks, with an entry that breaks it, and entries at its edge that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import Expr, Floor, expr, shape
from tatami.core.module import Module
from tatami.core.signature import Input
from tatami.indexbook.analyse import analyse
from tatami.indexbook.ir import Access, Axis, Guard, IndexBook, IndexInfo, Operand, Piece
from tatami.indexbook.verify import verify
from tatami.tiny.ir import CallOp, Program, ResultOp, ResultType, ScatterOp
from tests.indexbook.test_verify import gemm, read
from tests.tiny.build import F32, I64, Build

replace = msgspec.structs.replace
TINY = gemm()
BOOK = analyse(TINY)


def entry(ident: str) -> IndexInfo:
    return BOOK.main.values[ident]


def with_entry(ident: str, info: IndexInfo | None) -> Module[IndexBook]:
    values = {k: v for k, v in {**BOOK.main.values, ident: info}.items() if v is not None}
    return Module({"main": replace(BOOK.main, values=values)})


def faults(ident: str, **fields: Any) -> list[str]:
    return [f"{d.at}: {d.why}" for d in verify(with_entry(ident, replace(entry(ident), **fields)), TINY)]


def axes(ident: str, number: int, **fields: Any) -> tuple[Axis, ...]:
    return tuple(replace(a, **fields) if k == number else a for k, a in enumerate(entry(ident).axes))


def floor(num: Expr, den: int) -> Expr:
    return Expr((((Floor(num, expr(den)),), 1),))


def guarded(index: Expr, value: str = "n6") -> tuple[Operand, ...]:
    guard = Guard(index, expr("M"))
    return (Operand((Piece((guard,), Access(value, shape("i0", "i1"))), Piece((), fill=0))),)


i = [expr(f"i{k}") for k in range(3)]
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("n3", {"operands": read("n1", "i1", "i0*i1")}, "i0*i1 is not affine with floordiv"),
    ("n3", {"operands": read("n1", "i1", "i7")}, "i7 names i7, no axis of the value"),
    ("n3", {"operands": read("n1", "i1", "r0")}, "r0 names r0, no axis of the value"),
    ("n9", {"operands": guarded(expr("i7"))}, "i7 names i7, no axis of the value"),
    ("n5", {"axes": axes("n5", 0, name="m")}, "axes are named ['m', 'i1', 'i2']"),
    ("n5", {"axes": axes("n5", 1, id=entry("n5").axes[0].id)}, "repeat"),
    ("n2", {"operands": read("n0", "i0", "i1")}, "broadcast axis i1 occurs in a map"),
    ("n5", {"axes": axes("n5", 0, kind="broadcast")}, "axis i0 of size M is kind broadcast"),
    ("n5", {"reduce_axes": (1,)}, "reduce_axes on a value that is not a reduce"),
    ("n5", {"acc_dtype": F32}, "reduce_axes on a value that is not a reduce"),
    ("n6", {"reduce_axes": (99,)}, "reduce_axes are [99]"),
    ("n6", {"reduced": (replace(entry("n6").reduced[0], id=99),)}, "reduce_axes are"),
    ("n6", {"axes": axes("n6", 0, id=99)}, "axis ids are [99"),
    ("n6", {"acc_dtype": DType.fp16}, "acc_dtype is fp16"),
    ("n8", {"flags": ()}, "an access that is not affine has no flag"),
    ("n3", {"operands": read("n1", floor(i[0], -2), "i1")}, "divides by less than 1"),
    ("n3", {"operands": read("n1", floor(floor(i[0], -2), 3), "i1")}, "divides by less than 1"),
    ("n3", {"operands": read("n1", Expr((((Floor(i[0], floor(expr("N"), -2)),), 1),)), "i1")}, "divides by less than 1"),
    ("n3", {"operands": read("n1", floor(i[0], 0), "i1")}, "divides by less than 1"),
    ("n5", {"operands": read("q", "i0")}, "reads 'q', which is not a value"),
    ("n5", {"operands": read("n2", "i0", "i1", "i2")}, "reads the movement value n2"),
    ("n9", {"operands": (Operand((Piece((Guard(i[0], expr("M")),), Access("n6", shape("i0", "i1"))),)),)}, "the last piece has guards"),
    ("n3", {"operands": read("n1", "(N*i1)//N + (0*i0 + i0)//(K*N)", "i0")}, "is not in simplest form"),
    ("n5", {"axes": axes("n5", 0, size=expr("M2"))}, "axes have sizes [M2, N, K], the node has shape [M, N, K]"),
    ("n0", {"axes": axes("n0", 0, size=expr("M2"))}, "the book has axis i0 of size M2 where the signature of A has size M"),
    ("n0", {"axes": entry("n0").axes[:1]}, "the book has 1 axes where the signature of A has rank 2"),
    ("n0", {"axes": entry("n5").axes}, "the book has 3 axes where the signature of A has rank 2"),
]  # fmt: skip


@pytest.mark.parametrize(("ident", "fields", "why"), WRONG, ids=[w[2] for w in WRONG])
def test_a_broken_rule_is_named(ident: str, fields: dict[str, Any], why: str) -> None:
    found = faults(ident, **fields)
    assert any(f.startswith(f"{ident}: ") and why in f for f in found), found


@pytest.mark.parametrize(
    ("ident", "fields", "count"),
    [
        ("n3", {"operands": read("n1", "i1", "i0*i1")}, 1),
        ("n5", {"axes": axes("n5", 0, name="m")}, 2),
        ("n6", {"reduce_axes": (99,)}, 1),
        ("n6", {"acc_dtype": DType.fp16}, 1),
        ("n8", {"flags": ()}, 1),
        ("n5", {"reduce_axes": (1,)}, 1),
        ("n3", {"operands": read("n1", floor(i[0], -2), "i1")}, 1),
        ("n0", {"axes": axes("n0", 0, size=expr("M2"))}, 2),
        ("n0", {"axes": entry("n0").axes[:1]}, 2),
        ("n0", {"axes": axes("n0", 0, size=expr("M2"))[:1]}, 2),
    ],
)
def test_what_is_broken_is_all_that_is_named(ident: str, fields: dict[str, Any], count: int) -> None:
    assert len(faults(ident, **fields)) == count


def test_what_breaks_no_rule_is_accepted() -> None:
    assert verify(BOOK, TINY) == []
    assert faults("n8", operands=read("n6", "i0*i1", "i1")) == []  # is flagged
    assert faults("n9", operands=guarded(expr("i0 + M"))) == []
    assert faults("n5", operands=read("n0", "i0", "i1")) == []
    assert faults("n5", operands=(Operand(()),)) == []
    for symbol in ("isize", "q1"):
        assert faults("n3", operands=read("n1", f"i1 + {symbol}", "i0")) == []
    eight = tuple(Piece((Guard(i[0] - k, expr("M")),), fill=k) for k in range(7))
    assert faults("n9", operands=(Operand((*eight, Piece((), fill=0))),)) == []
    many = (*eight, Piece((Guard(i[0] - 9, expr("M")),), fill=9))
    assert faults("n9", operands=(Operand((*many, Piece((), fill=0))),)) == ["n9: 9 pieces; the limit for good code is 8"]


def test_an_axis_of_one_is_read_at_0() -> None:
    b = Build()
    x = b.input("x", F32, 1, 4)
    tiny = b.module(b.fn("neg", b.expand(x, (3, 4), (0, 1))))
    book = analyse(tiny).main
    assert verify(Module({"main": book}), tiny) == []
    values = {**book.values, "n2": replace(book.values["n2"], operands=read("n0", "i0", "i1"))}
    found = verify(Module({"main": replace(book, values=values)}), tiny)
    assert [d.why for d in found] == ["n0 has size 1 there and is read at i0"]
    for operands in (read("q", "i0", "i1"), (Operand((Piece((), fill=0),)),)):
        values["n2"] = replace(book.values["n2"], operands=operands)
        assert all("size 1" not in d.why for d in verify(Module({"main": replace(book, values=values)}), tiny))


def test_simplest_forms_are_asked_of_movement() -> None:
    b = Build()
    tiny = b.module(b.fn("neg", b.flip(b.input("x", F32, 4), 0)))
    book = analyse(tiny).main
    for ident, count in (("n1", 1), ("n2", 0)):
        values = {**book.values, ident: replace(book.values[ident], operands=read("n0", "i0 + i0//4"))}
        assert len(verify(Module({"main": replace(book, values=values)}), tiny)) == count


def test_an_axis_of_one_may_be_a_broadcast() -> None:
    b = Build()
    tiny = b.module(b.fn("neg", b.input("x", F32, 1, 4)))
    book = analyse(tiny).main
    own = book.values["n1"]
    values = {**book.values, "n1": replace(own, axes=(replace(own.axes[0], kind="broadcast"), own.axes[1]))}
    assert verify(Module({"main": replace(book, values=values)}), tiny) == []


def test_every_program_and_value_has_its_entry() -> None:
    assert [d.why for d in verify(Module({}), TINY)] == ["the program has no book"]
    found = verify(with_entry("n5", None), TINY)
    assert [d.why for d in found if d.at == "n5"] == ["the value has no entry"]
    assert [d.why for d in verify(with_entry("n0", None), TINY) if d.at == "n0"] == ["the value has no entry"]
    two = Module({"f": TINY.main, "main": TINY.main})
    assert [d.at for d in verify(Module({"main": with_entry("n5", replace(entry("n5"), acc_dtype=F32)).main}), two)] == [
        "f",
        "n5",
    ]


def test_a_damaged_operand_of_a_reduce_is_named_once() -> None:
    found = faults("n5", axes=entry("n5").axes[:2])
    assert all(f.startswith("n5: ") for f in found) and found


def test_a_reduce_of_axes_that_its_operand_lost_says_nothing() -> None:
    b = Build()
    tiny = b.module(b.reduce(b.fn("neg", b.input("x", F32, "M", "N", "K")), "sum", (1, 2), F32))
    book = analyse(tiny).main
    values = {**book.values, "n1": replace(book.values["n1"], axes=book.values["n1"].axes[:2])}
    found = verify(Module({"main": replace(book, values=values)}), tiny)
    assert found and {d.at for d in found} == {"n1"}


def test_calls_and_scatters_are_flagged() -> None:
    b = Build()
    x = b.input("x", F32, 4)
    at = b.input("i", I64, 4)
    scatter = b.add(ScatterOp("set", (None,)), x, x, at)
    call = b.add(CallOp("host", ("unique",), (ResultType(F32, shape(4)),)), x, own=None)
    tiny = b.module(scatter, b.add(ResultOp(0), call))
    book = analyse(tiny).main
    assert verify(Module({"main": book}), tiny) == []
    for ident in (scatter, call):
        values = {**book.values, ident: replace(book.values[ident], flags=())}
        found = verify(Module({"main": replace(book, values=values)}), tiny)
        assert [f"{d.at}: {d.why}" for d in found] == [f"{ident}: an access that is not affine has no flag"]


def test_a_signature_without_the_input_says_nothing_of_the_book() -> None:
    main = TINY.main
    other = replace(main.signature, inputs=(Input("Z", F32, shape("M", "K")), *main.signature.inputs[1:]))
    assert verify(BOOK, Module({"main": Program(other, main.nodes, main.outputs)})) == []


@pytest.mark.parametrize(
    ("index", "is_copied"),
    [
        (" + ".join(f"s{k}" for k in range(63)) + " + i0", False),
        (" + ".join(f"s{k}" for k in range(64)) + " + i0", True),
        ("(" + " + ".join(f"s{k}" for k in range(62)) + " + i0)//4", False),
        ("(" + " + ".join(f"s{k}" for k in range(63)) + " + i0)//4", True),
    ],
)
def test_a_movement_value_is_read_as_it_is_only_if_a_further_step_is_too_long(index: str, is_copied: bool) -> None:
    """The map of the further movement, composed, would have more than 64 terms, those within floors included."""
    b = Build()
    moved = b.flip(b.input("x", F32, 4), 0)
    tiny = b.module(b.fn("add", b.flip(moved, 0), b.fn("neg", moved)))
    book = analyse(tiny).main
    index = index.replace("i0", "3 - i0")
    values = {
        **book.values,
        "n1": replace(book.values["n1"], operands=read("n0", index)),
        "n3": replace(book.values["n3"], operands=read("n1", "i0")),
    }
    found = [d.why for d in verify(Module({"main": replace(book, values=values)}), tiny)]
    assert ("reads the movement value n1" in found) != is_copied, found


def test_a_movement_value_without_an_entry_is_not_long() -> None:
    b = Build()
    tiny = b.module(b.fn("neg", b.flip(b.input("x", F32, 4), 0)))
    book = analyse(tiny).main
    values = {"n0": book.values["n0"], "n2": replace(book.values["n2"], operands=read("n1", "i0"))}
    found = [d.why for d in verify(Module({"main": replace(book, values=values)}), tiny)]
    assert "reads the movement value n1" in found


LONG = read("n0", " + ".join(f"s{k}" for k in range(64)) + " + 3 - i0")


@pytest.mark.parametrize(
    ("operands", "is_copied"),
    [
        (LONG, True),
        ((Operand((replace(LONG[0].pieces[0], guards=(Guard(expr("i0"), expr(4)),)), Piece((), fill=0))),), True),
        ((), False),
        ((*LONG, *LONG), False),
        (None, False),
    ],
)
def test_a_movement_value_of_one_operand_is_copied(operands: tuple[Operand, ...] | None, is_copied: bool) -> None:
    """A map that is too long for a further movement: alone, where a border is filled, twice, and without any."""
    b = Build()
    moved = b.flip(b.input("x", F32, 4), 0)
    tiny = b.module(b.fn("add", b.flip(moved, 0), b.fn("neg", moved)))
    book = analyse(tiny).main
    values = {**book.values, "n3": replace(book.values["n3"], operands=read("n1", "i0"))}
    if operands is None:
        del values["n1"]
    else:
        values["n1"] = replace(values["n1"], operands=operands)
    found = [d.why for d in verify(Module({"main": replace(book, values=values)}), tiny)]
    assert ("reads the movement value n1" in found) != is_copied, found
