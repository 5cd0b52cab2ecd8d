"""Regions in canonical form that many tests look at."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Const,
    Iter,
    Let,
    Param,
    Program,
    Read,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Select,
    Target,
    Unary,
    Within,
    Yield,
)

F32 = DType.fp32


def iters(**sizes: object) -> tuple[Iter, ...]:
    return tuple(Iter(n, expr(s)) for n, s in sizes.items())  # type: ignore[arg-type]


def param(name: str, *sizes: object, dtype: DType = F32) -> Param:
    return Param(name, MemRef(dtype, shape(*sizes)))  # type: ignore[arg-type]


def target(name: str, *sizes: object, dtype: DType = F32) -> Target:
    return Target(name, MemRef(dtype, shape(*sizes)))  # type: ignore[arg-type]


def read(tensor: str, *entries: object) -> Read:
    return Read(tensor, shape(*entries))  # type: ignore[arg-type]


def at(let: str, *entries: object) -> At:
    return At(let, shape(*entries))  # type: ignore[arg-type]


def add(x: RegionExpr, y: RegionExpr) -> Binary:
    return Binary("add", x, y)


def sub(x: RegionExpr, y: RegionExpr) -> Binary:
    return Binary("sub", x, y)


def mul(x: RegionExpr, y: RegionExpr) -> Binary:
    return Binary("mul", x, y)


def total(axes: str, body: RegionExpr, fn: str = "sum", dtype: DType = F32) -> Reduce:
    return Reduce(fn, tuple(axes.split()), None, dtype, body)


def let(name: str, axes: str, e: RegionExpr, dtype: DType = F32) -> Let:
    return Let(name, tuple(axes.split()), dtype, e)


def const(value: float, dtype: DType = F32) -> Const:
    return Const(value, dtype)


def program_of(*regions: Region) -> Module[Program]:
    """A program whose inputs are what no Region makes and whose outputs are what none reads."""
    made = {t.name: t for r in regions for t in r.outputs}
    inputs = {p.name: p for r in regions for p in r.inputs if p.name not in made}
    used = {p.name for r in regions for p in r.inputs}
    outputs = {n: t for n, t in made.items() if n not in used}
    signature = Signature(
        tuple(Input(n, p.memref.dtype, p.memref.shape) for n, p in inputs.items()),
        tuple(Output(n, t.memref.dtype, t.memref.shape) for n, t in outputs.items()),
    )
    return Module({"main": Program(signature, tuple(inputs), tuple(outputs), regions)})


def gemm(dtype: DType = F32) -> Region:
    return Region(
        "gemm",
        iters(m="M", n="N"),
        iters(k="K"),
        (param("A", "M", "K", dtype=dtype), param("B", "K", "N", dtype=dtype), param("bias", "N", dtype=dtype)),
        (target("C", "M", "N", dtype=dtype),),
        (
            let("acc", "m n", total("k", mul(read("A", "m", "k"), read("B", "k", "n")))),
            let("c1", "m n", add(Ref("acc"), read("bias", "n") if dtype == F32 else Cast(read("bias", "n"), F32))),
            let("c2", "m n", Unary("relu", Ref("c1"))),
        ),
        (Yield("c2", "C", dtype),),
    )


def softmax() -> Region:
    return Region(
        "softmax",
        iters(m="M", n="N"),
        (),
        (param("X", "M", "N"),),
        (target("Y", "M", "N"),),
        (
            let("top", "m", total("n", read("X", "m", "n"), "max")),
            let("e", "m n", Unary("exp", sub(read("X", "m", "n"), Ref("top")))),
            let("z", "m", total("n", Ref("e"))),
            let("p", "m n", Binary("div", Ref("e"), Ref("z"))),
        ),
        (Yield("p", "Y"),),
    )


def layer_norm() -> Region:
    inverse = Const(1 / 24, F32)
    return Region(
        "layer_norm",
        iters(m="M", n=24),
        (),
        (param("X", "M", 24), param("g", 24)),
        (target("Y", "M", 24),),
        (
            let("s", "m", total("n", read("X", "m", "n"))),
            let("mean", "m", mul(Ref("s"), inverse)),
            let("d", "m n", sub(read("X", "m", "n"), Ref("mean"))),
            let("v", "m", total("n", mul(Ref("d"), Ref("d")))),
            let("r", "m", Unary("rsqrt", add(mul(Ref("v"), inverse), const(1e-5)))),
            let("y", "m n", mul(mul(Ref("d"), Ref("r")), read("g", "n"))),
        ),
        (Yield("y", "Y"),),
    )


def attention() -> Region:
    return Region(
        "attention",
        iters(b="B", m="M", n="N", e="D"),
        iters(d="D"),
        (param("Q", "B", "M", "D"), param("K", "B", "N", "D"), param("V", "B", "N", "D")),
        (target("O", "B", "M", "D"),),
        (
            let("S", "b m n", total("d", mul(read("Q", "b", "m", "d"), read("K", "b", "n", "d")))),
            let("top", "b m", total("n", Ref("S"), "max")),
            let("P", "b m n", Unary("exp", sub(Ref("S"), Ref("top")))),
            let("Z", "b m", total("n", Ref("P"))),
            let("o", "b m e", total("n", mul(Ref("P"), read("V", "b", "n", "e")))),
            let("y", "b m e", Binary("div", Ref("o"), Ref("Z"))),
        ),
        (Yield("y", "O"),),
    )


def conv() -> Region:
    row, column = expr("2*ho + kh - 1"), expr("2*wo + kw - 1")
    guards = Within((Guard(row, expr("H")), Guard(column, expr("W"))))
    image = Select(guards, Read("X", (expr("b"), expr("ci"), row, column)), const(0.0))
    return Region(
        "conv",
        iters(b="N", co="Co", ho="(H + 1)//2", wo="(W + 1)//2"),
        iters(ci="Ci", kh=3, kw=3),
        (param("X", "N", "Ci", "H", "W"), param("F", "Co", "Ci", 3, 3)),
        (target("Y", "N", "Co", "(H + 1)//2", "(W + 1)//2"),),
        (let("acc", "b co ho wo", total("ci kh kw", mul(image, read("F", "co", "ci", "kh", "kw")))),),
        (Yield("acc", "Y"),),
    )


def two_windows() -> Region:
    """A windowed max of a windowed sum, with a shift: 1-d stencil with At."""
    return Region(
        "two_windows",
        iters(i="L - 2", j="L - 4"),
        iters(p=3, q=3),
        (param("X", "L"),),
        (target("Y", "L - 4"),),
        (
            let("w", "i", total("p", read("X", "i + p"))),
            let("v", "j", total("q", at("w", "j + q"), "max")),
        ),
        (Yield("v", "Y"),),
    )


def column_norm() -> Region:
    """A mean over the outer axis, subtracted again: reduces over outer axes."""
    return Region(
        "column_norm",
        iters(m="M", n="N"),
        (),
        (param("X", "M", "N"),),
        (target("Y", "M", "N"), target("s", "N")),
        (
            let("s0", "n", total("m", read("X", "m", "n"))),
            let("y", "m n", sub(read("X", "m", "n"), Ref("s0"))),
        ),
        (Yield("y", "Y"), Yield("s0", "s")),
    )


def running_sum() -> Region:
    return Region(
        "running_sum",
        iters(m="M", n="N"),
        (),
        (param("X", "M", "N"),),
        (target("Y", "M", "N"),),
        (
            let("c", "m n", Scan("sum", "n", F32, read("X", "m", "n"))),
            let("y", "m n", mul(Ref("c"), const(2.0))),
        ),
        (Yield("y", "Y"),),
    )


ALL = (gemm, softmax, layer_norm, attention, conv, two_windows, column_norm, running_sum)
