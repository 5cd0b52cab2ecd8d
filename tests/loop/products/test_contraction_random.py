"""Random contraction Regions: any grouping and order of axes, windows, guards, several outputs, against their meaning."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Input, Signature
from tatami.core.signature import Output as SignatureOutput
from tatami.indexbook.ir import Guard
from tatami.region.ir import (
    Binary,
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
    Select,
    Target,
    Unary,
    Within,
    Yield,
)
from tatami.region.run import run as run_meaning
from tests.loop.products.contraction_harness import assert_close, plan, run

F = DType.fp32


def shuffled(rng: random.Random, items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(rng.sample(items, len(items)))


def operand(
    rng: random.Random, name: str, own: tuple[str, ...], k: tuple[str, ...], sizes: dict[str, int]
) -> tuple[Param, RegionExpr]:
    """A read over its axes in any order; at times one axis and one k axis meet in a guarded window."""
    axes = list(shuffled(rng, own + k))
    index: list[Expr] = [var(a) for a in axes]
    shape = [sizes[a] for a in axes]
    guards: list[Guard] = []
    free = [a for a in own if not a.startswith("b")]
    if free and rng.random() < 0.5:
        a, c = rng.choice(free), rng.choice(k)
        stride, dilation, pad = rng.choice((1, 1, 2, 3)), rng.choice((1, 2)), rng.choice((0, 1, 2))
        span = stride * (sizes[a] - 1) + dilation * (sizes[c] - 1) + 1
        extent = max(1, span - 2 * pad)
        at = expr(f"{stride}*{a} + {dilation}*{c} - {pad}")
        i, j = axes.index(a), axes.index(c)
        index[i], shape[i] = at, extent
        del index[j], shape[j], axes[j]
        if pad:
            guards.append(Guard(at, expr(extent)))
    e: RegionExpr = Read(name, tuple(index))
    if guards:
        e = Select(Within(tuple(guards)), e, Const(0.0, F))
    if rng.random() < 0.2:
        e = Unary("abs", e)
    return Param(name, MemRef(F, tuple(map(expr, shape)))), e


def contraction(seed: int) -> Region:
    rng = random.Random(seed)
    groups = {
        "b": tuple(f"b{i}" for i in range(rng.choice((0, 0, 1, 2)))),
        "m": tuple(f"m{i}" for i in range(rng.choice((1, 1, 2)))),
        "n": tuple(f"n{i}" for i in range(rng.choice((1, 2, 2)))),
        "k": tuple(f"k{i}" for i in range(rng.choice((1, 2, 2)))),
    }
    sizes = {a: rng.choice((1, 2, 3, 5, 8, 13, 17, 30) if g != "b" else (1, 2, 3)) for g, axes in groups.items() for a in axes}
    b, m, n, k = groups.values()
    lhs, x = operand(rng, "lhs", b + m, k, sizes)
    rhs, y = operand(rng, "rhs", b + n, k, sizes)
    axes = shuffled(rng, b + m + n)
    some = shuffled(rng, tuple(a for a in axes if rng.random() < 0.6))
    extra = Param("extra", MemRef(F, tuple(expr(sizes[a]) for a in some)))
    second = shuffled(rng, axes)
    acc = Let("acc", axes, F, Reduce("sum", k, 0.0, F, Binary("mul", x, y)))
    after = Let("z", axes, F, Unary("relu", Binary("add", Ref("acc"), Read("extra", tuple(var(a) for a in some)))))

    def target(name: str, order: tuple[str, ...]) -> Target:
        return Target(name, MemRef(F, tuple(expr(sizes[a]) for a in order)))

    return Region(
        "r0",
        tuple(Iter(a, expr(sizes[a])) for a in axes),
        tuple(Iter(a, expr(sizes[a])) for a in k),
        (lhs, rhs, extra),
        (target("y", axes), target("w", second)),
        (acc, after),
        (Yield("z", "y"), Yield("acc", "w", map=tuple(var(a) for a in second))),
    )


@pytest.mark.parametrize("seed", range(30))
def test_a_random_contraction_means_what_its_region_means(seed: int) -> None:
    region = contraction(seed)
    rng = np.random.default_rng(seed)
    x = {p.name: rng.standard_normal([s.as_int() or 0 for s in p.memref.shape]).astype(np.float32) for p in region.inputs}
    signature = Signature(
        tuple(Input(p.name, F, p.memref.shape) for p in region.inputs),
        tuple(SignatureOutput(t.name, F, t.memref.shape) for t in region.outputs),
    )
    names = tuple(p.name for p in region.inputs), tuple(t.name for t in region.outputs)
    wanted = run_meaning(Module({"main": Program(signature, *names, (region,))}), x, {}, "float64")
    got = run(region, plan(region, split=("m", "n")[seed % 2], swap=seed % 3 == 0), x)
    for name, value in got.items():
        assert_close(value, np.asarray(wanted[name]))
