"""Comparison of documents from outside with the stages that they are derived from (D2.20, decision 0043).

    indexbook <- tiny          poly_view <- tiny, indexbook          poly_core <- region          facts: equal, or refused
    loop <- region, plan       kernels may be edited: the edited ones run with every access checked
    gpu <- region, plan        equal, or refused
    execution <- loop or gpu   order, waves and places in the arena may be edited; the instructions' work is the stage's above

Each is a function of the stages above it, so it is derived again and compared. Stages that stand alone (frontend, tiny, region,
plan) are obeyed as they are. A caller who trusts a document has its kernels and instructions as they stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import Diagnostic, diagnostic, fail, raise_errors
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.stages import encode_body, stage
from tatami.storage.tree_tables import check_tables, has_trees

if TYPE_CHECKING:
    from tatami.execution.ir import ExecutionPlan, Instruction
    from tatami.loop.ir import Kernel, Program
    from tatami.plan.ir import ProgramPlan
    from tatami.region.ir import Program as RegionProgram
    from tatami.tiny.ir import Program as TinyProgram

Given = Mapping[str, Module[Any]]


def check_derived(given: Given, target: Target, *, trust: bool = False) -> dict[str, Module[object]]:
    """The stages in the form in which they may be compiled. Raises TatamiError if a document differs from its derivation where
    it must not. `trust`: loops and instructions are taken unchanged."""
    out = dict(given)
    for name in ("tiny@imported", "tiny"):
        if name in out:
            raise_errors(_open_equations(name, out[name]))
    if not trust:
        raise_errors(check_tables(out))
    if {"tiny", "indexbook"} <= out.keys():
        _equal_facts("indexbook", out, target, ("tiny",))
    if {"tiny", "indexbook", "poly_view"} <= out.keys():
        _equal_facts("poly_view", out, target, ("tiny", "indexbook"))
    if {"region", "poly_core"} <= out.keys():
        _equal_facts("poly_core", out, target, ("region", "poly_view") if "poly_view" in out else ("region",))
    for name, kind in (("loop", "cpu"), ("gpu", "cuda")):
        if name in out and target.kind in ("cpu", "cuda") and target.kind != kind:
            why = f"a document of stage {name} is for targets of kind {kind}, and {target.name} is of kind {target.kind}"
            raise fail("InvalidDocument", name, why, "restart from its region document")
    if {"region", "plan"} <= out.keys():
        raise_errors(_keys(out["plan"], out["region"], target))
    if trust or not {"region", "plan"} <= out.keys() or target.kind == "reference":
        return out
    above = {n: out[n] for n in ("region", "plan")}
    if "loop" in out:
        out["loop"] = _checked_loops(out["loop"], above, target)
    if "gpu" in out:
        raise_errors(list(_differences("gpu", out["gpu"], _derived("gpu", above, target), "edit the plan")))
    if "execution" in out and ("loop" in out or "gpu" in out):
        raise_errors(_other_work(out["execution"], _derived("execution", above, target)))
    return out


def _open_equations(form: str, tiny: Module[TinyProgram]) -> list[Diagnostic]:
    """Faults of reshapes whose sizes are equal only if an equation holds that the signature lacks: nothing would check it.
    Symbols that an equation replaces still occur in the imported form."""
    from tatami.tiny.passes.equations import reshape_equations, solved_symbols

    out: list[Diagnostic] = []
    for name, program in tiny.programs.items():
        known = program.signature.assumptions
        assumed = Assumed(known)
        equations = reshape_equations(program)
        values = solved_symbols([*((e.lhs, e.rhs) for e in known), *equations], program.signature)
        if form != "tiny@imported" or name != "main":
            values = {}
        for lhs, rhs in equations:
            sides = [assumed.rewrite(substitute(side, values)) for side in (lhs, rhs)]
            if sides[0] != sides[1] and not any({e.lhs, e.rhs} == {lhs, rhs} for e in known):
                why = f"a reshape takes {lhs} to be {rhs}, which nothing says"
                how = f"write the equation of {lhs} and {rhs} in signature.assumptions, or mend the shape"
                out.append(diagnostic("AxisAlignmentMismatch", name, why, how))
    return out


def _derived(name: str, above: Given, target: Target) -> Module[Any]:
    made: Module[Any] = compile_stages(above, target, Decisions(), lambda _, make: make())[name]
    return made


def _equal_facts(name: str, given: Given, target: Target, above: tuple[str, ...]) -> None:
    derived = _derived(name, {n: given[n] for n in above}, target)
    how = f"leave the document out: {name} is computed from {' and '.join(above)}"
    raise_errors(list(_differences(name, given[name], derived, how)))


# -- comparison ------------------------------------------------------------------------------------


def _differences(name: str, given: Module[object], derived: Module[object], suggestion: str) -> Iterator[Diagnostic]:
    """The first difference of each program."""
    for program in dict.fromkeys((*derived.programs, *given.programs)):
        have, want = given.programs.get(program), derived.programs.get(program)
        if have == want:
            continue
        if have is None or want is None:
            why = "the program is missing" if have is None else "there is no such program above"
            yield diagnostic("InvalidDocument", f"{name}: {program}", why, suggestion)
            continue
        s = stage(name)
        place, why = first_difference(msgspec.to_builtins(encode_body(s, have)), msgspec.to_builtins(encode_body(s, want)))
        yield diagnostic("InvalidDocument", f"{name}: {program}{place}", why, suggestion)


def first_difference(have: object, want: object) -> tuple[str, str]:
    """(the path at which two plain values first differ, the difference in words)."""
    if isinstance(have, dict) and isinstance(want, dict):
        for key in dict.fromkeys((*want, *have)):
            if key not in have:
                return f".{key}", f"it is left out; derived again it is {_short(want[key])}"
            if key not in want:
                return f".{key}", f"it is {_short(have[key])}; derived again it is left out"
            if have[key] != want[key]:
                place, why = first_difference(have[key], want[key])
                return f".{key}{place}", why
    if isinstance(have, list | tuple) and isinstance(want, list | tuple) and len(have) == len(want):
        for i, (a, b) in enumerate(zip(have, want, strict=True)):
            if a != b:
                place, why = first_difference(a, b)
                return f".{i}{place}", why
    return "", f"it is {_short(have)}; derived again it is {_short(want)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 100 else f"{text[:97]}..."


def _keys(plan: Module[ProgramPlan], region: Module[RegionProgram], target: Target) -> list[Diagnostic]:
    """Faults of keys that are not the key of the plan's Region, for a machine that the plan can be checked against."""
    from tatami.plan.key import plan_key, target_class
    from tatami.plan.verify import target_of
    from tatami.plan.verify_plan import verify_plan
    from tatami.region.ir import Region

    out: list[Diagnostic] = []
    for name, program in region.programs.items():
        regions = {item.name: item for item in program.body if isinstance(item, Region)}
        for r in plan.programs[name].regions:
            mine = plan_key(regions[r.region], target)
            known = r.key == mine or target_of(r.key) is not None
            if not known or r.key.partition("@")[0] != mine.partition("@")[0]:
                why = f"the plan is keyed {r.key[:80]}, its Region {mine}"
                out.append(
                    diagnostic("InvalidPlan", f"{name}: {r.region}", why, f"write the key {mine}, or plan the Region again")
                )
            elif r.key.endswith(f"@{target_class(target)}"):
                out += [d for c in r.choices for d in verify_plan(c.plan, regions[r.region], target)]
    return out


