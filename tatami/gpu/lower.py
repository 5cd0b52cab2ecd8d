"""Region + plan -> kernels: one template per architecture with the plan put in (spec 3 §10(7), spec 5 §6).

Kernels that mean the same are one kernel, whatever Regions use them; the bindings say who does.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

import tatami.region.ir as region_ir
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, minimum, product, substitute, var
from tatami.core.kernel import Binding, Condition, KernelFace, KernelParam, TensorMapSpec
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.gpu.body import lower_body
from tatami.gpu.ir import NO_FACE, AnyKernel, Arch, Barrier, Kernel, Operand, Program, Ring, StGlobalVec, Stmt, Token, TokenKind
from tatami.gpu.plan_words import check_words, tail_roles
from tatami.gpu.problem import Problem, is_divisible, problem, step_along
from tatami.gpu.sm80 import sm80_body
from tatami.gpu.sm90 import sm90_body
from tatami.gpu.sort import DOWN, lower_sort
from tatami.gpu.split_k import split_region
from tatami.gpu.stream import lower_stream
from tatami.gpu.sync import sync_body
from tatami.plan.gpu_limits import BARRIER_BYTES, hard_limits, needs, pair, shape_rules
from tatami.plan.ir import GpuStream, GpuSync, Guarded, ProgramPlan, RegionPlan, SchedulePlan, Sm80Mma, Sm90Mma

TOKENS: dict[str, TokenKind] = {"tA": "TokLoad", "tB": "TokLoad", "tMMA": "TokCompute", "tE": "TokEpilogue", "tFree": "TokFree"}


def lower(region: Module[region_ir.Program], plan: Module[ProgramPlan], target: Target) -> Module[Program]:
    """Kernels of every program. Raises InvalidPlan or ResourceExceeded, with numbers, for a plan that cannot be."""
    kernels: dict[str, AnyKernel] = {}
    programs: dict[str, Program] = {}
    for name, body in region.programs.items():
        plans = {p.region: p for p in plan.programs[name].regions}
        own: dict[str, AnyKernel] = {}
        bindings: list[Binding] = []
        for item in body.body:
            if not isinstance(item, region_ir.Region):
                continue
            if item.name not in plans:
                raise fail("InvalidPlan", item.name, "the plan has no entry for this Region", "run `choose` again")
            for position, kernel, binding in _kernels_of(item, plans[item.name], target):
                key = _key(kernel)
                if key not in kernels:
                    face = KernelFace(
                        f"k{len(kernels)}",
                        tuple(KernelParam(p.dtype, p.written) for p in kernel.params),
                        len(binding.sizes),
                        key,
                    )
                    kernels[key] = msgspec.structs.replace(kernel, face=face)
                own[key] = kernels[key]
                bindings.append(msgspec.structs.replace(binding, kernel=kernels[key].face.symbol, choice=position))
        programs[name] = Program(tuple(own.values()), tuple(bindings))
    return Module(programs, region.constants, region.origins)


def _key(kernel: AnyKernel) -> str:
    return hashlib.sha256(dump_text(to_builtins(kernel)).encode()).hexdigest()


def _kernels_of(region: region_ir.Region, plan: RegionPlan, target: Target) -> list[tuple[int, AnyKernel, Binding]]:
    """(choice, kernel, binding) of every kernel of a Region, in order."""
    out: list[tuple[int, AnyKernel, Binding]] = []
    if region.opaque is not None:
        return [(0, *(lower_sort(region) if region.opaque.routine in DOWN else lower_body(region)))]
    for position, choice in enumerate(plan.choices):
        if isinstance(choice.plan, GpuStream):
            out += [(position, k, b) for k, b in lower_stream(region, choice.plan, choice.conditions)]
        elif isinstance(choice.plan, Sm80Mma) and choice.plan.split_k > 1:
            out += [(position, k, b) for k, b in lower_split(region, choice, target)]
        else:
            out.append((position, *lower_region(region, choice, target)))
    return out


def lower_region(region: region_ir.Region, choice: Guarded, target: Target) -> tuple[Kernel, Binding]:
    """The kernel of one guarded plan, its face still empty, and the binding without its kernel's name."""
    plan = choice.plan
    if not isinstance(plan, Sm80Mma | Sm90Mma | GpuSync):
        raise fail(
            "InvalidPlan",
            region.name,
            f"no GPU template for plans of kind {type(plan).__name__}",
            "use sm80_mma, sm90_mma or gpu_sync",
        )
    if isinstance(plan, Sm80Mma) and plan.split_k > 1 and len(region.lets) > 1:
        raise fail("InvalidPlan", region.name, "split_k makes two kernels of this Region", "lower it by lower_split")
    p = problem(region, plan.acc, choice.conditions)
    _refuse(region.name, "InvalidPlan", shape_rules(plan))
    _refuse(region.name, "InvalidPlan", check_words(plan, region, p))
    _refuse(region.name, "ResourceExceeded", hard_limits(plan, p.a_dtype, target))
    if plan.arch != target.isa and not (plan.arch == "sm80" and target.isa == "sm90"):
        raise fail(
            "InvalidPlan", region.name, f"the plan is for {plan.arch}, the target is {target.isa}", f"set arch to {target.isa}"
        )
    tail = tail_roles(plan.predicate_tail, p.roles)
    for role, size, tile in zip("mnk", (p.m, p.n, p.k), plan.tile):
        if role not in tail and not is_divisible(size, tile, p.conditions) and not (isinstance(plan, Sm90Mma) and role == "k"):
            raise fail(
                "InvalidPlan",
                region.name,
                f"axis {role} of size {size} may be no multiple of its tile {tile} and is not in predicate_tail",
                f'add "{role}" to predicate_tail, or guard the plan by {size} % {tile} == 0',
            )
    match plan:
        case Sm80Mma() if plan.async_.enable:
            return _sm80(p, plan, tail, target)
        case Sm80Mma():
            bm, bn, bk = plan.tile
            block = (min(16, bm), min(16, bn))
            sync = GpuSync((bm, bn, min(bk, 32)), block, plan.bind, plan.predicate_tail, plan.epilogue, "sm80", plan.acc)
            return _sync(p, sync, tail)
        case Sm90Mma():
            return _sm90(p, plan, tail, target)
        case GpuSync():
            return _sync(p, plan, tail)


