"""Code shared by the contraction templates: a kernel's frame, its binding, the stores of a tile."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, minimum, product, step_of, substitute, var
from tatami.core.kernel import Binding, Condition, TensorMapSpec, is_divisible
from tatami.gpu.ir import NO_FACE, Arch, Barrier, GridDependency, Kernel, Operand, Ring, StGlobalVec, Stmt, Token, TokenKind
from tatami.gpu.products.problem import Problem
from tatami.plan.ir import SchedulePlan, Sm90Mma, TileOrder

TOKENS: dict[str, TokenKind] = {"tA": "TokLoad", "tB": "TokLoad", "tMMA": "TokCompute", "tE": "TokEpilogue", "tFree": "TokFree"}
"""Kinds of the tokens of one product: copies of A and B, the MMA, the epilogue, free slots."""
PAIR_TOKENS: dict[str, TokenKind] = {
    **TOKENS,
    **dict.fromkeys(("tQ", "tK"), "TokLoad"),
    **dict.fromkeys(("tS", "tW", "tP"), "TokCompute"),
}
"""Kinds of the tokens of two products in one kernel: also rows and keys in shared memory, scores, weights, weights as
fragments."""


def pair_tokens(firsts: int) -> dict[str, TokenKind]:
    """`PAIR_TOKENS` and the tokens of the rows, keys and scores of further first products; `firsts` is their number."""
    more: dict[str, TokenKind] = {}
    for i in range(1, firsts):
        more |= {f"tQ{i}": "TokLoad", f"tK{i}": "TokLoad", f"tS{i}": "TokCompute"}
    return PAIR_TOKENS | more


def refuse(at: str, kind: str, why: list[str]) -> None:
    """Raise one diagnostic `kind` per reason in `why`; no reason, no error."""
    if why:
        raise TatamiError(*(fail(kind, at, w, "change that field of the plan").diagnostics[0] for w in why))


def need_mma(p: Problem, plan: SchedulePlan) -> tuple[Operand, Operand]:
    """Operands A and B as the plan's MMA template needs them. Raises InvalidPlan, with the reason, if it does not fit."""
    why = p.why_not_wgmma if isinstance(plan, Sm90Mma) else p.why_not_mma
    if why or p.a is None or p.b is None:
        raise fail("InvalidPlan", p.region, f"the MMA template does not fit: {why}", "use a plan of kind gpu_sync")
    if isinstance(plan, Sm90Mma) and not (p.a_dtype.is_narrow_float or p.tf32):
        why = f"wgmma multiplies fp16, bf16 and fp32 rounded to tf32, not {p.a_dtype}"
        raise fail("InvalidPlan", p.region, why, "use a plan of kind sm80_mma")
    for o, walk, loader in zip((p.a, p.b), (p.a_walk, p.b_walk), plan.loads if isinstance(plan, Sm90Mma) else ()):
        if loader == "tma" and o.stride_k is None and isinstance(walk, str):
            why = f"no tensor map covers an operand: {walk}"
            raise fail("InvalidPlan", p.region, why, "load it by cp_async, or use a plan of kind sm80_mma")
    return p.a, p.b


def tile_stores(p: Problem, tail: tuple[str, ...], wanted: int, own: int, quad: bool = False) -> tuple[StGlobalVec, ...]:
    """Stores of a tile. `wanted`: widest vector, in elements. `own`: neighbouring columns of one thread; `quad`: four lanes
    can gather eight elements of 16 bits by an exchange. A store has one of those widths, or one element."""
    out = []
    for s in p.stores:
        rest = substitute(s.index, {"n": expr(0)})
        width = 1
        for w in (8 if quad and s.dtype.itemsize == 2 else 1, own):
            legal = w <= wanted and is_divisible(p.n, w, p.conditions) and is_divisible(rest, w, p.conditions)
            if width == 1 and legal and step_of(s.index, "n") == ONE and (s.dtype == DType.fp32 or s.dtype.is_narrow_float):
                width = w
        pred = tuple(r for r in ("m", "n") if r in tail)
        out.append(StGlobalVec(s.param, s.index, s.value, width, pred, Token("tE", var("KB") - 1)))
    return tuple(out)


