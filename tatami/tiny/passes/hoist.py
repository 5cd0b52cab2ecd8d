"""Constant work moves out of called programs: the caller computes it and passes the result, and so on up to main, from where
it moves to `setup`.

    main: if (c, x | W): branch x, W -> x @ flip(W) * s     becomes     main: V = flip(W) * s; if (c, x | W, V): branch x, V ->
    x @ V

Exporters reorder the gates of a recurrent layer for ONNX next to the layer itself: in a branch of an `if`, in the body of a
loop. An input of a program is constant if every call passes a constant for it. Branches of one `if` take the same arguments,
so an argument added to one is added to the other. Reads at indices that may lie outside stay: a branch that is never taken
must not raise faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tatami.core.module import Module
from tatami.core.signature import Input
from tatami.tiny.ir import CallOp, InputOp, Node, Program
from tatami.tiny.passes.setup import computed_constants, constant_values
from tatami.tiny.passes.tidy import tidy


@dataclass(frozen=True)
class _Calls:
    """All calls of some programs that are only called together."""

    targets: tuple[str, ...]
    sites: tuple[tuple[str, str], ...]
    """(caller, node) of each call."""


def hoist_constants(module: Module[Program], keeps_narrow: bool = False) -> Module[Program]:
    """`module` with the constant work of called programs in main; the same module if there is none."""
    calls = _in_order(module)
    if not calls:
        return module
    known = _constant_inputs(module, calls)
    programs = dict(module.programs)
    origins = {name: dict(found) for name, found in module.origins.items()}
    for group in reversed(calls):
        _hoist(group, programs, origins, known, keeps_narrow)
    if programs == module.programs:
        return module
    for name, program in programs.items():
        if program is not module.programs[name]:
            constants = module.constants if name == "main" else ()
            programs[name], kept = tidy(program, {n.id: (n.id,) for n in program.nodes}, constants)
            origins[name] = {new: origins.get(name, {}).get(old, ()) for new, (old,) in kept.items()}
    return Module(programs, module.constants, origins)


def _in_order(module: Module[Program]) -> list[_Calls]:
    """The groups of programs that are called together, callers before callees; programs that call themselves are left out."""
    sites: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for caller, node, op in _call_nodes(module):
        sites.setdefault(op.targets, []).append((caller, node.id))
    named = [t for targets in sites for t in dict.fromkeys(targets)]
    groups = [_Calls(t, tuple(s)) for t, s in sites.items() if all(named.count(name) == 1 for name in t)]
    done = {"main"}
    out: list[_Calls] = []
    while ready := [g for g in groups if g not in out and all(caller in done for caller, _ in g.sites)]:
        out += ready
        done |= {t for g in ready for t in g.targets}
    return out


def _call_nodes(module: Module[Program]) -> Iterator[tuple[str, Node, CallOp]]:
    for caller, program in module.programs.items():
        for node in program.nodes:
            if isinstance(node.op, CallOp) and all(t in module.programs for t in node.op.targets):
                yield caller, node, node.op


def _constant_inputs(module: Module[Program], calls: Sequence[_Calls]) -> dict[str, dict[str, bool]]:
    """The inputs of each program that are constant at every call; True if a payload is among their operands."""
    out: dict[str, dict[str, bool]] = {}
    values: dict[str, dict[str, bool]] = {}
    for group in calls:
        for name in group.targets:
            ports = module.programs[name].signature.inputs
            found = [_passed_constants(module, ports, site, values, out) for site in group.sites]
            out[name] = {t: any(f[t] for f in found) for t in found[0] if all(t in f for f in found)}
    return out


def _passed_constants(
    module: Module[Program],
    ports: Sequence[Input],
    site: tuple[str, str],
    values: dict[str, dict[str, bool]],
    known: Mapping[str, Mapping[str, bool]],
) -> dict[str, bool]:
    caller, ident = site
    program = module.programs[caller]
    if caller not in values:
        values[caller] = constant_values(module.constants, program, None if caller == "main" else known.get(caller, {}))
    nodes = {n.id: n for n in program.nodes}
    constant = values[caller]
    pairs = list(zip(ports, _operands(nodes[ident]), strict=True))[_changing(nodes[ident]) :]
    same = [(p, s) for p, s in pairs if s in constant and (p.dtype, p.shape) == (nodes[s].dtype, nodes[s].shape)]
    return {p.tensor: constant[s] for p, s in same}


def _operands(node: Node) -> tuple[str, ...]:
    """The values passed to the callee's inputs."""
    assert isinstance(node.op, CallOp)
    return node.src[1:] if node.op.kind == "if" else node.src


