"""Inputs of called programs that are one constant of the ConstPool at every call.

    main:   loop step0(…, n7)      n7 is a constant   ->   input n5 of step0 is that constant: `setup` may pack it

A body is compiled once and takes its operands as arguments; its callers decide which of them are constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.module import Module
from tatami.core.signature import Input, is_constant
from tatami.region.ir import Program, Region, Step


def constant_arguments(region: Module[Program]) -> dict[str, dict[str, Input]]:
    """For every program except `setup`: value id of an input -> the port of the pool that it is at every call. Programs that
    call themselves have none."""
    made = {o.tensor for o in region.programs["setup"].signature.outputs} if "setup" in region.programs else set()
    pool = made | set(region.constants)
    callers = _callers(region)
    found: dict[str, dict[str, Input]] = {}

    def of(name: str, above: frozenset[str]) -> dict[str, Input]:
        program = region.programs[name]
        if name in found or name in above or name == "setup":
            return found.get(name, {})
        if name == "main":
            ports = zip(program.inputs, program.signature.inputs)
            found[name] = {i: p for i, p in ports if is_constant(p, pool)}
            return found[name]
        each = [_passed(program, step, of(caller, above | {name})) for caller, step in callers.get(name, ())]
        first = each[0] if each else {}
        found[name] = {i: port for i, port in first.items() if all(other.get(i) == port for other in each)}
        return found[name]

    for name in region.programs:
        of(name, frozenset())
    return found


def _callers(region: Module[Program]) -> dict[str, list[tuple[str, Step]]]:
    out: dict[str, list[tuple[str, Step]]] = {}
    for name, program in region.programs.items():
        for step in steps_of(program):
            for target in dict.fromkeys(step.targets):
                out.setdefault(target, []).append((name, step))
    return out


def steps_of(program: Program) -> Iterator[Step]:
    """The steps that call programs."""
    return (item for item in program.body if isinstance(item, Step) and item.kind != "host")


def leading(step: Step) -> int:
    """Number of a step's operands before those that are its callee's inputs."""
    return 1 if step.kind == "if" else 0


def _passed(callee: Program, step: Step, known: Mapping[str, Input]) -> dict[str, Input]:
    """Inputs of the callee for which the step passes a constant. Values that a loop counts or carries are not constant."""
    given = step.inputs[leading(step) :]
    if len(given) != len(callee.inputs):
        return {}
    count = step.attrs.get("carried", len(step.inputs) - 2)
    changing = 2 + count if step.kind == "loop" and isinstance(count, int) else 0
    return {i: known[value] for i, value in list(zip(callee.inputs, given))[changing:] if value in known}


def without_unread(programs: Mapping[str, Program], constants: Mapping[str, Mapping[str, Input]]) -> dict[str, Program]:
    """The programs without the constant arguments that none of a step's callees reads, and without the constants of main that
    nobody passes then. Repeated, since a caller may have passed on an argument of its own."""
    programs = dict(programs)
    while True:
        idle = {n: _unread(p, constants.get(n, {})) for n, p in programs.items() if n not in ("main", "setup")}
        for program in programs.values():
            for step in steps_of(program):
                places = [idle.get(t, frozenset()) for t in step.targets]
                whole = all(len(step.inputs) - leading(step) == _passed_count(programs[t]) for t in step.targets)
                common = frozenset.intersection(*places) if places and whole else frozenset()
                idle |= dict.fromkeys(step.targets, common)
        if not any(idle.values()):
            return programs
        for name, program in programs.items():
            programs[name] = _without_places(program, idle.get(name, frozenset()), idle)


def _passed_count(program: Program) -> int:
    """Number of inputs that callers pass; the others come from the pool."""
    return sum(p.storage != "const_pool" for p in program.signature.inputs)


def _unread(program: Program, constants: Mapping[str, Input]) -> frozenset[int]:
    """Positions of constant arguments that nothing reads."""
    used = set(program.outputs) | {
        n for item in program.body for n in (item.inputs if isinstance(item, Step) else [p.name for p in item.inputs])
    }
    passed = (i for i, p in zip(program.inputs, program.signature.inputs) if p.storage != "const_pool")
    return frozenset(k for k, i in enumerate(passed) if i in constants and i not in used)


def _without_places(program: Program, places: frozenset[int], idle: Mapping[str, frozenset[int]]) -> Program:
    """The program without its own inputs at `places`, and its steps without the operands that their callees drop."""
    body: list[Region | Step] = []
    for item in program.body:
        if isinstance(item, Step) and item.kind != "host" and (gone := idle.get(item.targets[0])):
            lead = leading(item)
            kept = tuple(v for k, v in enumerate(item.inputs) if k - lead not in gone)
            item = msgspec.structs.replace(item, inputs=kept)
        body.append(item)
    ports = list(zip(program.inputs, program.signature.inputs))
    passed = [pair for pair in ports if pair[1].storage != "const_pool"]
    drop = {pair[0] for k, pair in enumerate(passed) if k in places}
    kept_ports = [pair for pair in ports if pair[0] not in drop]
    signature = msgspec.structs.replace(program.signature, inputs=tuple(p for _, p in kept_ports))
    return Program(signature, tuple(i for i, _ in kept_ports), program.outputs, tuple(body))