# -- loops -----------------------------------------------------------------------------------------


def _checked_loops(given: Module[Program], above: Given, target: Target) -> Module[Program]:
    """Kernels that equal their derivation are unchanged; all accesses in the bodies of others are checked at run time."""
    from tatami.loop.emit.extents import extents_of_kernels

    derived = _derived("loop", above, target)
    faults = list(_differences("loop", _without_bodies(given), _without_bodies(derived), _MAY_BE_EDITED))
    raise_errors(faults)
    realised = compile_stages(above, target, Decisions(), lambda _, make: make())["realised"]
    followed = "its results may be tables of trees, whose indices are followed" if has_trees(above["region"]) else ""
    programs: dict[str, Program] = {}
    warnings: list[Diagnostic] = []
    for name, program in given.programs.items():
        extents = extents_of_kernels(realised.programs[name], program)
        kernels: dict[str, Kernel] = {}
        for symbol, kernel in program.kernels.items():
            if kernel == derived.programs[name].kernels[symbol]:
                kernels[symbol] = kernel
                continue
            found = extents.get(symbol)
            why = _unchecked(kernel) or followed or ("" if found is not None else "Regions of different shapes share it")
            if why or found is None:
                faults.append(diagnostic("Untrusted", f"{name}.{symbol}", f"the kernel was edited, and {why}", _TRUST))
                continue
            kernels[symbol] = msgspec.structs.replace(kernel, extents=found)
            where = f"{name}.{symbol}"
            why = "the kernel is not what its Region and plan give: every access is checked as it runs"
            warnings.append(diagnostic("CheckedKernel", where, why, _TRUST))
        programs[name] = msgspec.structs.replace(program, kernels=kernels)
    raise_errors(faults)
    return replace(given, programs=programs, warnings=(*given.warnings, *warnings))