def lower_split(region: region_ir.Region, choice: Guarded, target: Target) -> list[tuple[AnyKernel, Binding]]:
    """The kernels of split-K: the parts of the product, then their sum and the epilogue."""
    plan = choice.plan
    assert isinstance(plan, Sm80Mma)
    acc = problem(region, plan.acc, choice.conditions).acc
    split = split_region(region, plan, acc)
    first = msgspec.structs.replace(choice, plan=msgspec.structs.replace(plan, epilogue=(), acc=acc))
    kernel, binding = lower_region(split.product, first, target)
    parts = msgspec.structs.replace(binding, scratch=(split.scratch,))
    return [(kernel, parts), *lower_stream(split.after, split.plan, choice.conditions)]


def _refuse(at: str, kind: str, why: list[str]) -> None:
    if why:
        raise TatamiError(*(fail(kind, at, w, "change that field of the plan").diagnostics[0] for w in why))


def _need_mma(p: Problem, plan: SchedulePlan) -> tuple[Operand, Operand]:
    if p.why_not_mma or p.a is None or p.b is None:
        raise fail("InvalidPlan", p.region, f"the MMA template does not fit: {p.why_not_mma}", "use a plan of kind gpu_sync")
    if isinstance(plan, Sm90Mma) and not p.a_dtype.is_narrow_float:
        raise fail("InvalidPlan", p.region, f"wgmma multiplies fp16 and bf16, not {p.a_dtype}", "use a plan of kind sm80_mma")
    if isinstance(plan, Sm90Mma) and (p.a.gather is not None or p.b.gather is not None):
        why = "a tensor map of this template covers a matrix; an operand is a window or another view"
        raise fail("InvalidPlan", p.region, why, "use a plan of kind sm80_mma")
    return p.a, p.b


# -- SM80 ------------------------------------------------------------------------------------------


