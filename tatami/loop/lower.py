"""Regions and their plans to CPU kernels; structurally equal ones share a kernel (design §3 loop).

region, plan  ->  renamed into our own names  ->  body by the kind of the plan  ->  kernel keyed by its content
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, assert_never, get_args

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding, KernelFace, KernelParam
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.loop import ir
from tatami.loop.attention.streaming import lower_streaming
from tatami.loop.emit.rename import rename_plan
from tatami.loop.images.correlation import lower_correlation
from tatami.loop.images.places import lower_places
from tatami.loop.images.planes import lower_planes
from tatami.loop.images.whole_planes import lower_window
from tatami.loop.images.winograd import lower_winograd
from tatami.loop.nests.rows import lower_rows
from tatami.loop.opaque import lower_opaque
from tatami.loop.passes.in_place import in_place
from tatami.loop.passes.interleave import has_chains_side_by_side, interleaved
from tatami.loop.passes.local_bytes import local_bytes
from tatami.loop.passes.nontemporal import nontemporal
from tatami.loop.passes.settle import settled
from tatami.loop.products.contraction import lower_contraction
from tatami.loop.products.transpose import lower_turn
from tatami.plan.ir import (
    CpuContraction,
    CpuCorrelation,
    CpuPlaces,
    CpuPlan,
    CpuPlanes,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    GpuStream,
    GpuSync,
    Guarded,
    ProgramPlan,
    RegionPlan,
    Scalar,
    SchedulePlan,
    Sm80Mma,
    Sm80Pair,
    Sm90Mma,
    Sm90Pair,
)
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.own_names import Names, rename
from tatami.plan.views.wished_plans import rows_plan
from tatami.region.ir import Program, Region
from tatami.region.views.fp8 import spelled_out
from tatami.region.views.open_places import with_open_places


def lower(
    region: Module[Program],
    plan: Module[ProgramPlan],
    target: Target,
    variants: Mapping[str, Mapping[str, tuple[Region, ...]]] | None = None,
    told: Callable[[ir.Kernel], object] = lambda kernel: None,
) -> Module[ir.Program]:
    """The kernels of every program, and the calls that its Regions make. `variants`: by program and Region, its forms in the
    order of its guarded plans, where these read other operands (plan/realise.py). `told`: called with each kernel when it is
    made."""
    variants = variants or {}
    programs: dict[str, ir.Program] = {}
    for name, program in region.programs.items():
        plans = {p.region: p for p in plan.programs[name].regions} if name in plan.programs else {}
        aligned = promised_alignments(program) if name == "main" else {}
        setting = Setting(target, variants.get(name, {}), aligned, told, is_run_once=name == "setup")
        programs[name] = _lower_program(program, plans, setting)
    return Module(programs, region.constants, region.origins)


class Setting(msgspec.Struct, frozen=True):
    """The setting of the kernels of one program: the target, the forms of its Regions, bytes of alignment that are promised
    of its inputs, who is told of each kernel, and if the program runs once, when it is loaded."""

    target: Target
    variants: Mapping[str, tuple[Region, ...]]
    aligned: Mapping[str, int]
    told: Callable[[ir.Kernel], object]
    is_run_once: bool


def promised_alignments(program: Program) -> dict[str, int]:
    """Tensor of an argument -> bytes of which its address is a multiple, where the signature says more than the dtype."""
    ports = zip(program.inputs, program.signature.inputs)
    return {n: p.alignment for n, p in ports if p.alignment > p.dtype.itemsize and p.storage != "const_pool"}


def _lower_program(program: Program, plans: dict[str, RegionPlan], setting: Setting) -> ir.Program:
    target = setting.target
    kernels: dict[str, ir.Kernel] = {}
    bindings: list[Binding] = []
    known: dict[tuple[str, tuple[int, ...]], ir.Kernel] = {}
    steps = [step for step in program.body if isinstance(step, Region)]
    opened = [_bodies(step, plans.get(step.name), setting.variants.get(step.name), target) for step in steps]
    alike = Counter(body.key for bodies in opened for body in bodies if body.places)
    for step, bodies in zip(steps, opened, strict=True):
        for i, body in enumerate(bodies):
            if body.places and alike[body.key] < LEAST_ALIKE:
                body = _body(body.form, body.form, body.choice, {})
            aligned = tuple(setting.aligned.get(p.name, 0) for p in body.form.inputs)
            kernel = known.get((body.key, aligned))
            if kernel is None:
                kernel = known[body.key, aligned] = _kernel(body, aligned, setting, step.name)
            if kernel.face.symbol not in kernels:
                kernels[kernel.face.symbol] = kernel
                setting.told(kernel)
            bindings.append(
                Binding(
                    region=step.name,
                    kernel=kernel.face.symbol,
                    buffers=(*(p.name for p in body.form.inputs), *(t.name for t in body.form.outputs)),
                    sizes=tuple(expr(body.places[n]) if n in body.places else var(n) for n in body.names.sizes),
                    choice=i,
                    conditions=body.choice.conditions,
                    local_bytes=local_bytes(kernel.body),
                )
            )
    return ir.Program(kernels, tuple(bindings))


LEAST_ALIKE = 4
"""Minimum launches of a program that differ in the place of a slice only and share a kernel, which takes the place as a size. In
the kernels of fewer it is a number."""


class _Body(msgspec.Struct, frozen=True):
    """A form of a Region in our own names and its plan, of which a kernel is made. `places`: those that are sizes."""

    form: Region
    choice: Guarded
    region: Region
    names: Names
    plan: SchedulePlan
    places: dict[str, int]
    key: str


def _bodies(step: Region, given: RegionPlan | None, forms: tuple[Region, ...] | None, target: Target) -> list[_Body]:
    """The body of each choice, with the places of slices as sizes."""
    choices = given.choices if given else (Guarded((), _default_plan(step, target)),)
    out = []
    for choice, form in zip(choices, forms or (step,) * len(choices), strict=True):
        opened, places = with_open_places(form)
        out.append(_body(form, opened, choice, places))
    return out


def _body(form: Region, opened: Region, choice: Guarded, places: dict[str, int]) -> _Body:
    renamed, names = rename(spelled_out(opened))
    plan = rename_plan(choice.plan, names)
    return _Body(form, choice, renamed, names, plan, places, content_key((renamed, plan)))


def _default_plan(region: Region, target: Target) -> SchedulePlan:
    """For a Region without a plan: loops by the rules of the scheduler."""
    if region.opaque is not None:
        return Scalar((), {})
    return rows_plan(region, Wish(), target.lanes)


def _kernel(of: _Body, aligned: tuple[int, ...], setting: Setting, at: str) -> ir.Kernel:
    region, names = of.region, of.names
    body = lower_region(region, of.plan, setting.target, at)
    body = msgspec.structs.replace(body, stmts=interleaved(settled(body.stmts)))
    params = tuple(
        [
            ir.BufferParam(p.name, p.memref.dtype, False, p.memref.noalias, alignment)
            for p, alignment in zip(region.inputs, aligned, strict=True)
        ]
        + [ir.BufferParam(t.name, t.memref.dtype, True, t.memref.noalias) for t in region.outputs]
    )
    key = content_key((params, len(names.sizes), body, *(("once",) if setting.is_run_once else ())))
    face = KernelFace(
        symbol=f"tatami_{key[:20]}",
        params=tuple(KernelParam(p.dtype, p.written) for p in params),
        sizes=len(names.sizes),
        key=key,
        in_place=in_place(params, body.stmts),
    )
    side_by_side = has_chains_side_by_side(body.stmts)
    return ir.Kernel(
        face,
        params,
        body.stmts,
        body.functions,
        body.contract,
        body.about,
        body.user,
        side_by_side,
        is_run_once=setting.is_run_once,
    )


def lower_region(region: Region, plan: SchedulePlan, target: Target, at: str = "r") -> ir.Body:
    """The body of the kernel of a renamed Region under a renamed plan. Raises InvalidPlan for a plan of another target."""
    if region.opaque is not None:
        return lower_opaque(region)
    match plan:
        case Scalar() | CpuRows():
            stmts = lower_rows(region, plan)
            past = plan.nontemporal if isinstance(plan, CpuRows) else ()
            return ir.Body(nontemporal(stmts, set(past)), about=type(plan).__name__)
        case CpuContraction():
            return lower_contraction(region, plan)
        case CpuWindow():
            return lower_window(region, plan)
        case CpuWinograd():
            return lower_winograd(region, plan)
        case CpuPlanes():
            return lower_planes(region, plan)
        case CpuCorrelation():
            return lower_correlation(region, plan)
        case CpuPlaces():
            return lower_places(region, plan)
        case CpuTurn():
            return lower_turn(region, plan)
        case CpuStreaming():
            return lower_streaming(region, plan)
        case CpuSplit() | Sm80Mma() | Sm90Mma() | Sm80Pair() | Sm90Pair() | GpuSync() | GpuStream():
            kinds = sorted(kind.__struct_config__.tag for kind in get_args(CpuPlan) if kind is not CpuSplit)
            why = f"a plan of kind {type(plan).__name__} is for another target"
            raise fail("InvalidPlan", at, why, f"choose a plan of kind {', '.join(kinds[:-1])} or {kinds[-1]}")
        case _:
            assert_never(plan)


def content_key(value: Any) -> str:
    """sha256 of a value of inert nodes; equal values have equal keys in every process."""
    return hashlib.sha256(msgspec.json.encode(value, enc_hook=_text)).hexdigest()


def _text(value: Any) -> Any:
    if isinstance(value, Expr | VerbatimCode):
        return str(value)
    raise TypeError(type(value).__name__)
