"""Random tiny programs: every kind of value and movement, small shapes with size 1 among them."""

from __future__ import annotations

import random

from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.tiny.ir import Program
from tests.tiny_programs import Builder

UNARY = ("exp", "relu", "neg", "abs", "tanh", "sigmoid")
BINARY = ("add", "sub", "mul", "max", "min")


def random_program(seed: int, steps: int = 10) -> Module[Program]:
    """`steps` values after one to three inputs, with one to three outputs."""
    r = random.Random(seed)
    b = Builder()
    pool = [b.input(f"x{k}", tuple(r.choice((1, 2, 3, 4)) for _ in range(r.randint(0, 3)))) for k in range(r.randint(1, 3))]
    for _ in range(steps):
        v = r.choice(pool[-4:])
        made = _step(r, b, pool, v)
        if made is not None and _elements(b, made) <= 4096:
            pool.append(made)
    computed = [v for v in pool if b[v].src] or pool
    for k, v in enumerate(r.sample(computed, min(len(computed), r.randint(1, 3)))):
        b.output(f"y{k}", v)
    b.output("last", pool[-1])
    return b.module()


def _ints(b: Builder, v: str) -> list[int]:
    return [s.as_int() or 0 for s in b[v].shape]


def _elements(b: Builder, v: str) -> int:
    total = 1
    for s in _ints(b, v):
        total *= s
    return total


def _fit(b: Builder, v: str, shape: list[int]) -> str | None:
    """`v` spread over `shape` by the right-aligned rule."""
    have = _ints(b, v)
    offset = len(shape) - len(have)
    if offset < 0 or any(s not in (1, shape[offset + k]) for k, s in enumerate(have)):
        return None
    return v if have == shape else b.expand(v, tuple(shape), tuple(range(offset, len(shape))))


def _step(r: random.Random, b: Builder, pool: list[str], v: str) -> str | None:
    shape = _ints(b, v)
    rank = len(shape)
    kind = r.choice(
        ("unary", "unary", "binary", "binary", "binary", "permute", "reshape", "expand", "pad", "shrink", "window", "reduce", "reduce",
         "matmul", "softmax", "scan", "gather", "scatter", "constant", "coordinate", "mean", "cast")
    )  # fmt: skip
    if kind == "unary":
        return b.op(r.choice(UNARY), b.op("min", v, b.const(2.0)))
    if kind == "cast":
        return b.cast(b.cast(v, DType.fp16), DType.fp32)
    if kind == "constant":
        return b.op(r.choice(BINARY), v, b.const(0.5))
    if kind == "binary":
        for other in r.sample(pool, len(pool)):
            spread = _fit(b, other, shape)
            if spread is not None:
                return b.op(r.choice(BINARY), v, spread)
        return None
    if kind == "coordinate" and rank:
        line = b.cast(b.iota(tuple(shape), r.randrange(rank)), DType.fp32)
        return b.op("add", v, line)
    if rank == 0:
        return b.expand(v, (2, 3), ()) if kind == "expand" else None
    axis = r.randrange(rank)
    if kind == "permute":
        return b.permute(v, *r.sample(range(rank), rank))
    if kind == "reshape":
        return b.reshape(v, *_regroup(r, shape))
    if kind == "expand":
        return b.expand(v, (r.choice((1, 2, 3)), *shape), tuple(range(1, rank + 1)))
    if kind == "pad":
        return b.pad(v, *((r.randint(0, 1), r.randint(0, 2)) for _ in shape), value=r.choice((0.0, 1.0)))
    if kind == "shrink":
        lo = [r.randrange(s) for s in shape]
        return b.shrink(v, tuple(lo), tuple(r.randint(low + 1, s) for low, s in zip(lo, shape)))
    if kind == "window" and shape[axis] > 1:
        width = r.randint(2, shape[axis])
        entries = [f"i{k}" if k != axis else f"i{k} + i{rank}" for k in range(rank)]
        full = (*(s if k != axis else s - width + 1 for k, s in enumerate(shape)), width)
        return b.reduce(r.choice(("sum", "max")), b.view(v, full, *entries), rank)
    if kind == "reduce":
        return b.reduce(r.choice(("sum", "max", "min")), v, *sorted(r.sample(range(rank), r.randint(1, rank))))
    if kind == "mean":
        total = b.op("mul", b.reduce("sum", v, rank - 1), b.const(0.25))
        return b.op("sub", v, b.along_rows(total, tuple(shape)))
    if kind == "matmul" and rank >= 2:
        for other in r.sample(pool, len(pool)):
            theirs = _ints(b, other)
            if len(theirs) == rank and theirs[:-2] == shape[:-2] and theirs[-2] == shape[-1]:
                return b.matmul(v, other)
        return b.matmul(v, b.permute(v, *range(rank - 2), rank - 1, rank - 2))
    if kind == "softmax":
        return b.softmax(v)
    if kind == "scan":
        return b.scan(r.choice(("sum", "max")), v, axis)
    if kind == "gather":
        index = b.iota(tuple(shape), axis)
        sources = tuple(None if k == axis else f"i{k}" for k in range(rank))
        return b.gather(v, tuple(shape), sources, index)
    if kind == "scatter":
        index = b.iota(tuple(shape), axis)
        places = tuple(None if k == axis else f"i{k}" for k in range(rank))
        return b.scatter(r.choice(("set", "add")), v, b.op("relu", v), places, index)
    return None


def _regroup(r: random.Random, shape: list[int]) -> list[int]:
    """Another shape with as many elements."""
    total = 1
    for s in shape:
        total *= s
    out = []
    for factor in (2, 3):
        if total % factor == 0 and r.random() < 0.6:
            out.append(factor)
            total //= factor
    out.insert(r.randint(0, len(out)), total)
    return out