_MAY_BE_EDITED = "edit bodies of kernels here; faces and bindings are the Region's"
_TRUST = "undo the edit, or pass --trust (trust=True) to run what you wrote as it stands"


def _without_bodies(module: Module[Program]) -> Module[Program]:
    def bare(kernel: Kernel) -> Kernel:
        return msgspec.structs.replace(kernel, body=(), extents=())

    programs = {
        name: msgspec.structs.replace(p, kernels={s: bare(k) for s, k in p.kernels.items()})
        for name, p in module.programs.items()
    }
    return Module(programs)


def _unchecked(kernel: Kernel) -> str:
    """The reason why the accesses of a kernel cannot be checked (they are made elsewhere), or ""."""
    from tatami.loop.ir import Call
    from tatami.loop.walk import nodes

    if kernel.functions:
        return "it has functions of its own"
    called = next((n.function for n in nodes(kernel.body) if isinstance(n, Call)), "")
    return f"it calls {called[:60]}, which reads and writes by itself" if called else ""


# -- execution -------------------------------------------------------------------------------------


def _other_work(given: Module[ExecutionPlan], derived: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of a plan that differs in more than the order of instructions and the places of buffers in the arena."""
    faults = list(_differences("execution", _without_order(given), _without_order(derived), _ORDER))
    if faults:
        return faults
    for name, plan in derived.programs.items():
        missing = Counter(map(_work, plan.instructions)) - Counter(map(_work, given.programs[name].instructions))
        for ins in plan.instructions:
            if missing[_work(ins)]:
                why = "no instruction does the same work on the same buffers"
                faults.append(diagnostic("InvalidExecution", f"{name}: {ins.debug_name}", why, _ORDER))
                break
    return faults


_ORDER = (
    "edit order, waves and offsets here; what runs on which buffers is the loop stage's (--trust runs the plan as it stands)"
)


def _work(ins: Instruction) -> str:
    bare = msgspec.structs.replace(ins, debug_name="", wave=0, beside=False)
    return str(bare)


def _without_order(module: Module[ExecutionPlan]) -> Module[ExecutionPlan]:
    def bare(plan: ExecutionPlan) -> ExecutionPlan:
        buffers = tuple(
            msgspec.structs.replace(b, in_place_of="", first_use=-1, last_use=-1, arena_offset=-1)
            for b in sorted(plan.buffers, key=lambda b: b.id)
        )
        return msgspec.structs.replace(plan, buffers=buffers, instructions=())

    return Module({name: bare(plan) for name, plan in module.programs.items()})
