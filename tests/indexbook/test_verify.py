"""Each MUST of spec 3 §4.3 with a planted fault."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.expr import Expr, Floor, expr, shape
from tatami.core.module import Module
from tatami.indexbook.analyse import analyse
from tatami.indexbook.ir import Access, Axis, Guard, IndexInfo, Operand, Piece
from tatami.indexbook.json_form import decode, encode
from tatami.indexbook.verify import verify
from tatami.tiny.ir import GatherOp, Program
from tests.tiny.build import F32, I64, Build
from tests.tiny.loading.test_load_damaged import damaged


def gemm() -> Module[Program]:
    b = Build()
    x, w = b.input("A", F32, "M", "K"), b.input("B", F32, "K", "N")
    p = b.fn("mul", b.expand(x, ("M", "N", "K"), (0, 2)), b.expand(b.permute(w, 1, 0), ("M", "N", "K"), (1, 2)))
    r = b.reduce(p, "sum", (2,), F32)
    i = b.input("i", I64, "M", "N")
    return b.module(r, b.add(GatherOp(shape("M", "N"), (None, expr("i1"))), r, i), b.pad(r, (1, 1), (0, 0)))


def faults(ident: str, **fields: Any) -> set[str]:
    tiny = gemm()
    book = analyse(tiny)
    assert verify(book, tiny) == []
    values = dict(book.main.values)
    values[ident] = msgspec.structs.replace(values[ident], **fields)
    return {d.kind for d in verify(Module({"main": msgspec.structs.replace(book.main, values=values)}), tiny)}


def entry(ident: str) -> IndexInfo:
    return analyse(gemm()).main.values[ident]


def read(value: str, *index: Any) -> tuple[Operand, ...]:
    return (Operand((Piece((), Access(value, tuple(e if isinstance(e, Expr) else expr(e) for e in index))),)),)


def test_must_1_maps_are_affine() -> None:
    assert faults("n3", operands=read("n1", "i1", "i0*i1")) == {"MissingDivGuard"}
    assert "AxisOutOfRange" in faults("n3", operands=read("n1", "i1", "i7"))


def test_must_2_axes_are_numbered() -> None:
    axes = entry("n5").axes
    assert "InvalidDocument" in faults("n5", axes=(msgspec.structs.replace(axes[0], name="m"), *axes[1:]))
    assert "DuplicateId" in faults("n5", axes=(msgspec.structs.replace(axes[1], name="i0", size=expr("M")), *axes[1:]))


def test_must_3_broadcasts_are_zero() -> None:
    assert faults("n2", operands=read("n0", "i0", "i1")) == {"InvalidDocument"}


def test_must_4_reduce_axes_are_recorded() -> None:
    assert faults("n6", reduce_axes=(99,)) == {"InvalidDocument"}
    assert faults("n6", acc_dtype=None) == {"AccDtypeMissing"}
    kept = tuple(Axis(a.id + 50, a.name, a.size, a.kind) for a in entry("n6").axes)
    assert faults("n6", axes=kept) == {"InvalidDocument"}
    assert faults("n5", acc_dtype=F32) == {"InvalidDocument"}


def test_must_5_non_affine_is_flagged() -> None:
    assert faults("n8", flags=()) == {"InvalidDocument"}


def test_must_6_denominators_are_positive() -> None:
    negative = Expr((((Floor(expr("i0"), expr(-2)),), 1),))
    assert "MissingDivGuard" in faults("n3", operands=read("n1", negative, "i1"))


def test_must_7_movement_is_composed_and_simplified() -> None:
    assert faults("n5", operands=read("n2", "i0", "i1", "i2") + read("n1", "i2", "i1")) == {"InvalidDocument"}
    loose = expr("i0 + (i1 - N*(i1//N))//(N*K)")
    assert "InvalidDocument" in faults("n9", operands=read("n6", loose, "i1"))
    guarded = Operand((Piece((Guard(expr("i0"), expr("M")),), Access("n6", (expr("i0"), expr("i1")))),))
    assert "InvalidDocument" in faults("n9", operands=(guarded,))
    many = tuple(Piece((Guard(expr("i0") - k, expr("M")),), fill=k) for k in range(9))
    assert "ExcessivePiecewise" in faults("n9", operands=(Operand((*many, Piece((), fill=0))),))


def test_symbols_of_the_signature_are_the_truth() -> None:
    axes = entry("n0").axes
    assert "AxisAlignmentMismatch" in faults("n0", axes=(msgspec.structs.replace(axes[0], size=expr("M2")), axes[1]))


def test_documents_round_trip_and_refuse_percent_and_bad_divisors() -> None:
    book = analyse(gemm()).main
    assert decode(encode(book)) == book
    for text in ("i0 % 4", "i0//-2", "i0//(-2)", "i0 // 0"):
        form = json.loads(json.dumps(encode(book)))
        form["values"]["n3"]["operands"][0]["pieces"][0]["read"]["map"][0] = text
        with pytest.raises(TatamiError, match=r"E1203 MissingDivGuard at indexbook\.values\.n3"):
            decode(form)


def test_floor_divisions_are_in_lowest_terms() -> None:
    assert str(expr("(4*i)//6")) == "(2*i)//3"


def test_damaged_books_are_diagnosed_not_raised() -> None:
    rng = random.Random(0)
    tiny = gemm()
    form = json.loads(json.dumps(encode(analyse(tiny).main)))
    for _ in range(300):
        try:
            book = decode(damaged(form, rng))
        except TatamiError:
            continue
        verify(Module({"main": book}), tiny)
