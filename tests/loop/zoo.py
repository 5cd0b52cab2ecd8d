"""Regions for tests, by name: each with the size tuples to try and how its inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.core.layout import Layout, MemRef
from tatami.core.tensor import numpy_dtype
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    At,
    Binary,
    Const,
    Index,
    Iter,
    Let,
    Param,
    Random,
    Read,
    ReadAt,
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

D = DType
f32 = D.fp32
N, C, K = var("N"), var("C"), var("K")
i0, i1, i2, r0, r1 = var("i0"), var("i1"), var("i2"), var("r0"), var("r1")


def tensor(*shape: object, d: DType = f32, layout: Layout | None = None) -> MemRef:
    return MemRef(d, tuple(expr(s) for s in shape), layout=layout or Layout())  # type: ignore[arg-type]


def region(
    iters: Mapping[str, object],
    reduces: Mapping[str, object],
    inputs: dict[str, MemRef],
    outputs: dict[str, MemRef],
    lets: list[Let],
    yields: list[Yield] | None = None,
    updates: dict[str, str] | None = None,
) -> Region:
    return Region(
        name="r",
        iters=tuple(Iter(n, expr(s)) for n, s in iters.items()),  # type: ignore[arg-type]
        reduce_axes=tuple(Iter(n, expr(s)) for n, s in reduces.items()),  # type: ignore[arg-type]
        inputs=tuple(Param(n, m) for n, m in inputs.items()),
        outputs=tuple(Target(n, m, updates=(updates or {}).get(n, "")) for n, m in outputs.items()),
        lets=tuple(lets),
        yields=tuple(yields if yields is not None else [Yield(lets[-1].name, next(iter(outputs)))]),
    )


def let(name: str, axes: str, e: RegionExpr, d: DType = f32) -> Let:
    return Let(name, tuple(axes.split()), d, e)


def read(t: str, *index: Expr) -> Read:
    return Read(t, tuple(expr(i) for i in index))


def b(fn: str, x: RegionExpr, y: RegionExpr) -> Binary:
    return Binary(fn, x, y)


def u(fn: str, x: RegionExpr) -> Unary:
    return Unary(fn, x)


def c(v: float | int | bool, d: DType = f32) -> Const:
    return Const(v, d)


def red(fn: str, axes: str, body: RegionExpr, d: DType = f32, init: float | None = None) -> Reduce:
    return Reduce(fn, tuple(axes.split()), init, d, body)


TWO = {"i0": N, "i1": C}
X2 = {"x": tensor(N, C)}
Y2 = {"y": tensor(N, C)}
x01 = read("x", i0, i1)

ZOO: dict[str, Callable[[], Region]] = {}
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {}
USUAL = ((3, 5), (1, 1), (0, 4), (4, 0), (7, 130), (2, 64), (130, 7))


def add(name: str, make: Callable[..., Region], sizes: tuple[tuple[int, ...], ...] = USUAL) -> None:
    ZOO[name] = make
    SIZES[name] = sizes


# -- maps ----------------------------------------------------------------------------------------
add(
    "bias_relu",
    lambda: region(TWO, {}, {**X2, "w": tensor(C)}, Y2, [let("l", "i0 i1", u("relu", b("add", x01, read("w", i1))))]),
)
add("scalar_operand", lambda: region(TWO, {}, {**X2, "s": tensor()}, Y2, [let("l", "i0 i1", b("mul", x01, read("s")))]))
add("transpose", lambda: region({"i0": C, "i1": N}, {}, X2, {"y": tensor(C, N)}, [let("l", "i0 i1", read("x", i1, i0))]))
add("rank0", lambda: region({}, {}, {"x": tensor()}, {"y": tensor()}, [let("l", "", b("add", read("x"), c(1.0)))]), ((),))
add(
    "chain",
    lambda: region(
        TWO,
        {},
        X2,
        Y2,
        [
            let("a", "i0 i1", u("abs", x01)),
            let("b", "i0 i1", u("sqrt", Ref("a"))),
            let("c", "i0 i1", u("neg", Ref("b"))),
            let("d", "i0 i1", u("exp", Ref("c"))),
            let("e", "i0 i1", b("add", Ref("d"), Ref("a"))),
            let("f", "i0 i1", u("tanh", Ref("e"))),
        ],
    ),
)
add(
    "two_outputs",
    lambda: region(
        TWO,
        {},
        X2,
        {"y": tensor(N, C), "z": tensor(C, N)},
        [let("a", "i0 i1", b("mul", x01, x01)), let("b", "i0 i1", b("sub", Ref("a"), x01))],
        [Yield("a", "y"), Yield("b", "z", map=(i1, i0))],
    ),
)
add(
    "concat",
    lambda: region(
        TWO,
        {},
        {**X2, "w": tensor(N, C)},
        {"y": tensor(N, C * 2)},
        [let("a", "i0 i1", x01), let("b", "i0 i1", u("neg", read("w", i0, i1)))],
        [Yield("a", "y", map=(i0, i1)), Yield("b", "y", map=(i0, i1 + C))],
    ),
)
add(
    "interleave",
    lambda: region(
        TWO, {}, {**X2, "w": tensor(N, C)}, {"y": tensor(N, C * 2)},
        [let("a", "i0 i1", x01), let("b", "i0 i1", read("w", i0, i1))],
        [Yield("a", "y", map=(i0, i1 * 2)), Yield("b", "y", map=(i0, i1 * 2 + 1))],
    ),
)  # fmt: skip
add("flip", lambda: region(TWO, {}, X2, Y2, [let("l", "i0 i1", read("x", i0, C - 1 - i1))]))
add("strided", lambda: region(TWO, {}, {"x": tensor(N, C * 3)}, Y2, [let("l", "i0 i1", read("x", i0, i1 * 3 + 2))]))
add("reshape", lambda: region({"i0": N * C}, {}, X2, {"y": tensor(N * C)}, [let("l", "i0", read("x", i0 // C, i0 % C))]))
add(
    "pad",
    lambda: region(
        {"i0": N + 2, "i1": C + 3},
        {},
        X2,
        {"y": tensor(N + 2, C + 3)},
        [let("l", "i0 i1", Select(Within((Guard(i0 - 1, N), Guard(i1 - 2, C))), read("x", i0 - 1, i1 - 2), c(7.0)))],
    ),
    ((3, 5), (1, 1), (0, 4), (4, 0), (5, 130)),
)
add(
    "pad_flip",
    lambda: region(
        {"i0": N, "i1": C + 3},
        {},
        X2,
        {"y": tensor(N, C + 3)},
        [let("l", "i0 i1", Select(Within((Guard(C - i1, C),)), read("x", i0, C - i1), u("neg", Index_f(i1))))],
    ),
)
add(
    "tril",
    lambda: region(
        TWO, {}, X2, Y2, [let("l", "i0 i1", Select(b("ge", Index(i0, D.i64), Index(i1, D.i64)), x01, c(0.0)))]
    ),
)  # fmt: skip
add(
    "iota",
    lambda: region(TWO, {}, {}, {"y": tensor(N, C, d=D.i32)}, [let("l", "i0 i1", Index(i0 * 3 + i1 // 2, D.i32), D.i32)]),
)
add("iota_f16", lambda: region(TWO, {}, {}, {"y": tensor(N, C, d=D.fp16)}, [let("l", "i0 i1", Index(i0 + i1, D.fp16), D.fp16)]))
add(
    "blocked_out",
    lambda: region(
        {"i0": N, "i1": C},
        {},
        X2,
        {"y": tensor(N, C, layout=Layout("blocked", (0, 1), ((1, 8),)))},
        [let("l", "i0 i1", b("add", x01, c(1.0)))],
    ),
    ((3, 16), (2, 64), (1, 8), (3, 5), (2, 130)),
)


def Index_f(e: Expr) -> RegionExpr:
    return Index(e, f32)


i3 = var("i3")
FOUR = {"i0": N, "i1": 3, "i2": C, "i3": 7}
X4 = {"x": tensor(N, 3, C, 7)}
add(
    "relu_4d",
    lambda: region(FOUR, {}, X4, {"y": tensor(N, 3, C, 7)}, [let("l", "i0 i1 i2 i3", u("relu", read("x", i0, i1, i2, i3)))]),
)
add(
    "channel_bias_4d",
    lambda: region(
        FOUR, {}, {**X4, "w": tensor(3)}, {"y": tensor(N, 3, C, 7)},
        [
            let("a", "i0 i1 i2 i3", b("add", read("x", i0, i1, i2, i3), read("w", i1))),
            let("l", "i0 i1 i2 i3", b("mul", Ref("a"), u("sigmoid", Ref("a")))),
        ],
    ),
)  # fmt: skip
add(
    "permute_4d",
    lambda: region(
        {"i0": N, "i1": C, "i2": 3, "i3": 7}, {}, X4, {"y": tensor(N, C, 3, 7)},
        [let("l", "i0 i1 i2 i3", read("x", i0, i2, i1, i3))],
    ),
)  # fmt: skip
add(
    "channels_last_4d",
    lambda: region(
        {"i0": N, "i1": C, "i2": 7, "i3": 3}, {}, X4, {"y": tensor(N, C, 7, 3)},
        [let("l", "i0 i1 i2 i3", read("x", i0, i3, i1, i2))],
    ),
)  # fmt: skip
add(
    "average_4d",
    lambda: region(
        {"i0": N, "i1": 3}, {"r0": C, "r1": 7}, X4, {"y": tensor(N, 3)},
        [let("l", "i0 i1", red("sum", "r0 r1", read("x", i0, i1, r0, r1)))],
    ),
)  # fmt: skip
add(
    "append_in_place",
    lambda: region(
        {"i0": N, "i1": C}, {}, {"t": tensor(N + 5, C), "x": tensor(N, C)}, {"y": tensor(N + 5, C)},
        [let("l", "i0 i1", b("add", x01, c(1.0)))], [Yield("l", "y", map=(i0 + 3, i1))], {"y": "t"},
    ),
)  # fmt: skip
add(
    "shift_in_place",
    lambda: region(
        {"i0": N, "i1": C}, {}, {"t": tensor(N + 1, C)}, {"y": tensor(N + 1, C)},
        [let("l", "i0 i1", read("t", i0, i1))], [Yield("l", "y", map=(i0 + 1, i1))], {"y": "t"},
    ),
)  # fmt: skip
add(
    "step_in_place",
    lambda: region(
        TWO,
        {},
        {"t": tensor(N, C), "x": tensor(N, C)},
        Y2,
        [let("l", "i0 i1", b("add", read("t", i0, i1), x01))],
        None,
        {"y": "t"},
    ),
)


add(
    "static_empty",
    lambda: region({"i0": 0, "i1": 0}, {}, {"x": tensor(0, 0)}, {"y": tensor(0, 0)}, [let("l", "i0 i1", u("neg", x01))]),
    ((),),
)
add(
    "static_empty_sum",
    lambda: region(
        {"i0": 3},
        {"r0": 0, "r1": 5},
        {"x": tensor(3, 0, 5)},
        {"y": tensor(3)},
        [let("l", "i0", red("sum", "r0 r1", read("x", i0, r0, r1)))],
    ),
    ((),),
)
add(
    "static_ones",
    lambda: region(
        {"i0": 1, "i1": 1, "i2": 5},
        {"r0": 1},
        {"x": tensor(1, 1, 5)},
        {"y": tensor(1, 1, 5)},
        [let("l", "i0 i1 i2", red("sum", "r0", b("add", read("x", i0, i1, i2), Index_f(r0))))],
    ),
    ((),),
)


# -- reduces -------------------------------------------------------------------------------------
def _reduce(fn: str, axis: int, d: DType = f32) -> Callable[[], Region]:
    def make() -> Region:
        if axis == 1:
            return region({"i0": N}, {"r0": C}, {"x": tensor(N, C, d=d)}, {"y": tensor(N, d=d)}, [let("l", "i0", red(fn, "r0", read("x", i0, r0), d), d)])  # fmt: skip
        return region({"i0": C}, {"r0": N}, {"x": tensor(N, C, d=d)}, {"y": tensor(C, d=d)}, [let("l", "i0", red(fn, "r0", read("x", r0, i0), d), d)])  # fmt: skip

    return make


LONG = (*USUAL, (3, 3000), (3000, 3))
for _fn in ("sum", "prod", "max", "min"):
    for _axis in (0, 1):
        add(f"{_fn}_{_axis}", _reduce(_fn, _axis), LONG if _fn != "prod" else USUAL)
for _d in (D.fp16, D.bf16, D.fp64, D.i32, D.i8, D.u8, D.i64):
    add(f"sum_1_{_d}", _reduce("sum", 1, _d))
    add(f"max_0_{_d}", _reduce("max", 0, _d))
add("and_1", _reduce("and", 1, D.bool))
add("or_0", _reduce("or", 0, D.bool))
add(
    "sum_all",
    lambda: region({}, {"r0": N, "r1": C}, X2, {"y": tensor()}, [let("l", "", red("sum", "r0 r1", read("x", r0, r1)))]),
    LONG,
)
add(
    "sum_middle",
    lambda: region(
        {"i0": N, "i1": C}, {"r0": 9}, {"x": tensor(N, 9, C)}, Y2, [let("l", "i0 i1", red("sum", "r0", read("x", i0, r0, i1)))]
    ),
)
add(
    "sum_init",
    lambda: region({"i0": N}, {"r0": C}, X2, {"y": tensor(N)}, [let("l", "i0", red("sum", "r0", read("x", i0, r0), init=5.0))]),
)
for _fn in ("argmax", "argmin"):
    add(
        f"{_fn}_1",
        lambda _fn=_fn: region(
            {"i0": N},
            {"r0": C},
            X2,
            {"y": tensor(N, d=D.i64)},
            [let("l", "i0", red(_fn, "r0", read("x", i0, r0), D.i64), D.i64)],
        ),
    )
    add(
        f"{_fn}_of_150",
        lambda _fn=_fn: region(
            {"i0": N},
            {"r0": 150},
            {"x": tensor(N, 150)},
            {"y": tensor(N, d=D.i64)},
            [let("l", "i0", red(_fn, "r0", read("x", i0, r0), D.i64), D.i64)],
        ),
        ((3,), (0,), (130,)),
    )
    add(
        f"{_fn}_0",
        lambda _fn=_fn: region(
            {"i0": C},
            {"r0": N},
            X2,
            {"y": tensor(C, d=D.i64)},
            [let("l", "i0", red(_fn, "r0", read("x", r0, i0), D.i64), D.i64)],
        ),
    )
add(
    "mul_add_sum",
    lambda: region(
        {"i0": N}, {"r0": C}, {**X2, "w": tensor(N, C)}, {"y": tensor(N)},
        [let("l", "i0", u("sqrt", u("abs", red("sum", "r0", b("add", b("mul", read("x", i0, r0), read("w", i0, r0)), c(1.0))))))],
    ),
)  # fmt: skip
add(
    "chain_then_sum",
    lambda: region(
        TWO, {}, X2, {"y": tensor(N)},
        [let("a", "i0 i1", b("mul", x01, c(2.0))), let("b", "i0 i1", u("exp", Ref("a"))), let("s", "i0", red("sum", "i1", Ref("b")))],
    ),
)  # fmt: skip

for _d, _acc in ((D.fp16, f32), (D.bf16, f32), (D.i8, D.i32), (f32, D.fp64)):
    add(
        f"wide_product_{_d}",
        lambda _d=_d, _acc=_acc: region(
            {"i0": N}, {"r0": C}, {"x": tensor(N, C, d=_d), "w": tensor(C, d=_d)}, {"y": tensor(N, d=_acc)},
            [let("l", "i0", red("sum", "r0", b("mul", read("x", i0, r0), read("w", r0)), _acc), _acc)],
        ),
        ((3, 5), (1, 1), (7, 130)),
    )  # fmt: skip
    add(
        f"wide_let_{_d}",
        lambda _d=_d, _acc=_acc: region(
            TWO, {}, {"x": tensor(N, C, d=_d), "w": tensor(C, d=_d)}, {"y": tensor(N, C, d=_acc)},
            [let("l", "i0 i1", b("mul", x01, read("w", i1)), _acc)],
        ),
        ((3, 5), (7, 130)),
    )  # fmt: skip

# -- rows ----------------------------------------------------------------------------------------
add(
    "softmax",
    lambda: region(
        TWO,
        {},
        X2,
        Y2,
        [
            let("m", "i0", red("max", "i1", x01)),
            let("e", "i0 i1", u("exp", b("sub", x01, Ref("m")))),
            let("s", "i0", red("sum", "i1", Ref("e"))),
            let("y", "i0 i1", b("div", Ref("e"), Ref("s"))),
        ],
    ),
    LONG,
)
add(
    "softmax_columns",
    lambda: region(
        TWO,
        {},
        X2,
        Y2,
        [
            let("m", "i1", red("max", "i0", x01)),
            let("e", "i0 i1", u("exp", b("sub", x01, Ref("m")))),
            let("s", "i1", red("sum", "i0", Ref("e"))),
            let("y", "i0 i1", b("div", Ref("e"), Ref("s"))),
        ],
    ),
)
_cf = Index(C, f32)
add(
    "layer_norm",
    lambda: region(
        TWO,
        {},
        {**X2, "g": tensor(C), "h": tensor(C)},
        Y2,
        [
            let("mean", "i0", b("div", red("sum", "i1", x01), _cf)),
            let("d", "i0 i1", b("sub", x01, Ref("mean"))),
            let("var", "i0", b("div", red("sum", "i1", b("mul", Ref("d"), Ref("d"))), _cf)),
            let("k", "i0", u("rsqrt", b("add", Ref("var"), c(1e-5)))),
            let("y", "i0 i1", b("add", b("mul", b("mul", Ref("d"), Ref("k")), read("g", i1)), read("h", i1))),
        ],
    ),
    ((3, 5), (1, 1), (0, 4), (7, 130), (2, 64), (2, 1000)),
)
add(
    "batch_norm",
    lambda: region(
        {"i0": N, "i1": 5, "i2": C},
        {},
        {"x": tensor(N, 5, C)},
        {"y": tensor(N, 5, C)},
        [
            let("s", "i1", b("div", red("sum", "i0 i2", read("x", i0, i1, i2)), Index(N * C, f32))),
            let("y", "i0 i1 i2", b("sub", read("x", i0, i1, i2), Ref("s"))),
        ],
    ),
    ((3, 5), (1, 1), (7, 130), (2, 64)),
)
add(
    "attention",
    lambda: region(
        {"i0": 2, "i1": N, "i2": C, "i3": 20},
        {"r0": 20},
        {"q": tensor(2, N, 20), "k": tensor(2, C, 20), "v": tensor(2, C, 20)},
        {"o": tensor(2, N, 20)},
        [
            let("s", "i0 i1 i2", b("mul", red("sum", "r0", b("mul", read("q", i0, i1, r0), read("k", i0, i2, r0))), c(0.25))),
            let("m", "i0 i1", red("max", "i2", Ref("s"))),
            let("p", "i0 i1 i2", u("exp", b("sub", Ref("s"), Ref("m")))),
            let("l", "i0 i1", red("sum", "i2", Ref("p"))),
            let("o", "i0 i1 i3", b("div", red("sum", "i2", b("mul", Ref("p"), read("v", i0, i2, var("i3")))), Ref("l"))),
        ],
    ),
    ((3, 5), (1, 1), (5, 37), (20, 64)),
)
add(
    "causal_attention",
    lambda: region(
        {"i0": 2, "i1": N, "i2": N, "i3": C},
        {"r0": C},
        {"q": tensor(2, N, C), "k": tensor(2, N, C), "v": tensor(2, N, C)},
        {"o": tensor(2, N, C)},
        [
            let("s", "i0 i1 i2", b("mul", red("sum", "r0", b("mul", read("q", i0, i1, r0), read("k", i0, i2, r0))), c(0.25))),
            let("c", "i0 i1 i2", Select(b("ge", Index(i1, D.i64), Index(i2, D.i64)), Ref("s"), Const("-INF", f32))),
            let("m", "i0 i1", red("max", "i2", Ref("c"))),
            let("p", "i0 i1 i2", u("exp", b("sub", Ref("c"), Ref("m")))),
            let("l", "i0 i1", red("sum", "i2", Ref("p"))),
            let("w", "i0 i1 i2", b("div", Ref("p"), Ref("l"))),
            let("o", "i0 i1 i3", red("sum", "i2", b("mul", Ref("w"), read("v", i0, i2, var("i3"))))),
        ],
    ),
    ((3, 5), (1, 1), (35, 37), (64, 64), (20, 3)),
)
add(
    "matmul",
    lambda: region(
        TWO, {"r0": K}, {"a": tensor(N, K), "b": tensor(K, C)}, Y2,
        [let("l", "i0 i1", u("relu", red("sum", "r0", b("mul", read("a", i0, r0), read("b", r0, i1)))))],
    ),
    ((3, 5, 7), (1, 1, 1), (4, 4, 0), (17, 33, 70)),
)  # fmt: skip
add(
    "matmul_let",
    lambda: region(
        TWO, {"r0": K}, {"a": tensor(N, K), "b": tensor(C, K)}, Y2,
        [let("acc", "i0 i1", red("sum", "r0", b("mul", read("a", i0, r0), read("b", i1, r0)))), let("l", "i0 i1", b("add", Ref("acc"), c(1.0)))],
    ),
    ((3, 5, 7), (1, 1, 1), (17, 33, 70)),
)  # fmt: skip
add(
    "blur_twice",
    lambda: region(
        {"i0": N, "i1": C, "i2": C + 2},
        {"r0": 3, "r1": 3},
        {"x": tensor(N, C + 4)},
        Y2,
        [
            let("a", "i0 i2", red("sum", "r0", read("x", i0, i2 + r0))),
            let("l", "i0 i1", b("div", red("sum", "r1", At("a", (i0, i1 + r1))), c(9.0))),
        ],
    ),
)
add(
    "max_pool_padded",
    lambda: region(
        {"i0": N, "i1": C},
        {"r0": 3},
        {"x": tensor(N, C * 2)},
        Y2,
        [
            let(
                "l",
                "i0 i1",
                red(
                    "max",
                    "r0",
                    Select(Within((Guard(i1 * 2 + r0 - 1, C * 2),)), read("x", i0, i1 * 2 + r0 - 1), Const("-INF", f32)),
                ),
            )
        ],
    ),
)
add(
    "rotate_half",
    lambda: region(
        {"i0": N, "i1": 8},
        {},
        {"x": tensor(N, 8)},
        {"y": tensor(N, 8)},
        [
            let("a", "i0 i1", b("mul", read("x", i0, i1), c(3.0))),
            let(
                "l",
                "i0 i1",
                Select(
                    Within((Guard(i1, expr(4)),)),
                    u("neg", At("a", (i0, i1 + 4))),
                    Select(Within((Guard(i1 - 4, expr(4)),)), At("a", (i0, i1 - 4)), c(0.0)),
                ),
            ),
        ],
    ),
    ((3,), (0,), (33,)),
)
add(
    "total_then_divide",
    lambda: region(
        TWO, {}, X2, Y2,
        [let("r", "i0", red("sum", "i1", x01)), let("t", "", red("sum", "i0", Ref("r"))), let("l", "i0 i1", b("add", x01, Ref("t")))],
    ),
)  # fmt: skip

# -- scans ---------------------------------------------------------------------------------------
for _fn in ("sum", "max", "prod"):
    for _along in ("i0", "i1"):
        for _ex, _rev in ((False, False), (True, False), (False, True), (True, True)):
            if _fn != "sum" and (_ex != _rev):
                continue
            add(
                f"scan_{_fn}_{_along}_{int(_ex)}{int(_rev)}",
                lambda _fn=_fn, _along=_along, _ex=_ex, _rev=_rev: region(
                    TWO, {}, X2, Y2, [let("l", "i0 i1", Scan(_fn, _along, f32, x01, _ex, _rev))]
                ),
                ((3, 5), (1, 1), (0, 4), (7, 66)),
            )
add(
    "scan_i32",
    lambda: region(
        {"i0": N},
        {},
        {"x": tensor(N, d=D.i32)},
        {"y": tensor(N, d=D.i32)},
        [let("l", "i0", Scan("sum", "i0", D.i32, read("x", i0)), D.i32)],
    ),
    ((0,), (1,), (100,)),
)
add(
    "scan_then_scale",
    lambda: region(
        TWO, {}, X2, Y2,
        [let("a", "i0 i1", u("exp", x01)), let("c", "i0 i1", Scan("sum", "i1", f32, Ref("a"))), let("l", "i0 i1", b("div", Ref("c"), At("c", (i0, C - 1))))],
    ),
    ((3, 5), (1, 1), (7, 66)),
)  # fmt: skip

# -- indexed reads and writes --------------------------------------------------------------------
for _policy in ("error", "wrap", "clamp", "zero", "assume"):
    add(
        f"gather_{_policy}",
        lambda _policy=_policy: region(
            {"i0": N, "i1": C}, {}, {"t": tensor(K, C), "ids": tensor(N, d=D.i64)}, Y2,
            [let("l", "i0 i1", ReadAt("t", (None, i1), (read("ids", i0),), _policy))],
        ),
        ((3, 5, 4), (2, 64, 9), (0, 3, 2)),
    )  # fmt: skip
add(
    "gather_elements",
    lambda: region(
        TWO, {}, {"t": tensor(N, K), "ids": tensor(N, C, d=D.i32)}, Y2,
        [let("l", "i0 i1", b("mul", ReadAt("t", (i0, None), (read("ids", i0, i1),), "wrap"), c(2.0)))],
    ),
    ((3, 5, 4), (2, 64, 9)),
)  # fmt: skip
add(
    "scatter_rows",
    lambda: region(
        TWO, {}, {"t": tensor(K, C), "ids": tensor(N, d=D.i64), "x": tensor(N, C)}, {"y": tensor(K, C)},
        [let("v", "i0 i1", b("mul", x01, c(2.0))), let("ix", "i0 i1", read("ids", i0), D.i64)],
        [Yield("v", "y", map=(None, i1), indices=("ix",), combine="set", bounds="wrap")], {"y": "t"},
    ),
    ((3, 5, 4), (9, 64, 4)),
)  # fmt: skip
add(
    "scatter_add",
    lambda: region(
        {"i0": N}, {}, {"t": tensor(K), "ids": tensor(N, d=D.i64), "x": tensor(N)}, {"y": tensor(K)},
        [let("v", "i0", read("x", i0)), let("ix", "i0", read("ids", i0), D.i64)],
        [Yield("v", "y", map=(None,), indices=("ix",), combine="add", bounds="zero")], {"y": "t"},
    ),
    ((3, 5), (100, 4)),
)  # fmt: skip
add(
    "random",
    lambda: region(
        {"i0": N, "i1": C},
        {},
        {"k": tensor(d=D.u64)},
        {"y": tensor(N, C, d=D.u32)},
        [let("l", "i0 i1", Random(read("k"), i0 * C + i1), D.u32)],
    ),
)
add(
    "cast_yield",
    lambda: region(
        TWO, {}, X2, {"y": tensor(N, C, d=D.fp16)}, [let("l", "i0 i1", b("add", x01, c(1.0)))], [Yield("l", "y", cast=D.fp16)]
    ),
)


def size_names(r: Region) -> list[str]:
    memrefs = [*(p.memref for p in r.inputs), *(p.memref for p in r.outputs)]
    text = {n for m in memrefs for s in m.shape for n in map(str, _names(s))}
    return [n for n in ("N", "C", "K") if n in text]


def _names(e: Expr) -> frozenset[str]:
    from tatami.core.algebra.visit import free_vars

    return free_vars(e)


def bind(r: Region, values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(size_names(r), values, strict=True))


def draw(r: Region, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs: dyadic floats (sums and comparisons are exact), small integers, indices in range of K."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for p in r.inputs:
        shape = tuple(evaluate(s, sizes) for s in p.memref.shape)
        d = p.memref.dtype
        a: np.ndarray
        if p.name == "ids":
            k = max(sizes.get("K", 0), sizes.get("C", 0) if "K" not in sizes else 0)
            a = rng.integers(-k if _wraps(r) else 0, k, shape)
        elif d == D.bool:
            a = rng.integers(0, 2, shape)
        elif d.is_float:
            a = rng.integers(-32, 33, shape) / 16
        else:
            a = rng.integers(0 if str(d)[0] == "u" else -100, 100, shape)
        out[p.name] = np.asarray(a).astype(numpy_dtype(d))
    return out


def _wraps(r: Region) -> bool:
    return any(y.bounds == "wrap" and y.indices for y in r.yields) or any(
        "wrap" in repr(x.expr) and "ReadAt" in repr(x.expr) for x in r.lets
    )