def split_stores(p: Problem, rows: Expr) -> Problem:
    """The problem with part `split` of k stored behind the parts before it; every part has `rows` rows of all batches."""
    moved = var("split") * product((*p.batch, rows, p.n))
    return msgspec.structs.replace(p, stores=tuple(msgspec.structs.replace(s, index=s.index + moved) for s in p.stores))


def contraction_kernel(
    p: Problem,
    arch: Arch,
    tile: tuple[int, int, int],
    stages: int,
    *,
    threads: int,
    rows: int,
    cols: int,
    a: Operand,
    b: Operand,
    smem: tuple[Ring, ...],
    barriers: tuple[Barrier, ...],
    model: Literal["cp_async_group", "mbarrier", "none"],
    shared: int,
    origin: Literal["kernel", "tile"],
    body: tuple[Stmt, ...],
    bind: dict[str, str],
    tail: tuple[str, ...],
    maps: tuple[str, ...],
    order: TileOrder = "row",
    split: int = 1,
    tile_rows: tuple[int, int] | None = None,
    units: int = 0,
    cluster: tuple[int, int] = (1, 1),
    tokens: dict[str, TokenKind] = TOKENS,
    template: Literal["mma", "fma", "sync", "pair"] = "mma",
) -> Kernel:
    """The kernel of problem `p`, without a name. Fields that the problem decides come from it, the others from the template."""
    return Kernel(
        face=NO_FACE,
        arch=arch,
        template=template,
        params=p.params,
        tile=tile,
        stages=stages,
        threads=threads,
        rows=rows,
        cols=cols,
        m=p.m,
        n=p.n,
        k=p.k,
        batch=p.batch,
        grid=block_axes(bind),
        a=a,
        b=b,
        acc_dtype=p.acc_dtype,
        smem=smem,
        barriers=barriers,
        maps=maps,
        tokens=tokens,
        barrier_model=model,
        shared_bytes=shared,
        ring_origin=origin,
        body=body,
        tail=tail,
        tile_order=order,
        split=split,
        tile_rows=tile_rows,
        units=units,
        uneven=units > 0,
        cluster=cluster,
        groups=p.groups,
    )


def block_axes(bind: dict[str, str]) -> dict[str, str]:
    """Block coordinate -> role: n on x and m on y unless `bind` swaps them; batch on z."""
    out = {place.removeprefix("block."): axis.split(".")[0] for axis, place in bind.items() if place.startswith("block.")}
    roles = {place: role for place, role in out.items() if role in ("m", "n")}
    if sorted(roles.values()) != ["m", "n"]:
        roles = {"x": "n", "y": "m"}
    free = next(c for c in "zyx" if c not in roles)
    return {**roles, free: "b"}


def bind_kernel(
    p: Problem, kernel: Kernel, bind: dict[str, str], persistent: int, maps: tuple[TensorMapSpec, ...] = ()
) -> tuple[Kernel, Binding]:
    """The kernel and its launch. `persistent`: largest number of CTAs of a persistent kernel; 0: a CTA per tile."""
    bm, bn, _ = kernel.tile
    cm, cn = kernel.cluster
    rows = ceildiv(p.m, cm * bm) if kernel.tile_rows is None else expr(kernel.tile_rows[1])
    counts = {"m": rows, "n": ceildiv(p.n, cn * bn), "b": product(p.batch) * kernel.split}
    if kernel.units:
        grid: tuple[Expr, ...] = (expr(kernel.units * kernel.ctas), ONE, ONE)
    elif persistent:
        clusters = minimum(product(counts.values()), persistent // kernel.ctas)
        grid = (clusters * kernel.ctas, ONE, ONE)
    else:
        grid = tuple(counts[kernel.grid[c]] for c in "xyz")
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    conditions = tuple(Condition(substitute(c.size, names), c.divisor, c.low, c.high) for c in p.conditions)
    block = (kernel.cols, kernel.rows) if kernel.template == "sync" else (kernel.threads,)
    return kernel, Binding(
        p.region,
        "",
        p.buffers,
        tuple(var(s) for s in p.symbols),
        conditions=conditions,
        grid=tuple(substitute(g, names) for g in grid),
        block=block,
        cluster=(kernel.ctas, 1, 1) if kernel.ctas > 1 else (),
        shared_bytes=kernel.shared_bytes,
        dependent=GridDependency() in kernel.body,
        tensor_maps=maps,
    )
