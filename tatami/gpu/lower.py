"""Region + plan -> kernels: one template per architecture, with its parameters from the plan (spec 3 §10(7), spec 5 §6).

Equal kernels are one kernel, however many Regions use it; the bindings say which do."""

from __future__ import annotations

import hashlib

import msgspec

import tatami.region.ir as region_ir
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.kernel import Binding, KernelFace, KernelParam, is_divisible
from tatami.core.layout import SWIZZLES
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.gpu.ir import AnyKernel, Kernel, Program
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.pairs.two_pass import lower_two_pass
from tatami.gpu.products.frame import refuse
from tatami.gpu.products.plan_words import check_words, tail_roles
from tatami.gpu.products.problem import problem, swapped
from tatami.gpu.products.sm80 import lower_sm80
from tatami.gpu.products.sm90 import lower_sm90
from tatami.gpu.products.split_k import split_region
from tatami.gpu.products.stream_k import cut_problem, stream_region
from tatami.gpu.products.sync import lower_sync
from tatami.gpu.streaming.custom_body import lower_body
from tatami.gpu.streaming.lower import lower_stream
from tatami.gpu.streaming.sort import DOWN, lower_sort
from tatami.plan.ir import TWO_PASS, GpuStream, GpuSync, Guarded, ProgramPlan, RegionPlan, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.views.product_limits import hard_limits, synchronous_block
from tatami.plan.views.product_rules import block_rules, group_rules, shape_rules
from tatami.region.views.fp8 import spelled_out


def lower(region: Module[region_ir.Program], plan: Module[ProgramPlan], target: Target) -> Module[Program]:
    """Kernels of every program. Raises InvalidPlan or ResourceExceeded, with figures, for a plan that cannot be realised."""
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
    given = region
    for position, choice in enumerate(plan.choices):
        region = spelled_out(given, but_products=isinstance(choice.plan, Sm90Mma))
        if region.opaque is not None:
            made = lower_sort(region, choice.plan) if region.opaque.routine in DOWN else [lower_body(region)]
            out += [(position, k, msgspec.structs.replace(b, conditions=choice.conditions)) for k, b in made]
        elif isinstance(choice.plan, GpuStream):
            out += [(position, k, b) for k, b in lower_stream(region, choice.plan, choice.conditions)]
        elif isinstance(choice.plan, Sm80Mma | Sm90Mma) and choice.plan.split_k > 1:
            out += [(position, k, b) for k, b in lower_split(region, choice, target)]
        elif isinstance(choice.plan, Sm90Mma) and choice.plan.stream_k is not None:
            out += [(position, k, b) for k, b in lower_stream_k(region, choice, target)]
        elif isinstance(choice.plan, Sm80Pair | Sm90Pair) and choice.plan.algo_choice.get("attention") == TWO_PASS:
            out += [(position, k, b) for k, b in lower_two_pass(region, choice, target)]
        elif isinstance(choice.plan, Sm80Pair | Sm90Pair):
            out += [(position, k, b) for k, b in lower_pair(region, choice, target)]
        else:
            out.append((position, *lower_region(region, choice, target)))
    return out