def _sm80(p: Problem, plan: Sm80Mma, tail: tuple[str, ...], target: Target) -> tuple[Kernel, Binding]:
    a, b = _need_mma(p, plan)
    if a.dtype.is_narrow_float != (plan.inst_shape != "fma"):
        raise fail(
            "InvalidPlan",
            p.region,
            f"inst_shape {plan.inst_shape} does not multiply {a.dtype}",
            f"use {'fma' if a.dtype == DType.fp32 else 'm16n8k16'}",
        )
    bm, bn, bk = plan.tile
    warp = pair(plan.warp_tile) or (64, 64)
    rings, base = [], 0
    for o, extent, hint in ((a, bm, "A_swizzle"), (b, bn, "B_swizzle")):
        rows, columns = (extent, bk) if o.major == "k" else (bk, extent)
        row_bytes = columns * o.dtype.itemsize
        swizzle = min(128, row_bytes) if plan.layout_hints.get(hint, True) else 0
        shared = 4 if plan.inst_shape == "fma" and swizzle and o.major == "k" else 0  # a lane reads four rows in turn
        ring = Ring(o.ring, base, rows, row_bytes, plan.stages, swizzle, shared)
        rings.append(ring)
        base += ring.slot_bytes * ring.slots
    copies = tuple(
        (o.ring, t, tuple(r for r in (role, "k") if r in tail), _copy_width(o, size, p, plan.vectorize.width))
        for o, t, role, size in ((a, "tA", "m", p.m), (b, "tB", "n", p.n))
    )
    if plan.split_k > 1:
        moved = var("split") * product((*p.batch, p.m, p.n))
        p = msgspec.structs.replace(p, stores=tuple(msgspec.structs.replace(s, index=s.index + moved) for s in p.stores))
    overlap = plan.async_.epilogue_overlap
    depth = min(plan.async_.prefetch_depth, plan.stages) - 1
    body = sm80_body(
        depth=depth,
        copies=copies,
        trans={"smA": a.major == "mn", "smB": b.major == "mn"},
        shape=plan.inst_shape,
        k_steps=bk // 16,
        dtype=f"{a.dtype}_fp32acc",
        lets=p.lets,
        stores=_stores(p, tail, plan.vectorize.width, own=4)
        if plan.inst_shape == "fma"
        else _stores(p, tail, plan.vectorize.width, own=2, quad=warp[1] % 32 == 0),
        overlap=overlap,
    )
    kernel = _kernel(
        p,
        "sm80",
        plan.tile,
        plan.stages,
        threads=32 * (bm // warp[0]) * (bn // warp[1]),
        rows=bm // warp[0],
        cols=bn // warp[1],
        a=a,
        b=b,
        smem=tuple(rings),
        barriers=(),
        model="cp_async_group",
        template="fma" if plan.inst_shape == "fma" else "mma",
        order=plan.tile_order,
        split=plan.split_k,
        shared=base,
        origin="tile",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=(),
    )
    return _bind(p, kernel, plan.bind, persistent=_ctas(overlap, plan, p, target))


def _ctas(persistent: bool, plan: Sm80Mma | Sm90Mma, p: Problem, target: Target) -> int:
    return target.sms * max(1, needs(plan, p.a_dtype, target).ctas_per_sm) if persistent else 0


def _copy_width(o: Operand, size_mn: Expr, p: Problem, wanted: int) -> int:
    """Elements of one copy: the widest legal one (16, 8, 4 bytes), or 1, which for 2 bytes is a plain load and store."""
    if o.gather is not None:
        return 1
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    along, other = (p.k, o.stride_mn) if o.major == "k" else (size_mn, o.stride_k)
    for width in (8, 4, 2):
        if (
            width * o.dtype.itemsize <= 16
            and width <= wanted
            and all(is_divisible(e, width, p.conditions) for e in (along, other, o.offset))
        ):
            return width
    return 1


def _stores(p: Problem, tail: tuple[str, ...], wanted: int, own: int, quad: bool = False) -> tuple[StGlobalVec, ...]:
    """`own`: neighbouring columns of one thread; `quad`: four lanes can gather eight of 16 bits by exchange. A store is
    as wide as those, or one element."""
    out = []
    for s in p.stores:
        rest = substitute(s.index, {"n": expr(0)})
        width = 1
        for w in (8 if quad and s.dtype.itemsize == 2 else 1, own):
            legal = w <= wanted and is_divisible(p.n, w, p.conditions) and is_divisible(rest, w, p.conditions)
            if width == 1 and legal and step_along(s.index, "n") == ONE and (s.dtype == DType.fp32 or s.dtype.is_narrow_float):
                width = w
        pred = tuple(r for r in ("m", "n") if r in tail)
        out.append(StGlobalVec(s.param, s.index, s.value, width, pred, Token("tE", var("KB") - 1)))
    return tuple(out)


# -- SM90 ------------------------------------------------------------------------------------------


def _sm90(p: Problem, plan: Sm90Mma, tail: tuple[str, ...], target: Target) -> tuple[Kernel, Binding]:
    a, b = _need_mma(p, plan)
    bm, bn, bk = plan.tile
    rings: list[Ring] = []
    base = BARRIER_BYTES
    loads: list[tuple[str, str, str, tuple[Expr, ...], int, int]] = []
    maps: list[TensorMapSpec] = []
    for o, extent, size, role, token, desc in ((a, bm, p.m, "m", "tA", "A_desc"), (b, bn, p.n, "n", "tB", "B_desc")):
        if o.major == "mn" and extent % 64:
            raise fail(
                "InvalidPlan",
                p.region,
                f"the {role}-major operand needs a tile of whole 64-element boxes, not {extent}",
                "use a multiple of 64",
            )
        if o.major == "mn" and bk != 64:
            raise fail("InvalidPlan", p.region, f"BK = {bk} with a {role}-major operand", "use BK = 64")
        boxes = 1 if o.major == "k" else extent // 64
        rows, columns = (extent, bk) if o.major == "k" else (bk * boxes, 64)
        ring = Ring(o.ring, base, rows, columns * 2, plan.stages, columns * 2)
        rings.append(ring)
        base += -(-ring.slot_bytes // 1024) * 1024 * ring.slots
        spec, coords = _tensor_map(p, o, size, role, extent, bk, len(maps))
        maps.append(spec)
        loads.append((o.ring, desc, token, coords, ring.slot_bytes, boxes))
    persistent = plan.persistent
    overlap = persistent and plan.async_.epilogue_overlap
    body = sm90_body(
        stages=plan.stages,
        consumers=plan.consumers,
        registers=plan.registers,
        wait_depth=plan.wait_depth,
        loads=tuple(loads),
        trans=(a.major == "mn", b.major == "mn"),
        shape=plan.inst_shape,
        k_steps=plan.k_steps,
        dtype=f"{a.dtype}_fp32acc",
        lets=p.lets,
        stores=_stores(p, tail, plan.vectorize.width, own=2, quad=bn % 32 == 0),
        persistent=persistent,
        overlap=overlap,
    )
    barriers = [Barrier("full", 0, plan.stages), Barrier("empty", 8 * plan.stages, plan.stages)]
    if persistent and not overlap:
        barriers.append(Barrier("idle", 16 * plan.stages, 1, "tiles"))
    kernel = _kernel(
        p,
        "sm90",
        plan.tile,
        plan.stages,
        threads=128 * (plan.consumers + 1),
        rows=plan.consumers,
        cols=1,
        a=a,
        b=b,
        smem=tuple(rings),
        barriers=tuple(barriers),
        model="mbarrier",
        shared=base,
        origin="kernel",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=("A_desc", "B_desc"),
        order="grouped" if plan.tile_order == "grouped" else "row",
    )
    position = len(kernel.params) + len(p.symbols)
    specs = tuple(msgspec.structs.replace(s, position=position + i) for i, s in enumerate(maps))
    return _bind(p, kernel, plan.bind, persistent=target.sms if persistent else 0, maps=specs)


def _tensor_map(
    p: Problem, o: Operand, size_mn: Expr, role: str, extent: int, bk: int, number: int
) -> tuple[TensorMapSpec, tuple[Expr, ...]]:
    """The TMA descriptor of an operand and the coordinates of a block: innermost first, batch axes that move last."""
    assert o.stride_k is not None and o.stride_mn is not None and o.offset is not None
    inner, outer = ((p.k, "k"), (size_mn, role)) if o.major == "k" else ((size_mn, role), (p.k, "k"))
    pitch = o.stride_mn if o.major == "k" else o.stride_k
    dims, strides, coords = [inner[0], outer[0]], [pitch * 2], [var(inner[1]), var(outer[1])]
    box = [bk, extent] if o.major == "k" else [64, bk]
    rest = o.offset
    for i, size in enumerate(p.batch):
        step = step_along(o.offset, f"b{i}")
        if step is None or step == 0:
            continue
        dims.append(size)
        strides.append(step * 2)
        coords.append(var(f"b{i}"))
        box.append(1)
        rest = substitute(rest, {f"b{i}": expr(0)})
    if rest != 0:
        raise fail(
            "InvalidPlan", p.region, f"operand {o.ring} starts at element {rest} of its buffer", "use a plan of kind sm80_mma"
        )
    if len(dims) > 5:
        raise fail("InvalidPlan", p.region, f"a tensor map of rank {len(dims)}; the limit is 5", "use a plan of kind sm80_mma")
    for s in strides:
        if not is_divisible(s, 16, tuple(p.conditions)):
            raise fail(
                "InvalidPlan",
                p.region,
                f"stride {s} bytes of operand {o.ring} may be no multiple of 16, which TMA needs",
                "guard the plan by the size, or use a plan of kind sm80_mma",
            )
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    buffer = p.buffers[[q.name for q in p.params].index(o.param)]
    spec = TensorMapSpec(
        buffer,
        tuple(substitute(d, names) for d in dims),
        tuple(substitute(s, names) for s in strides),
        tuple(box),
        box[0] * 2,
        number,
    )
    return spec, tuple(coords)


# -- synchronous -----------------------------------------------------------------------------------


def _sync(p: Problem, plan: GpuSync, tail: tuple[str, ...]) -> tuple[Kernel, Binding]:
    bm, bn, bk = plan.tile
    a = p.a or Operand("smA", p.a_dtype)
    b = p.b or Operand("smB", p.b_dtype)
    a = msgspec.structs.replace(a, dtype=p.a_dtype, value=p.a_value)
    b = msgspec.structs.replace(b, dtype=p.b_dtype, value=p.b_value)
    ring_a = Ring("smA", 0, bm, (bk + 1) * _stored(p.a_dtype), 1, 0)
    base = -(-ring_a.slot_bytes // 16) * 16
    ring_b = Ring("smB", base, bk, bn * _stored(p.b_dtype), 1, 0)
    predicates = tuple(tuple(r for r in (role, "k") if r in tail) for role in "mn")
    body = sync_body((predicates[0], predicates[1]), p.lets, _stores(p, tail, 1, own=1))
    kernel = _kernel(
        p,
        "sm90" if plan.arch == "sm90" else "sm80",
        plan.tile,
        1,
        threads=plan.block[0] * plan.block[1],
        rows=plan.block[0],
        cols=plan.block[1],
        a=a,
        b=b,
        smem=(ring_a, ring_b),
        barriers=(),
        model="none",
        template="sync",
        shared=base + ring_b.slot_bytes,
        origin="tile",
        body=body,
        bind=plan.bind,
        tail=tail,
        maps=(),
    )
    return _bind(p, kernel, plan.bind, persistent=0)


def _stored(dtype: DType) -> int:
    return dtype.itemsize


# -- shared parts ----------------------------------------------------------------------------------


def _kernel(
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
    model: str,
    shared: int,
    origin: str,
    body: tuple[Stmt, ...],
    bind: dict[str, str],
    tail: tuple[str, ...],
    maps: tuple[str, ...],
    order: str = "row",
    split: int = 1,
    template: Literal["mma", "fma", "sync"] = "mma",
) -> Kernel:
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
        tokens=dict(TOKENS),
        barrier_model=model,  # type: ignore[arg-type]
        shared_bytes=shared,
        ring_origin=origin,  # type: ignore[arg-type]
        body=body,
        tail=tail,
        tile_order=order,  # type: ignore[arg-type]
        split=split,
    )


def block_axes(bind: dict[str, str]) -> dict[str, str]:
    """Block coordinate -> role. n on x and m on y unless `bind` swaps them; batch on z."""
    out = {place.removeprefix("block."): axis.split(".")[0] for axis, place in bind.items() if place.startswith("block.")}
    roles = {place: role for place, role in out.items() if role in ("m", "n")}
    if sorted(roles.values()) != ["m", "n"]:
        roles = {"x": "n", "y": "m"}
    free = next(c for c in "zyx" if c not in roles)
    return {**roles, free: "b"}


def _bind(
    p: Problem, kernel: Kernel, bind: dict[str, str], persistent: int, maps: tuple[TensorMapSpec, ...] = ()
) -> tuple[Kernel, Binding]:
    bm, bn, _ = kernel.tile
    counts = {"m": ceildiv(p.m, bm), "n": ceildiv(p.n, bn), "b": product(p.batch) * kernel.split}
    if persistent:
        grid: tuple[Expr, ...] = (minimum(product(counts.values()), persistent), ONE, ONE)
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
        shared_bytes=kernel.shared_bytes,
        tensor_maps=maps,
    )
