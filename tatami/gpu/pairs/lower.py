"""Two products as one kernel, for any Region that `region/views/pairs/online.py` finds.

    S = left * right over d;  A = exp(S - max) / sum, or pointwise in one or several such S;  C = A * B over keys

A CTA computes rows of S and keeps only one block of keys of them, in registers, where the accumulators of the first product
become the A fragments of the second. Blocks that the predicate of S excludes for all rows are skipped. Since 0 times infinity
is NaN, a preceding kernel first checks whether all of B is finite (`Weights.nonfinite`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, var
from tatami.core.kernel import Binding, Condition, is_divisible
from tatami.core.layout import MemRef
from tatami.core.target import ACCESS_BYTES, Target
from tatami.gpu.ir import AnyKernel, FirstProduct, Kernel, Known, Operand, Weights
from tatami.gpu.pairs.parts import Parts, in_parts
from tatami.gpu.pairs.sm80 import lower_sm80_pair
from tatami.gpu.pairs.sm90 import lower_sm90_pair
from tatami.gpu.products.frame import refuse
from tatami.gpu.products.plan_words import role_of, tail_roles
from tatami.gpu.products.problem import Problem, Words
from tatami.gpu.products.sm80 import LAST
from tatami.gpu.statement_ir import StRows, Token
from tatami.gpu.stream_ir import Param
from tatami.gpu.streaming.lower import lower_stream
from tatami.plan.ir import GpuStream, Guarded, Pass, Sm80Pair, Sm90Pair
from tatami.plan.views.pair_limits import PairPlan, pair_limits, pair_rules
from tatami.region.ir import Binary, Cast, Iter, Let, Read, Reduce, Ref, Region, RegionExpr, Yield
from tatami.region.ir import Target as Output
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.region.walk import all_axes

NONFINITE = "nonfinite'"
"""Name of the scratch buffer that tells which batches of the values have an element that is not finite."""
THREADS = 256
"""Threads per block of the kernel that checks the values."""


def lower_pair(region: Region, choice: Guarded, target: Target) -> list[tuple[AnyKernel, Binding]]:
    """The kernel of the pair; before it, the kernel that checks the values for elements that are not finite, if blocks may be
    skipped; after it, the join of the parts, if the keys are split."""
    plan = choice.plan
    assert isinstance(plan, Sm80Pair | Sm90Pair)
    view = pair_view(region)
    if isinstance(view, str):
        raise fail("InvalidPlan", region.name, f"no pair of products to stream: {view}", "use a plan of kind gpu_stream")
    refuse(region.name, "InvalidPlan", pair_rules(plan, view))
    refuse(region.name, "ResourceExceeded", pair_limits(plan, view, target))
    p, w, row_values = pair_problem(region, view, choice.conditions)
    parts = _parts(region, view, p, plan.split) if plan.split > 1 else None
    rows = row_values if parts is None else parts.rows
    if parts is not None:
        p = parts.problem
    at = _values_of_a_batch(region, view) if view.low or view.high else None
    if at is None:
        return _joined(_lower(view, p, msgspec.structs.replace(w, low=(), high=()), plan, rows, target), parts, choice)
    before, index, size = at
    looking = lower_stream(before, _two_sums(before), choice.conditions)
    kernel, binding = looking[0]
    looking[0] = kernel, msgspec.structs.replace(binding, scratch=((NONFINITE, size), *binding.scratch))
    name = f"p{len(p.params) + (len(region.outputs) if parts is not None else 0)}"
    p = msgspec.structs.replace(p, params=(*p.params, Param(name, DType.fp32)), buffers=(*p.buffers, NONFINITE))
    w = msgspec.structs.replace(w, nonfinite=name, nonfinite_at=substitute(index, _places(region, view, p)))
    return [*looking, *_joined(_lower(view, p, w, plan, rows, target), parts, choice)]


def _parts(region: Region, v: PairView, p: Problem, split: int) -> Parts:
    if v.nan_weight is not None or not v.divided:
        why = f"split {split}: rows that see nothing, or weights that are not divided by their sum, are not joined from parts"
        raise fail("InvalidPlan", region.name, why, "use split 1")
    places = _places(region, v, p) | {v.rows: var("m"), v.columns: var("n")}
    return in_parts(region, v, p, places, split)


def _joined(made: tuple[Kernel, Binding], parts: Parts | None, choice: Guarded) -> list[tuple[AnyKernel, Binding]]:
    kernel, binding = made
    if parts is None:
        return [(kernel, binding)]
    first = kernel, msgspec.structs.replace(binding, scratch=(*parts.scratch, *binding.scratch))
    return [first, *lower_stream(parts.after, parts.plan, choice.conditions)]


# -- the Region in kernel words --------------------------------------------------------------------


def pair_problem(region: Region, v: PairView, conditions: tuple[Condition, ...]) -> tuple[Problem, Weights, tuple[StRows, ...]]:
    """The second product as a Problem whose operand A is the Weights, and the values stored per row. Axes become m, key, d, n
    and b0, …"""
    sizes = all_axes(region)
    words = Words(region, {*v.batch, v.rows, v.keys, *(f.depth for f in v.firsts), v.columns}, list(sizes.values()))
    words.place |= {a: var(f"b{i}") for i, a in enumerate(v.batch)}
    words.place |= {f.depth: var("d") for f in v.firsts} | {v.rows: var("m"), v.keys: var("key"), v.columns: var("n")}

    def operand(ring: str, read: Read, mn: str, k: str) -> Operand:
        at = words.at(read)
        along_mn, along_k = step_of(at, mn), step_of(at, k)
        if along_mn is None or along_k is None or ONE not in (along_mn, along_k):
            why = f"{read.tensor} is not a matrix in memory, contiguous along one of its axes"
            raise fail("InvalidPlan", region.name, why, "use a plan of kind gpu_stream")
        major: Literal["k", "mn"] = "k" if along_k == ONE else "mn"
        start = substitute(at, {mn: ZERO, k: ZERO})
        param = words.param_of[read.tensor]
        return Operand(ring, v.dtype, param, major, words.index(along_mn), words.index(along_k), words.index(start))

    firsts = []
    for i, f in enumerate(v.firsts):
        left, right = operand(f"smQ{i or ''}", f.left, v.rows, f.depth), operand(f"smK{i or ''}", f.right, v.keys, f.depth)
        firsts.append(FirstProduct(left, right))
    values = operand("smB", v.values, v.columns, v.keys)
    words.place |= {name: var(name.removesuffix("'")) for name in v.known}
    known = tuple(Known(n.removesuffix("'"), words.param_of[r.tensor], words.index(words.at(r))) for n, r in v.known.items())
    between = {f.acc: f"acc{i or ''}" for i, f in enumerate(v.firsts)} | {x.name: f"w{i}" for i, x in enumerate(v.lets)}
    after = {v.second: "acc"} | {x.name: f"v{i}" for i, x in enumerate(v.epilogue)}
    lets = words.lets(v.lets, between, ("m", "key"))
    score, excluded = (
        words.lets([Let(v.first, (), DType.fp32, e)], between, ())[0].expr if e is not None else None
        for e in (v.score, v.excluded)
    )
    assert score is not None
    of_rows = {x.name: f"r{i}" for i, x in enumerate(v.row_values)} | v.of_rows
    ops = words.lets(v.row_values, of_rows, ("m",))
    written = [y for y in region.yields if y.source in of_rows]
    rows = tuple(
        StRows(s.param, s.index, ops, s.value, Token("tE", LAST)) for s in words.stores({*v.batch, v.rows}, of_rows, written)
    )
    depth = words.index(sizes[v.depth])
    low, high = (tuple(words.index(e) for e in ends) for ends in (v.low, v.high))
    w = Weights(tuple(firsts), depth, 0, lets, score, v.direct, excluded, low, high, divided=v.divided, nan_weight=v.nan_weight)
    w = msgspec.structs.replace(w, by_rows=bool(rows), known=known)
    roles = {v.depth: "d", v.columns: "n", v.rows: "m", v.keys: "k"} | dict.fromkeys(v.batch, "b")
    p = Problem(
        region=region.name,
        roles=roles,
        m=words.index(sizes[v.rows]),
        n=words.index(sizes[v.columns]),
        k=words.index(sizes[v.keys]),
        batch=tuple(words.index(sizes[a]) for a in v.batch),
        a=firsts[0].left,
        b=values,
        a_value=v.score,
        b_value=v.score,
        a_dtype=v.dtype,
        b_dtype=v.dtype,
        why_not_mma="",
        why_not_wgmma="",
        acc=v.second,
        acc_dtype=DType.fp32,
        params=words.params,
        buffers=tuple(words.param_of),
        symbols=words.symbols,
        lets=words.lets(v.epilogue, after, ("m", "n")),
        stores=words.stores({*v.batch, v.rows, v.columns}, after, [y for y in region.yields if y not in written]),
        conditions=words.conditions(conditions),
        tf32=v.tf32,
    )
    return p, w, rows


def _places(region: Region, v: PairView, p: Problem) -> dict[str, Expr]:
    return {a: var(f"b{i}") for i, a in enumerate(v.batch)} | {s: var(f"s{i}") for i, s in enumerate(p.symbols)}


def _values_of_a_batch(region: Region, v: PairView) -> tuple[Region, Expr, Expr] | None:
    """The Region that adds v - v over all keys and columns of every batch of the values (NaN if one is not finite); the index
    of a batch in its result, over the Region's axes; the result's bytes. None if the values are not plain slices of a
    tensor."""
    memref = next(p.memref for p in region.inputs if p.name == v.values.tensor)
    inner = {v.keys: "key", v.columns: "column"}
    names, index, size = [], ZERO, ONE
    for d, (at, extent) in enumerate(zip(v.values.map, memref.shape, strict=True)):
        axis = next((a for a in inner if at == var(a)), "")
        if not axis and any(step_of(at, a) != ZERO for a in inner):
            return None
        names.append(inner[axis] if axis else f"d{d}")
        if not axis:
            index, size = index * extent + at, size * extent
    if not set(inner.values()) <= set(names):
        return None
    outer = tuple(n for n in names if n not in inner.values())
    extents = dict(zip(names, memref.shape, strict=True))
    value: RegionExpr = Cast(Read(v.values.tensor, tuple(var(n) for n in names)), DType.fp32)
    row = Let("row", (*outer, "key"), DType.fp32, Reduce("sum", ("column",), 0, DType.fp32, Binary("sub", value, value)))
    whole = Let("whole", outer, DType.fp32, Reduce("sum", ("key",), 0, DType.fp32, Ref("row")))
    return (
        Region(
            region.name,
            tuple(Iter(n, extents[n]) for n in (*outer, "key")),
            (Iter("column", extents["column"]),),
            tuple(p for p in region.inputs if p.name == v.values.tensor),
            (Output(NONFINITE, MemRef(DType.fp32, tuple(extents[n] for n in outer))),),
            (row, whole),
            (Yield("whole", NONFINITE),),
        ),
        index,
        size * DType.fp32.itemsize,
    )


def _two_sums(region: Region) -> GpuStream:
    """A schedule with a kernel per let: a few threads per row of columns, then a block per batch of rows."""
    row, whole = region.lets
    passes = (Pass((*row.axes, "column"), ("row",)), Pass((*whole.axes, "key"), ("whole",)))
    return GpuStream((), passes, {"row": "row", "whole": "register"}, THREADS, ACCESS_BYTES, (8, THREADS))


# -- the kernel ------------------------------------------------------------------------------------


def _lower(
    v: PairView, p: Problem, w: Weights, plan: PairPlan, rows: tuple[StRows, ...], target: Target
) -> tuple[Kernel, Binding]:
    bm, bn, bk = plan.tile
    if w.depth.as_int() is None or not 0 < (w.depth.as_int() or 0) <= plan.depth or (p.n.as_int() or bn + 1) > bn:
        why = f"depth {w.depth} and {p.n} columns; the plan has room for {plan.depth} and {bn}"
        raise fail("InvalidPlan", p.region, why, "use a plan of kind gpu_stream")
    if wrong := [a for a in plan.predicate_tail if role_of(a, p.roles) not in ("m", "n", "k", "d")]:
        why = f"predicate_tail names {wrong[0]!r}, along which no tile is partial"
        raise fail("InvalidPlan", p.region, why, "name axes of tiles: m, n, k or d")
    tail = tail_roles(plan.predicate_tail, p.roles)
    if v.depth == v.columns and "n" in tail:  # an operand read once for both products may have one axis for both
        tail = (*tail, "d")
    for role, size, tile in (("m", p.m, bm), ("k", p.k, bk), ("n", p.n, bn), ("d", w.depth, plan.depth)):
        if role not in tail and not is_divisible(size, tile, p.conditions):
            why = f"axis {role} of size {size} is not known to be a multiple of its tile {tile} and is not in predicate_tail"
            raise fail("InvalidPlan", p.region, why, f'add "{role}" to predicate_tail')
    w = msgspec.structs.replace(w, steps=plan.depth // 16, shape=plan.inst_shape if isinstance(plan, Sm80Pair) else w.shape)
    match plan:
        case Sm80Pair():
            return lower_sm80_pair(p, w, plan, tail, rows)
        case Sm90Pair():
            return lower_sm90_pair(p, w, plan, tail, rows, target)