def lower_region(
    region: region_ir.Region, choice: Guarded, target: Target, whole_rows: int | None = None
) -> tuple[Kernel, Binding]:
    """The kernel of one guarded plan, with an empty face, and its binding, without the kernel's name. `whole_rows`: for an
    SM90 plan, how many of the first rows of tiles the kernel computes; None: all."""
    plan = choice.plan
    if not isinstance(plan, Sm80Mma | Sm90Mma | GpuSync):
        raise fail(
            "InvalidPlan",
            region.name,
            f"no GPU template for plans of kind {type(plan).__name__}",
            "use sm80_mma, sm90_mma or gpu_sync",
        )
    if isinstance(plan, Sm80Mma | Sm90Mma) and plan.split_k > 1 and len(region.lets) > 1:
        raise fail("InvalidPlan", region.name, "split_k makes two kernels of this Region", "lower it by lower_split")
    if isinstance(plan, Sm90Mma) and plan.stream_k is not None and len(region.lets) > 1:
        raise fail("InvalidPlan", region.name, "stream_k makes several kernels of this Region", "lower it by lower_stream_k")
    p = problem(region, plan.acc, choice.conditions)
    refuse(region.name, "InvalidPlan", shape_rules(plan))
    if p.groups is not None:
        refuse(region.name, "InvalidPlan", group_rules(plan))
    if p.blocks:
        refuse(region.name, "InvalidPlan", block_rules(plan))
    refuse(region.name, "InvalidPlan", check_words(plan, region, p))
    refuse(region.name, "ResourceExceeded", hard_limits(plan, p.a_dtype, target))
    if plan.arch != target.isa and not (plan.arch == "sm80" and target.isa == "sm90"):
        raise fail(
            "InvalidPlan", region.name, f"the plan is for {plan.arch}, the target is {target.isa}", f"set arch to {target.isa}"
        )
    tail = tail_roles(plan.predicate_tail, p.roles)
    if isinstance(plan, Sm90Mma) and plan.swap_ab:
        p = swapped(p)
        tail = tuple(r for r in "mnk" if {"m": "n", "n": "m"}.get(r, r) in tail)
    cluster = plan.cluster if isinstance(plan, Sm90Mma) else (1, 1)
    steps = (plan.tile[0] * cluster[0], plan.tile[1] * cluster[1], plan.tile[2])
    for role, size, tile in zip("mnk", (p.m, p.n, p.k), steps):
        whole = is_divisible(size, tile, p.conditions) and not (role == "m" and p.groups is not None)
        if role not in tail and not whole and not (isinstance(plan, Sm90Mma) and role == "k"):
            raise fail(
                "InvalidPlan",
                region.name,
                f"axis {role} of size {size} is not known to be a multiple of its tile {tile} and is not in predicate_tail",
                f'add "{role}" to predicate_tail, or guard the plan by {size} % {tile} == 0',
            )
    swizzles = swizzles_of(region)
    if swizzles and isinstance(plan, Sm90Mma):
        why = f"{', '.join(swizzles)} has tiles with a swizzle of its own; boxes of TMA have one as wide as their rows"
        raise fail("InvalidPlan", region.name, why, "use an sm80_mma plan, or row_major")
    match plan:
        case Sm80Mma() if plan.async_.enable:
            return lower_sm80(p, plan, tail, target, swizzles)
        case Sm80Mma():
            sync = GpuSync(
                plan.tile,
                synchronous_block(plan.tile),
                plan.bind,
                plan.predicate_tail,
                plan.epilogue,
                plan.stages,
                acc=plan.acc,
            )
            refuse(region.name, "InvalidPlan", shape_rules(sync))
            refuse(region.name, "ResourceExceeded", hard_limits(sync, p.a_dtype, target))
            return lower_sync(p, sync, tail)
        case Sm90Mma():
            return lower_sm90(p, plan, tail, target, whole_rows)
        case GpuSync():
            return lower_sync(p, plan, tail)


def swizzles_of(region: region_ir.Region) -> dict[str, int]:
    """Kernel's name of each input whose layout is swizzled -> bytes of a row of its tile over which its chunks are exchanged."""
    swizzled = {f"p{i}": p.memref.layout for i, p in enumerate(region.inputs) if p.memref.layout.kind == "swizzled"}
    return {name: SWIZZLES[layout.swizzle] for name, layout in swizzled.items()}


def lower_split(region: region_ir.Region, choice: Guarded, target: Target) -> list[tuple[AnyKernel, Binding]]:
    """The kernels of split-K: the parts of the product, then their sum and the epilogue."""
    plan = choice.plan
    assert isinstance(plan, Sm80Mma | Sm90Mma)
    p = problem(region, plan.acc, choice.conditions)
    if p.groups is not None:
        refuse(region.name, "InvalidPlan", group_rules(plan))
    if p.blocks:
        refuse(region.name, "InvalidPlan", block_rules(plan))
    refuse(region.name, "InvalidPlan", check_words(plan, region, p))
    split = split_region(region, plan, p.acc)
    first = msgspec.structs.replace(choice, plan=msgspec.structs.replace(plan, epilogue=(), acc=p.acc))
    kernel, binding = lower_region(split.product, first, target)
    parts = msgspec.structs.replace(binding, scratch=(split.scratch,))
    return [(kernel, parts), *lower_stream(split.after, split.plan, choice.conditions)]


def lower_stream_k(region: region_ir.Region, choice: Guarded, target: Target) -> list[tuple[AnyKernel, Binding]]:
    """The kernels of stream-K: whole tiles, if there are any; the pieces of the other tiles; their sums and the epilogue."""
    plan = choice.plan
    assert isinstance(plan, Sm90Mma)
    p = problem(region, plan.acc, choice.conditions)
    refuse(region.name, "InvalidPlan", shape_rules(plan))
    if p.groups is not None:
        refuse(region.name, "InvalidPlan", group_rules(plan))
    if p.blocks:
        refuse(region.name, "InvalidPlan", block_rules(plan))
    refuse(region.name, "InvalidPlan", check_words(plan, region, p))
    cut = cut_problem(p, plan)
    out: list[tuple[AnyKernel, Binding]] = []
    if cut.first:
        whole = msgspec.structs.replace(plan, stream_k=None)
        out.append(lower_region(region, msgspec.structs.replace(choice, plan=whole), target, cut.first))
    split = stream_region(region, plan, p, cut)
    direct = msgspec.structs.replace(plan, epilogue=(), acc=p.acc, epilogue_store="direct", epilogue_load="direct")
    kernel, binding = lower_region(split.product, msgspec.structs.replace(choice, plan=direct), target)
    out.append((kernel, msgspec.structs.replace(binding, scratch=(split.scratch,))))
    return [*out, *lower_stream(split.after, split.plan, choice.conditions)]
