"""Regions as kernels read them: packed operands made in `setup`, layouts changed at boundaries (design §3 plan).

    plan packs n1            setup:  n1_p[k, n] <- n1[k, n]     blocked, slivers of nr columns
    n9 = sum n0 * n1   ->    main:   n9 = sum n0[m, k] * n1_p[k, n]

A plan without packed operands or layouts leaves the module as it is. plan/memory/packed_operands.py describes packed operands,
whose logical meaning is that of the operand, so that the realised Regions compute the same as the planned ones.

A Region with several guarded plans has a realised form for each, since each may pack another operand or pack it differently.
The program holds the last form, whose inputs include those of the other forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from tatami.core.dtype import DType
from tatami.core.layout import MemRef, packed_layout
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.plan.cpu.split import split_region
from tatami.plan.ir import CpuSplit, ProgramPlan, SchedulePlan
from tatami.plan.memory.constant_arguments import constant_arguments, without_unread
from tatami.plan.memory.convert import with_layouts
from tatami.plan.memory.packed_lookups import looked_up, packed_forms, with_packed_lookups
from tatami.plan.memory.packed_operands import PackedOperand, packed_operands
from tatami.plan.named_region import constant_tensors
from tatami.region.ir import Binary, Cast, Iter, Let, Param, Program, Reduce, Region, RegionExpr, Step, Target, Yield
from tatami.region.walk import Types, reads, rewrite

Variants: TypeAlias = Mapping[str, Mapping[str, tuple[Region, ...]]]
"""Realised forms of Regions with several guarded plans, in their order, by program and Region."""


@dataclass(frozen=True)
class Realised:
    """The programs as kernels read them, with the forms of Regions that have several."""

    module: Module[Program]
    variants: Variants


def realise(region: Module[Program], plan: Module[ProgramPlan]) -> Realised:
    """The Regions with the layouts that `plan` gives to values, and packed constant operands."""
    programs = dict(region.programs)
    variants: dict[str, dict[str, tuple[Region, ...]]] = {}
    prepared: dict[str, tuple[Region, ...]] = {}
    for name in region.programs:
        if name in plan.programs and plan.programs[name].layouts:
            constants = constant_tensors(region, name) if name == "main" else frozenset()
            programs[name], prepared[name] = with_layouts(programs[name], plan.programs[name].layouts, constants)
    for name in region.programs:
        if name in plan.programs:
            programs[name] = _split_program(programs[name], plan.programs[name])
    taken = set().union(*map(_names, programs.values()))
    arguments = constant_arguments(region)
    every: list[_Packing] = []
    for name in [n for n in region.programs if n in plan.programs and n != "setup"]:
        program = programs[name]
        ports = arguments.get(name, {}) | dict(zip(program.inputs, program.signature.inputs) if name == "main" else ())
        turned = [_turned(r, ports) for r in prepared.get(name, ())]
        packed, packings, variants[name] = _pack_program(_with_made(program, turned), plan.programs[name], ports, taken)
        if turned or packings:
            programs[name] = packed
            every += turned + packings
    if every:
        programs = without_unread(programs, arguments)
        if "main" in programs:
            programs["main"] = _without_unused(programs["main"])
        programs["setup"] = _with_packing(region, programs.get("setup"), every)
    if all(programs.get(n) is p for n, p in region.programs.items()) and programs.keys() == region.programs.keys():
        return Realised(region, variants)
    return Realised(Module(programs, region.constants, region.origins), variants)


def _split_program(program: Program, plan: ProgramPlan) -> Program:
    """Regions whose plan is CpuSplit become the Regions of its parts."""
    cuts = {r.region: r.choices[-1].plan for r in plan.regions if isinstance(r.choices[-1].plan, CpuSplit)}
    if not cuts:
        return program
    taken = _names(program)
    body: list[Region | Step] = []
    for item in program.body:
        cut = cuts.get(item.name)
        if isinstance(item, Region) and isinstance(cut, CpuSplit):
            body += split_region(item, cut.parts, taken)
        else:
            body.append(item)
    return msgspec.structs.replace(program, body=tuple(body))


class _Packing(msgspec.Struct, frozen=True):
    """One packed tensor: the tensor of main from which it is made, and the Region that makes it."""

    source: Input
    source_id: str
    region: Region
    made: Input
    made_id: str


def _pack_program(
    program: Program, plan: ProgramPlan, ports: dict[str, Input], taken: set[str]
) -> tuple[Program, list[_Packing], dict[str, tuple[Region, ...]]]:
    """The program with its packed operands; these; and the realised forms of Regions with several plans. `ports`: the inputs
    that `setup` may read."""
    plans = {r.region: r for r in plan.regions}
    made: dict[tuple[str, str], _Packing] = {}
    variants: dict[str, tuple[Region, ...]] = {}
    body: list[Region | Step] = []
    for item in program.body:
        if isinstance(item, Region) and item.name in plans:
            forms = tuple(_pack_region(item, c.plan, ports, taken, made) for c in plans[item.name].choices)
            item = forms[-1]
            if len(forms) > 1:
                variants[item.name] = forms
                own = {p.name for p in item.inputs}
                others = {p.name: p for form in forms for p in form.inputs if p.name not in own}
                item = msgspec.structs.replace(item, inputs=(*item.inputs, *others.values())) if others else item
        body.append(item)
    packings = list(made.values())
    body, variants = _with_lookups(body, variants, packings)
    return _with_made(msgspec.structs.replace(program, body=tuple(body)), packings), packings, variants


def _with_lookups(
    body: list[Region | Step], variants: dict[str, tuple[Region, ...]], packings: list[_Packing]
) -> tuple[list[Region | Step], dict[str, tuple[Region, ...]]]:
    """The Regions and their forms with lookups in packed operands that nothing else reads in their own order."""
    every = [*(r for forms in variants.values() for r in forms), *(r for r in body if isinstance(r, Region))]
    steps = [item for item in body if isinstance(item, Step)]
    forms = looked_up(every, steps, packed_forms(p.region for p in packings))
    if not forms:
        return body, variants
    changed = [with_packed_lookups(item, forms) if isinstance(item, Region) else item for item in body]
    return changed, {n: tuple(with_packed_lookups(r, forms) for r in of) for n, of in variants.items()}


def _turned(conversion: Region, ports: dict[str, Input]) -> _Packing:
    """A constant in another layout, as a packing."""
    (source,), (target,) = conversion.inputs, conversion.outputs
    memref = target.memref
    made = Input(target.name, memref.dtype, memref.shape, role="const", storage="const_pool", layout=memref.layout)
    return _Packing(ports[source.name], source.name, conversion, made, target.name)


def _with_made(program: Program, packings: list[_Packing]) -> Program:
    """The program with the packed tensors among its inputs, without the constants that nothing reads then."""
    if not packings:
        return program
    ids = (*program.inputs, *(p.made_id for p in packings))
    signature = msgspec.structs.replace(program.signature, inputs=(*program.signature.inputs, *(p.made for p in packings)))
    return _without_unused(Program(signature, ids, program.outputs, program.body))


def _without_unused(program: Program) -> Program:
    """The program without the constants that nothing reads."""
    body = program.body
    used = {n for item in body for n in (item.inputs if isinstance(item, Step) else [p.name for p in item.inputs])}
    used |= set(program.outputs) | {t.updates for item in body if isinstance(item, Region) for t in item.outputs}
    ports = zip(program.inputs, program.signature.inputs)
    kept = [(i, p) for i, p in ports if i in used or p.storage != "const_pool"]
    signature = msgspec.structs.replace(program.signature, inputs=tuple(p for _, p in kept))
    return Program(signature, tuple(i for i, _ in kept), program.outputs, body)


def _names(program: Program) -> set[str]:
    out = set(program.inputs) | {p.tensor for p in program.signature.inputs} | {p.tensor for p in program.signature.outputs}
    for item in program.body:
        out |= {o.name for o in item.outputs}
    return out


def _pack_region(
    region: Region, plan: SchedulePlan, ports: dict[str, Input], taken: set[str], made: dict[tuple[str, str], _Packing]
) -> Region:
    """The Region with its packed operands inserted."""
    for wanted in packed_operands(region, plan):
        if wanted.tensor in ports:
            region = _with_operand(region, wanted, _packing(region, wanted, ports[wanted.tensor], taken, made))
    return region


def _packing(
    region: Region, wanted: PackedOperand, port: Input, taken: set[str], made: dict[tuple[str, str], _Packing]
) -> _Packing:
    """The packing of the operand; one for all Regions that want the same."""
    layout = packed_layout(len(wanted.shape), wanted.block)
    memref = next(p.memref for p in region.inputs if p.name == wanted.tensor)
    last = wanted.lets[-1]
    key = (wanted.tensor, repr((wanted.lets, wanted.block, [str(s) for s in wanted.sizes.values()], wanted.index)))
    if key not in made:
        name = f"{wanted.tensor}_p"
        while name in taken:
            name += "p"
        taken.add(name)
        made[key] = _Packing(
            port,
            wanted.tensor,
            Region(
                f"pack_{name}",
                tuple(Iter(a, size) for a, size in wanted.sizes.items()),
                (),
                (Param(wanted.tensor, memref),),
                (Target(name, MemRef(last.dtype, wanted.shape, layout=layout)),),
                wanted.lets,
                (Yield(last.name, name, map=wanted.index),),
            ),
            Input(name, last.dtype, wanted.shape, role="const", storage="const_pool", layout=layout),
            name,
        )
    return made[key]


def _with_operand(region: Region, wanted: PackedOperand, packing: _Packing) -> Region:
    """The Region with the operand read from its packed form, and the other operand in the same dtype."""
    types = Types(region)

    def side(x: RegionExpr, dtype: DType) -> RegionExpr:
        if x in (wanted.operand, Cast(wanted.operand, dtype)):
            return wanted.read(packing.made_id)
        wide = x if types.of(x) == dtype else Cast(x, dtype)
        return rewrite(wide, lambda e: wanted.read(packing.made_id) if e == wanted.operand else e)

    def changed(let: Let) -> Let:
        e = let.expr
        if let.name != wanted.acc:
            return let
        assert isinstance(e, Reduce) and isinstance(e.body, Binary)
        body = Binary("mul", side(e.body.x, e.dtype), side(e.body.y, e.dtype))
        return msgspec.structs.replace(let, expr=msgspec.structs.replace(e, body=body))

    lets = tuple(changed(let) for let in region.lets)
    still = {r.tensor for n in lets for r in reads(n.expr)}
    made = packing.region.outputs[0].memref
    inputs: list[Param] = []
    for p in region.inputs:
        if p.name == packing.source_id:
            inputs.append(Param(packing.made_id, made))
        if p.name != packing.source_id or p.name in still:
            inputs.append(p)
    return msgspec.structs.replace(region, inputs=tuple(inputs), lets=lets)


def _with_packing(region: Module[Program], setup: Program | None, packings: list[_Packing]) -> Program:
    """`setup`, created if there is none, with the packing Regions at its end."""
    if setup is None:
        setup = Program(Signature(), (), (), ())
    inputs = list(zip(setup.inputs, setup.signature.inputs))
    outputs = list(zip(setup.outputs, setup.signature.outputs))
    by_tensor = {p.tensor: i for i, p in inputs} | {o.tensor: i for i, o in outputs}
    body = list(setup.body)
    taken = {item.name for item in body} | {t.name for item in body for t in item.outputs} | {i for i, _ in inputs}
    for p in packings:
        source = by_tensor.get(p.source.tensor)
        if source is None:
            source = _fresh(p.source_id, taken)
            inputs.append((source, p.source))
            by_tensor[p.source.tensor] = source
        made = _fresh(p.made_id, taken)
        step = _renamed(p.region, {p.source_id: source, p.made_id: made}, _fresh(p.region.name, taken))
        body.append(step)
        outputs.append((made, Output(p.made.tensor, p.made.dtype, p.made.shape, layout=p.made.layout)))
    signature = msgspec.structs.replace(
        setup.signature, inputs=tuple(p for _, p in inputs), outputs=tuple(o for _, o in outputs)
    )
    return Program(signature, tuple(i for i, _ in inputs), tuple(i for i, _ in outputs), tuple(body))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _renamed(region: Region, tensors: dict[str, str], name: str) -> Region:
    from tatami.region.views.canonical_key import Renaming, rename

    return rename(region, Renaming(tensors, {}, {}, {}), name)
