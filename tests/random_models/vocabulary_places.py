"""Random uses of operations on places: movement, indexing, windows, products, recurrent layers, other graphs."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from tatami.core.dtype import DType as F
from tatami.core.expr import expr
from tests.random_models.vocabulary_values import floats, step


@step("reshape")
def reshaped(name, m, x):
    return x.reshape(-1, x.shape[-1]) if x.rank else x.reshape(1, 1)


@step("permute")
def permuted(name, m, x):
    return x.permute(m.r.sample(range(x.rank), x.rank)) if x.rank > 1 else None


@step("expand")
def expanded(name, m, x):
    return x.expand(m.r.choice([1, 2, 3]), *x.shape) if x.rank < 4 and m.count(x.shape) < 20000 else None


@step("unsqueeze")
def with_ones(name, m, x):
    return x.unsqueeze(m.r.randint(0, x.rank)) if x.rank < 4 else None


@step("squeeze")
def without_ones(name, m, x):
    return x.unsqueeze(0).squeeze(0)


@step("flatten")
def flattened(name, m, x):
    start = m.axis(x) if x.rank else 0
    return x.flatten(start)


@step("flip")
def flipped(name, m, x):
    return x.flip(m.axis(x)) if x.rank else None


@step("repeat")
def repeated(name, m, x):
    axis = m.r.randint(0, x.rank)
    return x.unsqueeze(axis).repeat(axis, m.r.choice([1, 2, 5])) if x.rank < 4 and m.count(x.shape) < 20000 else None


@step("tile")
def tiled(name, m, x):
    return x.tile([m.r.choice([1, 2]) for _ in x.shape]) if x.rank and m.count(x.shape) < 20000 else None


@step("pad")
def padded(name, m, x):
    if not x.rank:
        return None
    mode = m.r.choice(["constant", "constant", "edge", "reflect", "wrap"])
    axis = m.axis(x)
    if mode != "constant" and m.value_of(x.shape[axis]) < 4:
        return None
    pads = [(0, 0)] * x.rank
    pads[axis] = (m.r.randint(0, 3), m.r.randint(0, 3))
    if mode == "constant" and m.value_of(x.shape[axis]) > 2:
        pads[axis] = (m.r.randint(-1, 3), m.r.randint(-1, 3))
    return x.pad(pads, False if x.dtype == F.bool else 0, mode)


@step("slice")
def sliced(name, m, x):
    if not x.rank:
        return None
    keys = [slice(None)] * x.rank
    axis = m.axis(x)
    if m.value_of(x.shape[axis]) < 3:
        return None
    keys[axis] = m.r.choice(
        [
            slice(1, None),
            slice(None, -1),
            slice(None, None, -1),
            slice(None, None, 2),
            slice(2, 0, -1),
            slice(-2, None),
            0,
            -1,
            1,
        ]
    )
    return x[tuple(keys)]


@step("roll")
def rolled(name, m, x):
    return x.roll(m.r.randint(-3, 3), m.axis(x)) if x.rank and not m.is_empty(x) else None


@step("unfold", "fold")
def windows(name, m, x):
    if not x.rank or x.rank > 3 or x.dtype == F.bool or m.value_of(x.shape[-1]) < 5:
        return None
    kernel, stride, dilation = m.r.randint(1, 3), m.r.randint(1, 2), m.r.randint(1, 2)
    seen = x.unfold(kernel, stride, dilation)
    return seen if name == "unfold" else seen.fold(x.shape, kernel, stride, dilation)


@step("concat")
def joined(name, m, x):
    return m.g.concat([x, m.peer(x), x], m.axis(x)) if x.rank else None


@step("stack")
def stacked(name, m, x):
    return m.g.stack([x, m.peer(x)], m.r.randint(0, x.rank)) if x.rank < 4 else None


@step("split")
def parts(name, m, x):
    axis = m.axis(x) if x.rank else 0
    n = x.shape[axis].as_int() if x.rank else None
    return x.split([n // 3, 0, n - n // 3], axis) if n else None


@step("view")
def viewed(name, m, x):
    if not x.rank or m.is_empty(x):
        return None
    n = x.rank - 1
    entries = [f"i{n - k}" for k in range(x.rank)]
    entries[-1] = str(x.shape[-1] - 1 - expr("i0"))
    return x.view(tuple(reversed(x.shape)), map=entries)


@step("depth_to_space")
def deep_to_wide(name, m, x):
    return x.depth_to_space(2, m.r.choice(["DCR", "CRD"])) if x.rank == 4 and (x.shape[1].as_int() or 1) % 4 == 0 else None


@step("space_to_depth")
def wide_to_deep(name, m, x):
    sizes = [s.as_int() for s in x.shape[2:]]
    return (
        x.space_to_depth(2, m.r.choice(["DCR", "CRD"]))
        if x.rank == 4 and all(s is not None and s % 2 == 0 for s in sizes)
        else None
    )


@step("trilu")
def triangle(name, m, x):
    return (x.triu if m.r.random() < 0.5 else x.tril)(m.r.randint(-2, 2)) if x.rank >= 2 else None


@step("diagonal")
def diagonal(name, m, x):
    return (
        x.unsqueeze(-1).expand(*x.shape, x.shape[-1]).diagonal() if x.rank and x.rank < 4 and m.count(x.shape) < 5000 else None
    )


# -- indexing ------------------------------------------------------------------------------------
@step("gather", "take")
def gathered(name, m, x):
    if not x.rank or x.rank > 3 or m.is_empty(x):
        return None
    axis = m.axis(x)
    n = m.value_of(x.shape[axis])
    shape = [m.size(small=True) for _ in range(m.r.choice([0, 1, 2]))] if name == "take" else list(x.shape)
    if name == "gather":
        shape[axis] = m.size(small=True)
    index = m.indices(shape, -n, n)
    return x.take(index, axis) if name == "take" else x.gather(axis, index)


@step("gather_nd")
def gathered_by_tuples(name, m, x):
    if not x.rank or m.is_empty(x):
        return None
    depth = m.r.randint(1, min(2, x.rank))
    columns = [m.indices((expr(5), expr(1)), 0, m.value_of(x.shape[k])).cast(F.i64) for k in range(depth)]
    return x.gather_nd(m.g.concat(columns, 1) if depth > 1 else columns[0])


@step("scatter")
def scattered(name, m, x):
    if not x.rank or x.dtype == F.bool or m.is_empty(x):
        return None
    axis = m.axis(x)
    op = m.r.choice(["add", "max", "min", "mul", "set"])
    shape = list(x.shape)
    shape[axis] = expr(m.r.randint(1, 5))
    return x.scatter(axis, m.indices(shape, 0, m.value_of(x.shape[axis])), m.fresh(shape, x.dtype), op)


@step("scatter_nd")
def scattered_by_tuples(name, m, x):
    if not x.rank or x.dtype == F.bool or m.is_empty(x):
        return None
    op = m.r.choice(["add", "max", "min", "set"])
    return x.scatter_nd(m.indices((expr(3), expr(1)), 0, m.value_of(x.shape[0])), m.fresh((expr(3), *x.shape[1:]), x.dtype), op)


@step("one_hot")
def hot(name, m, x):
    return m.indices((m.size(small=True), m.size(small=True)), -2, 6).one_hot(
        m.r.choice([3, 4, 7]), m.r.choice([0, 1, -1]), m.r.choice([F.fp32, F.i32])
    )


@step("nonzero", "unique", "compress")
def counted(name, m, x):
    if not x.rank or x.rank > 2 or x.dtype in (F.bf16, F.fp16):
        return None
    x = m.exact(x)
    if name == "nonzero":
        return x.nonzero().sum(1)
    if name == "compress":
        return (
            x.compress(m.fresh((x.shape[0],), F.bool, const=False), 0).max(0)
            if not m.is_empty(x) and x.dtype != F.bool
            else None
        )
    if x.dtype == F.bool:
        return None
    return x.op("unique", size=m.g.fresh_size("u"))[2]


@step("extent")
def sized_by_data(name, m, x):
    if x.dtype in (F.bool, F.bf16, F.fp16) or m.is_empty(x):
        return None
    count = m.exact(x).abs().max().cast(F.i64).clamp(1, 9)
    return x.unsqueeze((0,)).expand((count.as_size(), *x.shape)).max(0)


@step("extents")
def sized_twice_by_data(name, m, x):
    if x.dtype in (F.bool, F.bf16, F.fp16) or m.is_empty(x):
        return None
    count = m.exact(x).abs().max().cast(F.i64)
    rows, columns = m.g.sizes_of(count.clamp(1, 4), count.clamp(2, 3))
    return x.unsqueeze((0, 1)).expand((rows, columns, *x.shape)).max((0, 1))


@step("non_max_suppression")
def boxes(name, m, x):
    n = expr(m.r.choice([1, 5, 9]))
    corner = m.fresh((expr(1), n, expr(4)), F.fp32, const=False)
    kept = corner.one(
        "non_max_suppression",
        m.distinct((expr(1), expr(2), n)),
        size=m.g.fresh_size("kept"),
        max_per_class=3,
        iou_threshold=0.3,
    )
    return kept.sum(0)


@step("reverse_sequence")
def reversed_parts(name, m, x):
    if x.rank < 2:
        return None
    lengths = m.indices((x.shape[1],), 0, m.value_of(x.shape[0]) + 1)
    return x.reverse_sequence(lengths)


@step("rotary_embedding")
def turned(name, m, x):
    n = x.shape[-1].as_int() if x.rank >= 2 else None
    if not n or n % 2 or not floats(x):
        return None
    table = (*x.shape[-2:-1], expr(n // 2))
    return x.rotary_embedding(m.fresh(table, x.dtype), m.fresh(table, x.dtype), interleaved=m.r.random() < 0.5)


@step("resize")
def resized(name, m, x):
    if x.rank not in (2, 3) or x.dtype != F.fp32 or m.is_empty(x):
        return None
    mode = m.r.choice(["nearest", "linear", "cubic"])
    n = x.shape[-1].as_int()
    return (
        x.resize((*x.shape[:-1], n * 2), mode, coordinates=m.r.choice(["half_pixel", "asymmetric"])) if n and n < 40 else None
    )


# -- products and windows ------------------------------------------------------------------------
@step("matmul")
def product(name, m, x):
    return x.clamp(-4.0, 4.0) @ m.fresh((x.shape[-1], m.size(small=True)), x.dtype) if x.rank >= 1 and floats(x) else None


@step("grouped_matmul")
def product_by_groups(name, m, x):
    if x.rank != 2 or not floats(x):
        return None
    groups = m.r.choice([1, 2, 3])
    ends = m.g.constant(np.array(sorted(m.r.randint(0, 6) for _ in range(groups)), np.int64))
    return x.clamp(-4.0, 4.0).grouped_matmul(m.fresh((expr(groups), x.shape[1], m.size(small=True)), x.dtype), ends)


@step("gemm", "linear")
def affine(name, m, x):
    if x.rank != 2 or not floats(x):
        return None
    n = m.size(small=True)
    w, bias = m.fresh((n, x.shape[1]), x.dtype), m.fresh((n,), x.dtype)
    x = x.clamp(-4.0, 4.0)
    return x.linear(w, bias) if name == "linear" else x.gemm(w, bias, trans_b=True, alpha=0.5)


@step("einsum")
def by_letters(name, m, x):
    if not floats(x) or x.rank not in (2, 3):
        return None
    x = x.clamp(-4.0, 4.0)
    if x.rank == 2:
        return m.g.einsum(
            m.r.choice(["ij,kj->ik", "ij,kj->ki", "ij,kj->i"]), x, m.fresh((m.size(small=True), x.shape[1]), x.dtype)
        )
    return m.g.einsum(
        m.r.choice(["bij,bkj->bik", "bij,bkj->ikb"]), x, m.fresh((x.shape[0], m.size(small=True), x.shape[2]), x.dtype)
    )


def small_windows(m, x, least):
    """(kernel, stride, padding, dilation) that fit the axes from 2 on; None when they are too short."""
    n = x.rank - 2
    if x.rank not in (3, 4) or not floats(x) or m.is_empty(x) or any(m.value_of(s) < least for s in x.shape[2:]):
        return None
    draw = lambda *values: tuple(m.r.choice(values) for _ in range(n))  # noqa: E731
    return draw(1, 2, 3), draw(1, 2), draw(0, 1), draw(1, 1, 2)


@step("conv", "conv_transpose")
def convolved(name, m, x):
    way, channels = small_windows(m, x, 5), x.shape[1].as_int() if x.rank > 1 else None
    if way is None or not channels:
        return None
    kernel, stride, padding, dilation = way
    groups = m.r.choice([k for k in range(1, channels + 1) if channels % k == 0])
    out = m.r.choice([1, 2])
    lead = (out * groups, channels // groups) if name == "conv" else (channels, out)
    w = m.fresh((expr(lead[0]), expr(lead[1]), *map(expr, kernel)), x.dtype)
    named = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return getattr(x.clamp(-4.0, 4.0), name)(
        w, m.fresh((expr(out * groups),), x.dtype) if m.r.random() < 0.5 else None, **named
    )


@step("max_pool", "avg_pool", "lp_pool")
def pooled(name, m, x):
    way = small_windows(m, x, 5)
    if way is None:
        return None
    kernel, stride, padding, dilation = way
    if any(p * 2 > k for p, k in zip(padding, kernel)):
        padding = (0,) * len(kernel)
    x = x.clamp(-4.0, 4.0)
    more = {"count_include_pad": m.r.random() < 0.5} if name == "avg_pool" else {}
    return getattr(x, name)(kernel, stride, padding, dilation=dilation, ceil_mode=m.r.random() < 0.3, **more)


@step("max_pool_indices")
def pooled_places(name, m, x):
    way = small_windows(m, x, 5)
    return m.exact(x).max_pool_indices(way[0], way[1]) if way else None


@step("adaptive_avg_pool", "adaptive_max_pool")
def adaptive(name, m, x):
    return getattr(x, name)(m.r.choice([1, 2, 3])) if small_windows(m, x, 1) else None


@step("global_avg_pool", "global_max_pool")
def over_everything(name, m, x):
    return x.one(name) if small_windows(m, x, 1) else None


@step("attention")
def attended(name, m, x):
    if x.rank not in (2, 3, 4) or x.dtype != F.fp32 or m.is_empty(x):
        return None
    length = m.size(small=True)
    if m.value_of(length) == 0:
        return None
    k = m.fresh((*x.shape[:-2], length, x.shape[-1]), x.dtype)
    v = m.fresh((*x.shape[:-2], length, expr(3)), x.dtype)
    mask = m.fresh((x.shape[-2], length), x.dtype) if m.r.random() < 0.4 else None
    return x.clamp(-2.0, 2.0).attention(k, v, mask, causal=m.r.random() < 0.3)


@step("lstm", "gru", "rnn")
def recurrent(name, m, x):
    if x.rank != 3 or not floats(x) or m.count(x.shape) > 2000:
        return None
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    directions = m.r.choice([1, 2])
    w = m.fresh((expr(directions), expr(gates * 3), x.shape[2]), x.dtype) * 0.25
    r = m.fresh((expr(directions), expr(gates * 3), expr(3)), x.dtype) * 0.25
    return x.clamp(-2.0, 2.0).op(
        name, w, r, direction="bidirectional" if directions == 2 else m.r.choice(["forward", "reverse"])
    )


# -- other graphs --------------------------------------------------------------------------------
def callee(m, x, build):
    """A graph of one operand like `x`; its sizes are names of its own."""
    g = m.g.subgraph(f"sub{len(m.g.root._graphs)}")
    a = g.input("a", tuple(f"N{k}" for k in range(x.rank)), x.dtype)
    build(g, a)
    return g


@step("call")
def called(name, m, x):
    if not floats(x):
        return None
    g = callee(m, x, lambda g, a: (g.output("p", a.sin() + 0.5), g.output("q", a.sum() if a.rank else a * 2.0)))
    return m.g.call(g, x)


@step("if")
def branched(name, m, x):
    if not floats(x):
        return None
    yes = callee(m, x, lambda g, a: g.output("y", a * 0.5))
    no = callee(m, x, lambda g, a: g.output("y", -a))
    return m.g.cond(m.fresh((), F.bool, const=False), yes, no, x)


@step("loop")
def repeated_body(name, m, x):
    if not floats(x):
        return None
    g = m.g.subgraph(f"sub{len(m.g.root._graphs)}")
    g.input("i", (), F.i64)
    g.input("c", (), F.bool)
    a = g.input("a", tuple(f"N{k}" for k in range(x.rank)), x.dtype)
    g.output("go", g.constant(np.asarray(True)) & True)
    g.output("next", a * 0.5 + 0.25)
    return m.g.loop(g, [x], trip=m.r.choice([0, 1, 3]))
