"""Each rule of the verifier of Regions: a Region that breaks it has that one fault, and Regions at its edge have none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.layout import Layout, MemRef
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Index,
    Let,
    Opaque,
    Param,
    Program,
    Random,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Step,
    Target,
    Transpose,
    Unary,
    Within,
    Yield,
)
from tatami.region.verify import verify, verify_region
from tests.region.examples import gemm, iters, param, program_of, read, target

replace = msgspec.structs.replace
F32, F16, I64, BOOL, U64, UNKNOWN = DType.fp32, DType.fp16, DType.i64, DType.bool, DType.u64, DType.unknown
one, flag, whole = Const(1.0, F32), Const(True, BOOL), Const(1, I64)
half, odd = Const(1.0, F16), Unary("system", one)
x = read("X", "m", "n")
MADE: Final = Let("y", ("m", "n"), F32, x)
GIVEN: Final = Yield("y", "Y")


def region(*lets: Let, yields: tuple[Yield, ...] = (GIVEN,), **fields: object) -> Region:
    """Y[m, n] = y, which reads X[m, n] unless `lets` make it; V[n], J[m] of i64, and k to reduce over."""
    made = lets if any(l.name == "y" for l in lets) else (*lets, MADE)
    inputs = (param("X", 4, 8), param("V", 8), param("J", 4, dtype=I64), param("W", 8, 4))
    parts = Region("r", iters(m=4, n=8), iters(k=3), inputs, (target("Y", 4, 8),), made, yields)
    return replace(parts, **fields)


def let(e: RegionExpr, axes: str = "m n", dtype: DType = F32, name: str = "a") -> Let:
    return Let(name, tuple(axes.split()), dtype, e)


def faults(r: Region, sizes: str = "", assumed: Assumed = NOTHING) -> list[str]:
    return [f"{d.at}: {d.why}" for d in verify_region(r, frozenset(sizes.split()), assumed)]


def within(index: str, size: str = "8") -> Within:
    return Within((Guard(expr(index), expr(size)),))


def reduced(body: RegionExpr = one, fn: str = "sum", axes: str = "k", dtype: DType = F32) -> Reduce:
    return Reduce(fn, tuple(axes.split()), None, dtype, body)


row = let(read("V", "n"), "n", name="row")
column = let(one, "m", name="column")


def in_halves(low: str = "j", high: str = "j + 4", size: object = 8, extent: object = 4, rows: object = 4) -> Region:
    """Two slices of Y along its second axis."""
    both = (Yield("l", "Y", map=shape("m", low)), Yield("l", "Y", map=shape("m", high)))
    return Region("r", iters(m=rows, j=extent), (), (), (target("Y", rows, size),), (let(one, "m j", name="l"),), both)


def scattered(*yields: Yield, updates: str = "") -> Region:
    where = let(Index(expr("m + n"), I64), "m n", I64, "where")
    also = let(Index(expr("m"), I64), "m", I64, "short")
    to = replace(target("Y", 4, 8), updates=updates)
    return region(where, also, let(one, name="float"), yields=yields, outputs=(to,))


scatter = Yield("y", "Y", map=(expr("m"), None), indices=("where",))
ordered = Region("r", (), (), (param("X", 4),), (target("Y", 4), target("P", 4, dtype=I64)), (), (), Opaque("sort"))
ACCEPTED: Final = MappingProxyType(
    {
        "a copy": region(),
        "an input that nobody reads": region(inputs=(param("X", 4, 8), param("Q", 1))),
        "an input updated": region(outputs=(replace(target("Y", 4, 8), updates="X"),)),
        "a row spread": region(row, let(At("row", shape("n"))), let(Ref("row"), name="b")),
        "read at an index": region(let(ReadAt("W", (expr("n"), None), (read("J", "m"),)))),
        "read at no index": region(let(ReadAt("X", shape("m", "n"), ()))),
        "guarded": region(let(Select(within("n - 1"), read("V", "n - 1"), one))),
        "guarded twice": region(let(Select(within("n - 1"), Select(within("n - 2"), Binary("add", read("V", "n - 1"), read("V", "n - 2")), one), one))),
        "nothing runs": region(let(read("V", "n + 9"), "m n", name="a"), iters=iters(m=0, n=8), outputs=(target("Y", 0, 8),), inputs=(param("X", 0, 8), param("V", 8))),
        "nothing runs, at places that nobody proves": region(let(read("V", "n*n*n - 9"), "m n", name="a"), iters=iters(m=0, n=8), outputs=(target("Y", 0, 8),), inputs=(param("X", 0, 8), param("V", 8))),
        "a cast of a sum of another type": region(let(Cast(Binary("add", whole, whole), F32))),
        "a product that is rounded before its cast": region(let(Cast(Select(flag, Binary("mul", half, half), half), F32))),
        "a product that is widened after a cast": region(let(Select(flag, Cast(one, F32), Select(flag, Binary("mul", half, half), one)))),
        "a select of an unknown": region(let(one, dtype=UNKNOWN, name="u"), let(Select(flag, Ref("u"), one))),
        "a cast of an unknown": region(let(Cast(Const(1, I64), F16), dtype=F16)),
        "an unknown let": region(let(one, dtype=UNKNOWN)),
        "an unknown operand": region(let(one, dtype=UNKNOWN, name="u"), let(Binary("add", Ref("u"), one))),
        "a sum": region(let(reduced(read("V", "k")), "m")),
        "a sum over an axis of lets": region(let(reduced(read("V", "n"), axes="n"), "m")),
        "the first of the largest": region(let(reduced(read("V", "k"), "argmax", dtype=I64), "m", I64)),
        "a scan": region(let(Scan("sum", "n", F32, x))),
        "a random number": region(let(Random(Const(1, U64), expr("m")), "m", DType.u32)),
        "a transpose": region(let(one, "n m", name="t"), let(Transpose(Ref("t"), (1, 0)))),
        "a transpose of a read": region(let(Transpose(x, (0, 1)))),
        "a broadcast": region(row, let(BroadcastInDim(Ref("row"), shape(4, 8), (1,)))),
        "a broadcast of one": region(let(one, "o", name="o"), let(BroadcastInDim(Ref("o"), shape(4, 8), (1,))), iters=iters(m=4, n=8, o=1)),
        "a broadcast under a reduce": region(let(reduced(BroadcastInDim(read("V", "k"), shape(4, 3), (1,))), "m")),
        "a yield with a map": region(yields=(Yield("y", "Y", map=shape("m", "n")),)),
        "a yield with a cast": region(outputs=(target("Y", 4, 8, dtype=F16),), yields=(Yield("y", "Y", F16),)),
        "two halves": in_halves(),
        "two halves turned round": in_halves("j + 4", "j"),
        "two halves of a size": in_halves("j", "j + N", "2*N", "N"),
        "one row in halves": in_halves(rows=1),
        "a half into an update": replace(in_halves(), inputs=(param("Z", 4, 8),), outputs=(replace(target("Y", 4, 8), updates="Z"),), yields=in_halves().yields[:1]),
        "the whole and a part of it again": region(let(one, "m", name="c"), yields=(GIVEN, Yield("c", "Y", map=shape("m", "3")))),
        "halves that do not compare, turned round": in_halves("j + N - max(1, N//2)", "j", "N", "max(1, N//2)"),
        "a size of at least one": replace(in_halves(size="max(1, N)", extent="max(1, N)"), yields=in_halves().yields[:1]),
        "every second": in_halves("2*j", "2*j + 1"),
        "a scatter into an update": scattered(scatter, updates="X"),
        "a scatter after the whole": scattered(GIVEN, scatter),
        "a sum into the whole": scattered(GIVEN, Yield("y", "Y", combine="add")),
        "a routine": ordered,
        "a routine of a named operand": replace(ordered, opaque=Opaque("sort", operands=("X",))),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    assert faults(ACCEPTED[what]) == []


WRONG: Final = MappingProxyType(
    {
        "an axis twice": (region(reduce_axes=iters(m=3)), "r: axis m is declared twice"),
        "an axis named as a size of an axis": (region(reduce_axes=iters(k="m")), "r: m is both an axis and a size symbol"),
        "an axis named as a size of an input": (region(inputs=(param("X", 4, 8), param("Q", "k"))), "r: k is both an axis"),
        "an axis named as a size of an output": (region(outputs=(target("Y", 4, 8), target("Z", "k"))), "r: k is both an axis"),
        "an input twice": (region(inputs=(param("X", 4, 8), param("X", 4, 8))), "r: tensor X is declared twice"),
        "an input that is an output": (region(inputs=(param("X", 4, 8), param("Y", 8))), "r: tensor Y is declared twice"),
        "an update of nothing": (region(outputs=(replace(target("Y", 4, 8), updates="Q"),)), "r: Y updates Q, which is not an input"),
        "a let twice": (region(let(one), let(one)), "r: a: the let is assigned twice"),
        "a routine with lets": (replace(ordered, lets=(let(one, ""),)), "r: an opaque Region has lets or yields"),
        "a routine with yields": (replace(ordered, yields=(GIVEN,)), "r: an opaque Region has lets or yields"),
        "a routine of what is no input": (replace(ordered, opaque=Opaque("sort", operands=("Q",))), "r: the routine takes 'Q'"),
        "a routine of wrong results": (replace(ordered, outputs=(target("Y", 4), target("P", 4))), "r: sort of fp32 gives fp32 and i64"),
        "an axis that is not there": (region(let(one, "q")), "a: axes q: unknown or repeated"),
        "an axis of a let twice": (region(let(one, "m m")), "a: axes m, m: unknown or repeated"),
        "a read over an axis that is not there": (region(let(read("V", "n"), "q")), "a: axes q: unknown or repeated"),
        "a read outside, of another type": (region(let(read("V", "n + 1"), dtype=F16)), "a: V is read at n + 1"),
        "an index too few, and outside": (region(let(read("X", "m + 1"))), "a: a map of 1 entries reads X of rank 2"),
        "a read outside beside an axis of nothing": (
            region(let(read("V", "n + 1"), "n"), iters=iters(m=4, n=8, o=0)), "a: V is read at n + 1"),
        "an index that has no type": (region(let(ReadAt("W", (expr("n"), None), (odd,)))), "a: there is no scalar op 'system'"),
        "two operands of one, of two types": (region(let(Binary("neg", one, half))), "a: neg takes 1 operands, not 2"),
        "an operand that has no type": (region(let(Binary("add", odd, one))), "a: there is no scalar op 'system'"),
        "a predicate that has no type": (region(let(Select(odd, one, one))), "a: there is no scalar op 'system'"),
        "a then that has no type": (region(let(Select(flag, odd, one))), "a: there is no scalar op 'system'"),
        "an otherwise that has no type": (region(let(Select(flag, one, odd))), "a: there is no scalar op 'system'"),
        "a let of another type": (region(let(one, dtype=F16)), "a: the expression is fp32, the let fp16"),
        "an index out of scope": (region(let(read("V", "n"), "m")), "a: n names n, not in scope here"),
        "an index of lets out of scope": (region(row, let(At("row", shape("n")), "m")), "a: n names n, not in scope here"),
        "a number out of scope": (region(let(Index(expr("k"), I64), dtype=I64)), "a: k names k, not in scope here"),
        "a guard out of scope": (region(let(within("k"), dtype=BOOL)), "a: k names k, not in scope here"),
        "a counter out of scope": (region(let(Random(Const(1, U64), expr("k")), dtype=DType.u32)), "a: k names k, not in scope here"),
        "a reduce axis after the reduce": (region(let(reduced(read("V", "k")), "m"), let(read("V", "k"), name="b")), "b: k names k"),
        "a tensor that is not there": (region(let(read("Q", "n"))), "a: tensor Q is not an input of the Region"),
        "an index too few": (region(let(read("X", "m"))), "a: a map of 1 entries reads X of rank 2"),
        "an index too many": (region(let(read("V", "n", "n"))), "a: a map of 2 entries reads V of rank 1"),
        "an unguarded read": (region(let(read("V", "n + 1"))), "a: V is read at n + 1, which is not proved"),
        "an unguarded read before": (region(let(read("V", "n - 1"))), "a: V is read at n - 1, which is not proved"),
        "an unguarded first of two": (region(let(read("X", "m + 1", "n"))), "a: X is read at m + 1"),
        "an unguarded second of two": (region(let(read("X", "m", "n + 1"))), "a: X is read at n + 1"),
        "an unguarded let": (region(row, let(At("row", shape("n + 1")))), "a: row is read at n + 1"),
        "a guard of something else": (region(let(Select(within("m - 1"), read("V", "n - 1"), one))), "a: V is read at n - 1"),
        "the other side of a guard": (region(let(Select(within("n - 1"), one, read("V", "n - 1")))), "a: V is read at n - 1"),
        "a guard in a predicate": (
            region(let(Select(Binary("lt", read("V", "n - 1"), one), one, one))), "a: V is read at n - 1"),
        "a predicate that is no guard": (region(let(Select(flag, read("V", "n - 1"), one))), "a: V is read at n - 1"),
        "guarded, and read elsewhere": (
            region(let(Binary("add", Select(within("n - 1"), read("V", "n - 1"), one), read("V", "n - 1")))), "a: V is read at n - 1"),
        "an index too few for the open": (region(let(ReadAt("W", (expr("n"), None), ()))), "a: 0 indices for the open entries of W"),
        "an index too many for the open": (region(let(ReadAt("V", shape("n"), (whole,)))), "a: 1 indices for the open entries of V"),
        "an index that is no integer": (region(let(ReadAt("W", (expr("n"), None), (one,)))), "a: an index of W is fp32"),
        "a fault in an index": (region(let(ReadAt("W", (expr("n"), None), (read("J", "m + 1"),)))), "a: J is read at m + 1"),
        "an index outside beside the open": (region(let(ReadAt("W", (expr("n + 1"), None), (whole,)))), "a: W is read at n + 1"),
        "a read at of what is not there": (region(let(ReadAt("Q", (None,), (whole,)))), "a: tensor Q is not an input"),
        "a let that is not there": (region(let(Ref("q"))), "a: let q is not defined before this one"),
        "a let at a map that is not there": (region(let(At("q", ()))), "a: let q is not defined before this one"),
        "a later let": (region(let(Ref("b")), let(one, name="b")), "a: let b is not defined before this one"),
        "a later let at a map": (region(let(At("row", shape("n + 9"))), row), "a: let row is not defined before this one"),
        "a let of more axes": (region(column, let(Ref("column"), "n")), "a: column runs over m, not in scope here"),
        "a scan of nothing known": (region(let(Scan("system", "n", F32, x))), "a: there is no scan 'system'"),
        "a scan along another axis": (region(let(Scan("sum", "k", F32, x))), "a: the scan runs along k, no axis of the let"),
        "a scan inside": (region(let(Unary("neg", Scan("sum", "n", F32, x)))), "a: a scan stands inside another expression"),
        "a fault in a scan": (region(let(Scan("sum", "n", F32, read("V", "n + 1")))), "a: V is read at n + 1"),
        "a fault in a cast": (region(let(Cast(read("V", "n + 1"), F32))), "a: V is read at n + 1"),
        "a reduce in a cast": (region(let(Cast(reduced(), F32), "m")), "a: a reduce stands inside another expression"),
        "a reduce in a predicate": (region(let(Select(reduced(flag, "or", dtype=BOOL), one, one), "m")), "a: a reduce stands inside"),
        "a reduce in a then": (region(let(Select(flag, reduced(), one), "m")), "a: a reduce stands inside"),
        "a reduce in an otherwise": (region(let(Select(flag, one, reduced()), "m")), "a: a reduce stands inside"),
        "a reduce in an operand": (region(let(Unary("neg", reduced()), "m")), "a: a reduce stands inside"),
        "an operation that is not there": (region(let(Unary("system", one))), "a: there is no scalar op 'system'"),
        "an operation of one operand": (region(let(Unary("add", one))), "a: add takes 2 operands, not 1"),
        "an operation of two operands": (region(let(Binary("neg", one, one))), "a: neg takes 1 operands, not 2"),
        "operands of two types": (region(let(Binary("add", one, Const(1.0, F16)))), "a: add of fp32 and fp16"),
        "an operation of another type": (region(let(Unary("exp", flag), dtype=BOOL)), "a: exp is not defined for bool"),
        "a predicate that is a number": (region(let(Select(one, one, one))), "a: the predicate of a select is fp32"),
        "a select of two types": (region(let(Select(flag, whole, one))), "a: a select of i64 and fp32"),
        "a reduce of nothing known": (region(let(reduced(fn="system"), "m")), "a: there is no reduce 'system'"),
        "a reduce without a type": (region(let(reduced(dtype=UNKNOWN), "m")), "a: sum has no accumulation dtype"),
        "a reduce over nothing": (region(let(reduced(axes=""), "m")), "a: reduce axes [] are not declared once each"),
        "a reduce over what is not there": (region(let(reduced(axes="q"), "m")), "a: reduce axes ['q'] are not declared"),
        "a reduce over an axis and what is not there": (region(let(reduced(axes="k q"), "m")), "a: reduce axes ['k', 'q'] are not declared"),
        "a reduce over an axis of the let twice": (region(let(reduced(axes="m m"), "m")), "a: reduce axes ['m', 'm'] are not declared"),
        "a reduce over an axis twice": (region(let(reduced(axes="k k"), "m")), "a: reduce axes ['k', 'k'] are not declared"),
        "a reduce over an axis of the let": (region(let(reduced(axes="m"), "m")), "a: the let runs over m, which it also reduces"),
        "the first over two axes": (region(let(reduced(fn="argmax", axes="k n", dtype=I64), "m", I64)), "a: argmax over 2 axes"),
        "the last over two axes": (region(let(reduced(fn="argmin", axes="k n", dtype=I64), "m", I64)), "a: argmin over 2 axes"),
        "what is not neutral": (
            region(let(reduced(Select(within("k - 1", "3"), read("V", "k - 1"), one)), "m")), "a: outside its guard the body of sum is 1"),
        "a transpose of an axis twice": (region(let(Transpose(x, (0, 0)))), "a: permutation [0, 0] at rank 2"),
        "a transpose of too few": (region(let(Transpose(x, (0,)))), "a: permutation [0] at rank 2"),
        "a transpose of another shape": (
            region(let(one, name="b"), let(Transpose(Ref("b"), (1, 0)))), "a: transposing b gives another shape"),
        "a transpose of a higher rank": (
            region(let(one, "m n o", name="b"), let(Transpose(Ref("b"), (0, 1))), iters=iters(m=4, n=8, o=1)), "a: b has rank 3, the let 2"),
        "a transpose of a shape that differs on one axis": (
            region(let(one, name="b"), let(Transpose(Ref("b"), (0, 1)), "m o"), iters=iters(m=4, n=8, o=4)), "a: transposing b gives"),
        "a broadcast under a reduce of nothing known": (
            region(let(reduced(BroadcastInDim(one, shape(4), ()), axes="q"), "m")), "a: reduce axes ['q'] are not declared"),
        "a broadcast past the last axis, of two": (
            region(let(one, name="b"), let(BroadcastInDim(Ref("b"), shape(4, 8), (0, 2)))), "a: broadcast_dimensions [0, 2]"),
        "a broadcast of a higher rank": (
            region(let(one, name="b"), let(BroadcastInDim(Ref("b"), shape(4, 8), (1,)))), "a: 1 broadcast_dimensions for rank 2"),
        "a transpose of another rank": (region(row, let(Transpose(Ref("row"), (0, 1)))), "a: row has rank 1, the let 2"),
        "a transpose of what is not there": (region(let(Transpose(Ref("q"), (0, 1)))), "a: let q is not defined"),
        "a fault in a transpose": (region(let(Transpose(read("V", "n + 1"), (0, 1)))), "a: V is read at n + 1"),
        "a broadcast to another shape": (region(row, let(BroadcastInDim(Ref("row"), shape(5, 8), (1,)))), "a: result_shape [5, 8]"),
        "a broadcast over another axis of a reduce": (
            region(let(reduced(BroadcastInDim(read("V", "k"), shape(4, 5), (1,))), "m")), "a: result_shape [4, 5]"),
        "a broadcast to an axis twice": (
            region(let(one, name="b"), let(BroadcastInDim(Ref("b"), shape(4, 8), (1, 1)))), "a: broadcast_dimensions [1, 1]"),
        "a broadcast past the last axis": (region(row, let(BroadcastInDim(Ref("row"), shape(4, 8), (2,)))), "a: broadcast_dimensions [2]"),
        "a broadcast before the first axis": (region(row, let(BroadcastInDim(Ref("row"), shape(4, 8), (-1,)))), "a: broadcast_dimensions [-1]"),
        "a broadcast of another rank": (
            region(row, let(BroadcastInDim(Ref("row"), shape(4, 8), (0, 1)))), "a: 2 broadcast_dimensions for rank 1"),
        "a broadcast of another extent": (region(row, let(BroadcastInDim(Ref("row"), shape(4, 8), (0,)))), "a: operand and result differ"),
        "a yield of what is not there": (region(yields=(Yield("q", "Y"),)), "yield q to Y: there is no let q"),
        "a yield to what is not there": (region(yields=(GIVEN, Yield("y", "Q"))), "yield y to Q: Q is not an output"),
        "a yield of another type": (region(outputs=(target("Y", 4, 8, dtype=F16),)), "fp32 is written to fp16"),
        "a yield cast to another type": (region(yields=(Yield("y", "Y", F16),)), "fp16 is written to fp32"),
        "a yield of another shape": (region(outputs=(target("Y", 4, 9),)), "the let has [4, 8], the output [4, 9]"),
        "a yield with indices and no map": (scattered(Yield("y", "Y", indices=("where",))), "the let has [4, 8], the output [4, 8]"),
        "a map too short, and outside": (region(yields=(Yield("y", "Y", map=shape("m + 1")),)), "a map of 1 entries writes rank 2"),
        "one half twice, as many as there are": (in_halves("j", "j"), "r: Y: the yields write 32 of 32 elements"),
        "the other half twice": (in_halves("j + 4", "j + 4"), "r: Y: the yields write 32 of 32 elements"),
        "one of two twice": (in_halves("j", "j", size=2, extent=1), "r: Y: the yields write 8 of 8 elements, or some twice"),
        "a sum of a part before the whole": (
            scattered(Yield("short", "Y", F32, map=shape("m", "0"), combine="add"), GIVEN), "r: Y: a scatter stands before the write"),
        "a half, then a scatter": (scattered(Yield("short", "Y", F32, map=shape("m", "0")), scatter), "r: Y: the yields write 4 of 32"),
        "a map too short": (region(yields=(Yield("y", "Y", map=shape("m")),)), "a map of 1 entries writes rank 2"),
        "a map too long": (region(yields=(Yield("y", "Y", map=shape("m", "n", "n")),)), "a map of 3 entries writes rank 2"),
        "a map without its index": (scattered(GIVEN, Yield("y", "Y", map=(expr("m"), None))), "0 indices for the open entries"),
        "an index without its entry": (scattered(GIVEN, Yield("y", "Y", map=shape("m", "n"), indices=("where",))), "1 indices for the open"),
        "an index that is no let": (scattered(GIVEN, Yield("y", "Y", map=(expr("m"), None), indices=("q",))), "there is no let q"),
        "an index of floats": (scattered(GIVEN, Yield("y", "Y", map=(expr("m"), None), indices=("float",))), "index float is not an integer"),
        "an index of other axes": (scattered(GIVEN, Yield("y", "Y", map=(expr("m"), None), indices=("short",))), "index short is not an integer"),
        "a write outside": (region(yields=(Yield("y", "Y", map=shape("m + 1", "n")),)), "Y is written at m + 1, not proved"),
        "a scatter outside": (scattered(GIVEN, Yield("y", "Y", map=(expr("m + 1"), None), indices=("where",))), "Y is written at m + 1"),
        "an output that nothing writes": (region(outputs=(target("Y", 4, 8), target("Z", 1))), "r: Z: the output is never written"),
        "a scatter before the whole": (scattered(scatter, GIVEN), "r: Y: a scatter stands before the write"),
        "a sum before the whole": (scattered(Yield("y", "Y", combine="add"), GIVEN), "r: Y: a scatter stands before the write"),
        "only a scatter": (scattered(scatter), "r: Y: a scatter leaves elements of the output unwritten"),
        "only a sum": (scattered(Yield("y", "Y", combine="add")), "r: Y: a scatter leaves elements of the output unwritten"),
        "two of three thirds": (in_halves(size=12), "r: Y: the yields write 32 of 48 elements"),
        "the first and the last third": (in_halves("j", "j + 8", size=12), "r: Y: the yields write 32 of 48 elements"),
        "writes that may stay away from the start": (in_halves("j + K - 1", "j + K - 1", "K + N - 1", "N"), "r: Y: the yields write 8*N of"),
        "writes that may stay away from the end": (in_halves("j", "j", "K + N - 1", "N"), "r: Y: the yields write 8*N of"),
        "the last thirds": (in_halves("j + 4", "j + 8", size=12), "r: Y: the yields write 32 of 48 elements"),
        "the last thirds, turned round": (in_halves("j + 8", "j + 4", size=12), "r: Y: the yields write 32 of 48 elements"),
        "one half twice": (in_halves("j", "j", size=12), "r: Y: the yields write 32 of 48 elements"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    r, why = WRONG[what]
    found = faults(r)
    assert len(found) == 1 and why in found[0], found


def test_a_let_with_a_fault_has_no_type() -> None:
    """A warning after the fault changes nothing."""
    guarded = Select(within("k - 1", "3"), read("V", "k - 1"), one)
    assert [f[:18] for f in faults(region(let(reduced(guarded), "m k", F16)))] == ["r: a: the let runs", "r: a: outside its "]


def test_an_axis_is_not_named_as_a_size_of_the_program() -> None:
    assert faults(region(), "N") == []
    assert faults(region(), "m") == ["r: m is both an axis and a size symbol"]


def test_a_read_may_rest_on_an_equation() -> None:
    r = Region("r", iters(i="N"), (), (param("X", "M"),), (target("Y", "N"),), (let(read("X", "i"), "i", name="y"),), (GIVEN,))
    assert ["which is not proved" in f for f in faults(r)] == [True]
    assert faults(r, "", Assumed((Equation(expr("N"), expr("M")),))) == []


def test_a_yield_of_a_part_spans_its_output() -> None:
    """Sizes that do not compare as polynomials: both ends are reached along each axis."""
    assert faults(in_halves("j", "j + N - max(1, N//2)", "N", "max(1, N//2)")) == []
    found = faults(in_halves("j", "j + N - 1 - N//2", "N", "N//2"))
    assert [f.partition(" of ")[0] for f in found] == [f"r: Y: the yields write {expr('8*(N//2)')}"]


def program(*body: Region | Step, inputs: tuple[Input, ...] = (Input("x", F32, shape(4, 8)),), ids: tuple[str, ...] = ("X",), outputs: tuple[Output, ...] = (Output("y", F32, shape(4, 8)),), gives: tuple[str, ...] = ("Y",)) -> Program:  # fmt: skip
    return Program(Signature(inputs, outputs), ids, gives, body)


copy: Final = region(inputs=(param("X", 4, 8),))
TWO = (Input("x", F32, shape(4, 8)), Input("z", F32, shape(4, 8)))
step = Step("s", "program", ("f",), ("X",), (param("Y", 4, 8),))
PROGRAMS: Final = MappingProxyType(
    {
        "an input without an id": (program(copy, inputs=TWO), "main: 1 input and 1 output ids for 2 and 1 tensors"),
        "an id without an input": (program(copy, ids=("X", "Z")), "main: 2 input and 1 output ids for 1 and 1 tensors"),
        "an output without an id": (program(copy, gives=()), "main: 1 input and 0 output ids for 1 and 1 tensors"),
        "an id without an output": (program(copy, outputs=()), "main: 1 input and 1 output ids for 1 and 0 tensors"),
        "two inputs of one name": (program(copy, inputs=(TWO[0], TWO[0]), ids=("X", "Z")), "main: x: two inputs have this name"),
        "two items of one name": (
            program(copy, replace(copy, outputs=(target("Q", 4, 8),), yields=(Yield("y", "Q"),))), "main: r: two items have this name"),
        "a tensor that nothing makes": (program(copy, ids=("Z",)), "main: r: it reads X, which nothing before it makes"),
        "a tensor that nothing makes, in a step": (program(replace(step, inputs=("Q",), kind="host")), "main: s: it reads Q"),
        "a tensor made twice": (program(copy, replace(copy, name="q")), "main: q: Y is made twice"),
        "an input that is made": (program(copy, replace(step, kind="host", outputs=(param("X", 4, 8),))), "main: s: X is made twice"),
        "an output that is not made": (program(copy, gives=("Q",)), "main: output Q is never made"),
        "an output of another shape": (program(copy, outputs=(Output("y", F32, shape(4, 9)),)), "main: Y: output y is fp32[4, 9], Y is fp32[4, 8]"),
        "an output of another type": (program(copy, outputs=(Output("y", F16, shape(4, 8)),)), "main: Y: output y is fp16[4, 8]"),
        "a fault of a Region": (program(replace(copy, yields=())), "r: Y: the output is never written"),
        "an alignment of 0": (program(replace(copy, inputs=(Param("X", MemRef(F32, shape(4, 8), alignment=0)),))), "r: alignment 0"),
        "an alignment of 48": (program(replace(copy, outputs=(Target("Y", MemRef(F32, shape(4, 8), alignment=48)),))), "r: alignment 48"),
        "an alignment of 8192": (program(replace(copy, inputs=(Param("X", MemRef(F32, shape(4, 8), alignment=8192)),))), "r: alignment 8192"),
        "an input promised at 48": (program(copy, inputs=(replace(TWO[0], alignment=48),)), "main: x: alignment 48 is not a power of two"),
        "a result promised at 8192": (program(copy, outputs=(Output("y", F32, shape(4, 8), alignment=8192),)), "main: y: alignment 8192"),
        "an input of another type": (program(copy, inputs=(Input("x", F16, shape(4, 8)),)), "r: X: the Region reads fp32, the tensor is fp16"),
        "an input of another shape": (program(copy, inputs=(Input("x", F32, shape(4, 9)),)), "r: X: the Region sees shape [4, 8], the tensor has [4, 9]"),
        "a call of no program": (program(step), "main: s: it calls 'f', which is not a program"),
        "an axis named as a size of the program": (
            program(copy, inputs=(TWO[0], Input("z", F32, shape("m"))), ids=("X", "Z")), "r: m is both an axis and a size symbol"),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(PROGRAMS))
def test_a_fault_of_a_program_is_the_one_that_is_named(what: str) -> None:
    main, why = PROGRAMS[what]
    found = [f"{d.at}: {d.why}" for d in verify(Module({"main": main}))]
    assert len(found) == 1 and why in found[0], found


def test_programs_without_faults() -> None:
    aligned = replace(copy, inputs=(Param("X", MemRef(F32, shape(4, 8), alignment=1)),))
    then = replace(step, name="t", inputs=("Y",), outputs=(param("Z", 4, 8),))
    for main in (
        program(copy),
        program(aligned),
        program(replace(copy, inputs=(Param("X", MemRef(F32, shape(4, 8), alignment=4096)),))),
        program(copy, inputs=(replace(TWO[0], alignment=4096),)),
        program(step),
        program(replace(step, kind="host", targets=("q",))),
        program(copy, then),
    ):
        assert verify(Module({"main": main, "f": program(copy)})) == []


def inline(operand: RegionExpr, *dims: int, dtype: DType = F32) -> Region:
    """An operand in index form, broadcast to [m, n]."""
    more = (param("X", 4, 8), param("V", 8), param("W", 8, 4), param("Q", 4, 4), param("Z", 8, 4, 1))
    return region(row, let(BroadcastInDim(operand, shape(4, 8), dims), dtype=dtype), inputs=more)


INLINE: Final = MappingProxyType(
    {
        "a row": (inline(read("V", "n"), 1), ""),
        "a row as a column": (inline(read("V", "n"), 0), "broadcast_dimensions [0]: the operand has axis n, which is axis 1 of the result"),
        "a matrix": (inline(x, 0, 1), ""),
        "a matrix, turned in its dimensions": (inline(x, 1, 0), "broadcast_dimensions [1, 0]: the axes of X are m, n"),
        "a matrix, turned as it is read": (inline(read("W", "n", "m"), 1, 0), ""),
        "a matrix, turned as it is read alone": (inline(read("W", "n", "m"), 0, 1), "broadcast_dimensions [0, 1]: the axes of W are n, m"),
        "a diagonal": (inline(read("Q", "m", "m"), 0, 1), "broadcast_dimensions [0, 1]: the axes of Q are m, m"),
        "a number": (inline(one), ""),
        "a number with an axis": (inline(one, 0), "broadcast_dimensions [0]: the operand has no axis 0 of the result"),
        "one element of a row": (inline(read("V", "0"), 0), ""),
        "one element with two axes": (inline(read("V", "0"), 0, 1), "broadcast_dimensions [0, 1]: the operand has no axis 0 of the result"),
        "a row and a matrix": (inline(Binary("add", read("V", "n"), x), 0, 1), ""),
        "three axes, one of them one place": (inline(read("Z", "n", "m", "0"), 0, 1), ""),
        "a let": (inline(Binary("add", Ref("row"), one), 1), ""),
        "a let as a column": (inline(Binary("add", Ref("row"), one), 0), "broadcast_dimensions [0]: the operand has axis n, which is axis 1 of the result"),
        "a let that is not there": (inline(Binary("add", Ref("q"), one)), "let q is not defined before this one"),
        "an index and a size": (inline(Index(expr("n + K"), I64), 1, dtype=I64), ""),
    }
)  # fmt: skip


@pytest.mark.parametrize("what", list(INLINE))
def test_dimensions_of_an_operand_in_index_form(what: str) -> None:
    made, why = INLINE[what]
    assert [f.removeprefix("r: a: ") for f in faults(made, "K")] == ([why] if why else [])


def test_layouts_of_an_interface() -> None:
    """A layout has the fields of its kind; results of Regions are not swizzled, as tiles in shared memory are."""
    plain = gemm()
    swizzled = Layout("swizzled", swizzle="xor64")

    def found(r: Region) -> list[str]:
        return [d.why for d in verify(program_of(r)) if d.kind == "LayoutMismatch"]

    def with_layout(port: Any, layout: Layout) -> Any:
        return replace(port, memref=replace(port.memref, layout=layout))

    assert found(plain) == [] == found(replace(plain, inputs=(with_layout(plain.inputs[0], swizzled), *plain.inputs[1:])))
    wrong = Layout(swizzle="xor64")
    reason = "layout row_major has no swizzle and no vec_bytes; swizzled has"
    assert found(replace(plain, inputs=(with_layout(plain.inputs[0], wrong), *plain.inputs[1:]))) == [reason]
    (to,) = plain.outputs
    assert found(replace(plain, outputs=(with_layout(to, wrong),))) == [reason]
    assert found(replace(plain, outputs=(with_layout(to, swizzled),))) == [
        "output C is swizzled; tiles of operands in shared memory are"
    ]


@pytest.mark.parametrize("yielded", (GIVEN, Yield("y", "Y", map=shape("m", "n"))))
def test_a_let_along_an_axis_that_there_is_not_is_told_before_its_yield(yielded: Yield) -> None:
    """The yield has no shape then; its check ended in an error of Python."""
    without = replace(region(yields=(yielded,)), iters=iters(m=4))
    assert any("axes m, n: unknown or repeated" in f for f in faults(without))