def _changing(node: Node) -> int:
    """Number of leading operands that vary between iterations: those that a loop counts and carries."""
    assert isinstance(node.op, CallOp)
    return 2 + _carried(node) if node.op.kind == "loop" else 0


def _carried(node: Node) -> int:
    assert isinstance(node.op, CallOp)
    count = node.op.attrs.get("carried", len(node.src) - 2)
    assert isinstance(count, int)
    return count


def _hoist(
    group: _Calls,
    programs: dict[str, Program],
    origins: dict[str, dict[str, tuple[str, ...]]],
    known: Mapping[str, Mapping[str, bool]],
    keeps_narrow: bool,
) -> None:
    """Turn the constants that the group's programs compute into arguments of all of them."""
    targets = tuple(dict.fromkeys(group.targets))
    taken = {p.tensor for t in targets for p in programs[t].signature.inputs}
    added: list[Input] = []
    works: dict[str, tuple[str, ...]] = {}
    names: dict[str, dict[str, str]] = {}
    for target in targets:
        program = programs[target]
        constant = constant_values({}, program, known[target])
        works[target] = tuple(computed_constants(program, constant, keeps_narrow))
        nodes = {n.id: n for n in program.nodes}
        names[target] = {}
        for ident in works[target]:
            name = next(n for n in (f"const{k}" for k in range(len(taken) + 1)) if n not in taken)
            taken.add(name)
            names[target][ident] = name
            added.append(Input(name, nodes[ident].dtype, nodes[ident].shape, role="const"))
    if not added:
        return
    before = {t: programs[t] for t in targets}
    for target in targets:
        programs[target] = _with_arguments(programs[target], added, names[target])
    for caller, ident in group.sites:
        programs[caller], made = _with_work(programs[caller], ident, [(before[t], works[t]) for t in targets])
        line = origins.setdefault(caller, {}).get(ident, ())
        origins[caller].update(dict.fromkeys(made, line))


def _with_arguments(program: Program, added: Sequence[Input], names: Mapping[str, str]) -> Program:
    """The callee, which reads constants as inputs instead of computing them."""
    ports = (*program.signature.inputs, *added)
    nodes = tuple(Node(n.id, InputOp(names[n.id]), (), n.dtype, n.shape) if n.id in names else n for n in program.nodes)
    return Program(msgspec.structs.replace(program.signature, inputs=ports), nodes, program.outputs)


def _with_work(program: Program, ident: str, works: Sequence[tuple[Program, tuple[str, ...]]]) -> tuple[Program, list[str]]:
    """(the caller with its callees' constant work before the call, ids of the new nodes)."""
    at = next(k for k, n in enumerate(program.nodes) if n.id == ident)
    call = program.nodes[at]
    assert isinstance(call.op, CallOp)
    made: list[Node] = []
    passed: list[str] = []
    for k, (callee, wanted) in enumerate(works):
        given = dict(zip((p.tensor for p in callee.signature.inputs), _operands(call), strict=True))
        own: dict[str, str] = {}
        needed = _below(callee, wanted)
        for node in callee.nodes:
            if node.id not in needed:
                continue
            if isinstance(node.op, InputOp):
                own[node.id] = given[node.op.tensor_id]
                continue
            own[node.id] = f"{ident}.{k}.{node.id}"
            made.append(msgspec.structs.replace(node, id=own[node.id], src=tuple(own[s] for s in node.src)))
        passed += [own[w] for w in wanted]
    op = call.op
    if op.kind == "loop":
        op = msgspec.structs.replace(op, attrs={**op.attrs, "carried": _carried(call)})
    call = msgspec.structs.replace(call, op=op, src=(*call.src, *passed))
    nodes = (*program.nodes[:at], *made, call, *program.nodes[at + 1 :])
    return Program(program.signature, nodes, program.outputs), [n.id for n in made]


def _below(program: Program, wanted: Sequence[str]) -> set[str]:
    found = set(wanted)
    for node in reversed(program.nodes):
        if node.id in found:
            found.update(node.src)
    return found
