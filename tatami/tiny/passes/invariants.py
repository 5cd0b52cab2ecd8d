"""Loop states that never change become invariants: carried values that the body returns unchanged.

    loop (trip, go, h, W): body h, W -> tanh(h W), W      becomes     loop (trip, go, h | W): body h, W -> tanh(h W)

Exporters carry everything that a step reads, weights included. An invariant is not copied in each iteration, and `setup` can
pack it if it is constant. The final value of such a state is its initial value, also if the loop never runs.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tatami.core.module import Module
from tatami.tiny.ir import CallOp, InputOp, Node, Program, ResultOp
from tatami.tiny.passes.tidy import tidy

LEADING = 2
"""Number of a loop's operands before its carried values: the trip count and the condition."""


def read_unchanged_states(module: Module[Program]) -> Module[Program]:
    """`module` with the carried values that no iteration changes among the invariants; the same module if there are none."""
    moved = {name: places for name in _bodies(module) if (places := _unchanged(module, name))}
    if not moved:
        return module
    programs: dict[str, Program] = {}
    origins = dict(module.origins)
    for name, program in module.programs.items():
        calls = any(isinstance(n.op, CallOp) and n.op.kind == "loop" and n.op.targets[0] in moved for n in program.nodes)
        if calls:
            program = _with_shorter_loops(program, moved)
        if name in moved:
            program = _shorter_body(program, moved[name])
        if calls or name in moved:
            before = module.origins.get(name, {})
            constants = module.constants if name == "main" else ()
            program, kept = tidy(program, {n.id: (n.id,) for n in program.nodes}, constants)
            origins[name] = {new: before.get(old, ()) for new, (old,) in kept.items()}
        programs[name] = program
    return Module(programs, module.constants, origins)


def _bodies(module: Module[Program]) -> list[str]:
    """Programs that are called only as the body of loops."""
    kinds: dict[str, set[str]] = {}
    for program in module.programs.values():
        for node in program.nodes:
            if isinstance(node.op, CallOp):
                for target in node.op.targets:
                    kinds.setdefault(target, set()).add(node.op.kind)
    return [name for name, found in kinds.items() if found == {"loop"} and name in module.programs]


def _carried(node: Node) -> int:
    assert isinstance(node.op, CallOp)
    count = node.op.attrs.get("carried", len(node.src) - LEADING)
    assert isinstance(count, int)
    return count


def _unchanged(module: Module[Program], body: str) -> tuple[int, ...]:
    """Positions of carried values that the body returns unchanged, in all loops; at least one result of each loop stays."""
    program = module.programs[body]
    inputs = {n.op.tensor_id: n.id for n in program.nodes if isinstance(n.op, InputOp)}
    ids = [inputs.get(p.tensor) for p in program.signature.inputs]
    loops = [
        ({n.id: (n.dtype, n.shape) for n in caller.nodes}, node)
        for caller in module.programs.values()
        for node in caller.nodes
        if isinstance(node.op, CallOp) and node.op.kind == "loop" and node.op.targets[0] == body
    ]
    places: set[int] = set()
    for k, (types, node) in enumerate(loops):
        assert isinstance(node.op, CallOp)
        results = node.op.results
        found = {
            j
            for j in range(_carried(node))
            if program.outputs[1 + j] == ids[LEADING + j]
            and types[node.src[LEADING + j]] == (results[j].dtype, results[j].shape)
        }
        places = found if k == 0 else places & found
        if len(places) == len(results):
            return ()
    return tuple(sorted(places))


def _shorter_body(program: Program, places: Collection[int]) -> Program:
    """The body with its unchanged states behind its invariants."""
    signature = program.signature
    at = [LEADING + j for j in places]
    inputs = [p for i, p in enumerate(signature.inputs) if i not in at] + [signature.inputs[i] for i in at]
    kept = [i for i in range(len(signature.outputs)) if i - 1 not in places]
    signature = msgspec.structs.replace(signature, inputs=tuple(inputs), outputs=tuple(signature.outputs[i] for i in kept))
    return Program(signature, program.nodes, tuple(program.outputs[i] for i in kept))


def _with_shorter_loops(program: Program, moved: dict[str, tuple[int, ...]]) -> Program:
    """The caller: its loops read those states as invariants, and readers of their results read the initial values."""
    instead: dict[str, str] = {}
    loops: dict[str, tuple[Node, tuple[int, ...]]] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        src = tuple(instead.get(s, s) for s in node.src)
        op = node.op
        if isinstance(op, CallOp) and op.kind == "loop" and op.targets[0] in moved:
            places = moved[op.targets[0]]
            at = [LEADING + j for j in places]
            src = (*(s for i, s in enumerate(src) if i not in at), *(src[i] for i in at))
            loops[node.id] = (msgspec.structs.replace(node, src=tuple(instead.get(s, s) for s in node.src)), places)
            results = tuple(r for j, r in enumerate(op.results) if j not in places)
            op = msgspec.structs.replace(op, results=results, attrs={**op.attrs, "carried": _carried(node) - len(places)})
            node = msgspec.structs.replace(node, op=op, dtype=results[0].dtype, shape=results[0].shape)
        elif isinstance(op, ResultOp) and node.src[0] in loops:
            loop, places = loops[node.src[0]]
            if op.index in places:
                instead[node.id] = loop.src[LEADING + op.index]
                continue
            op = ResultOp(op.index - sum(j < op.index for j in places))
        nodes.append(msgspec.structs.replace(node, op=op, src=src))
    return Program(program.signature, tuple(nodes), tuple(instead.get(o, o) for o in program.outputs))
