"""The rules of an execution plan (spec 4, D2.14, E-09). Returns faults; never raises.

Every buffer is known and has one writer per disjoint slice; nothing is read before it is written; inputs are written
only where the signature updates them, after their last read; waves rise along the order and across each dependence;
live ranges in the arena do not overlap, unless a buffer takes the place of one that dies; sizes name known symbols;
calls fit their programs.
"""

from __future__ import annotations

import itertools
import re

import msgspec

from tatami.core.algebra.order import is_at_most, is_nonneg
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Expr, shape_text
from tatami.core.kernel import THREADS
from tatami.core.layout import ROW_MAJOR, size_elements
from tatami.core.module import Module
from tatami.core.signature import Input, Output, repeated_input, symbols
from tatami.execution.arena import aligned
from tatami.execution.beside import may_run_beside
from tatami.execution.extents import check_extents, check_readers
from tatami.execution.in_place import fits, is_last_reader
from tatami.execution.ir import UNORDERED, BufferInfo, ExecutionPlan, launches, pointers
from tatami.execution.verify_calls import check_calls, check_depth, check_operations, fault, place_of
from tatami.execution.waves import dependences, operation_sizes, operation_symbols, placed, roots, with_uses


def verify(module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """All faults of all programs; empty if the module may run."""
    out: list[Diagnostic] = []
    for name, plan in module.programs.items():
        found = _unknown(name, plan) or _parents(name, plan)
        if not found:
            found += _boundary(name, plan)
            found += _writers(name, plan)
            found += _definitions(name, plan)
            found += _order(name, plan, module)
            found += _places(name, plan)
            found += _uses(name, plan)
            found += _overlap(name, plan)
            found += _sizes(name, plan)
            found += check_calls(name, plan, module)
            found += check_operations(name, plan, module)
            found += check_extents(name, plan)
        out += found
    out += [] if out else check_readers(module)
    return out + _constants(module) + _held(module) + check_depth(module)


def _unknown(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    known: set[str] = set()
    for b in plan.buffers:
        if b.id in known:
            out.append(diagnostic("DuplicateId", f"{program}: {b.id}", "two buffers have this id", "give one another id"))
        known.add(b.id)
    for b in plan.buffers:
        if b.parent and b.parent not in known:
            out.append(
                diagnostic("UnknownValue", f"{program}: {b.id}", f"its parent {b.parent} is not a buffer", "add the parent")
            )
    for id in (*plan.input_buffers, *plan.output_buffers):
        if id not in known:
            out.append(
                diagnostic("UnknownValue", program, f"{id} is listed as input or output but is not a buffer", "add the buffer")
            )
    for i, ins in enumerate(plan.instructions):
        names = (*(n for n in ins.inputs if n), *ins.outputs)
        for name in dict.fromkeys(names):
            if name not in known:
                out.append(
                    diagnostic("UnknownValue", place_of(program, ins, i), f"{name} is not a buffer", "add it to `buffers`")
                )
        for name in pointers(ins.op):
            if name in known and name not in names:
                out.append(
                    fault(
                        place_of(program, ins, i),
                        f"the kernel gets {name}, which is neither an input nor an output",
                        "list it in the instruction",
                    )
                )
            elif name not in known:
                out.append(
                    diagnostic("UnknownValue", place_of(program, ins, i), f"{name} is not a buffer", "add it to `buffers`")
                )
        for kernel in (launch.kernel for launch in launches(ins.op)):
            if not _SYMBOL.fullmatch(kernel):
                out.append(
                    fault(place_of(program, ins, i), f"{kernel[:40]!r} is not a name of a kernel", "use letters, digits and _")
                )
    return out


_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
"""A name of a kernel that may stand in generated code."""


def _boundary(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    info = {b.id: b for b in plan.buffers}
    boundary: tuple[tuple[str, tuple[str, ...], tuple[Input | Output, ...]], ...] = (
        ("input", plan.input_buffers, plan.signature.inputs),
        ("output", plan.output_buffers, plan.signature.outputs),
    )
    for what, ids, ports in boundary:
        if len(ids) != len(ports):
            out.append(
                fault(
                    program,
                    f"{len(ids)} {what} buffers for {len(ports)} {what}s",
                    f"give one buffer per {what} of the signature",
                )
            )
            continue
        for id, port in zip(ids, ports):
            b = info[id]
            if b.dtype != port.dtype or b.shape != port.shape:
                out.append(
                    diagnostic(
                        "InputMismatch",
                        f"{program}: {id}",
                        f"the buffer is {b.dtype}{shape_text(b.shape)}, the signature says {port.dtype}{shape_text(port.shape)}",
                        "give both the same dtype and shape",
                    )
                )
            updates = getattr(port, "updates", None) is not None
            wanted = ("input", "constant") if what == "input" or updates else ("output",)
            if b.kind not in wanted:
                out.append(fault(f"{program}: {id}", f"the {what} lies in a buffer of kind {b.kind}", f"use kind {wanted[0]}"))
    if twice := repeated_input(plan.signature):
        out.append(diagnostic("DuplicateId", f"{program}: {twice}", "two inputs have this name", "rename one of them"))
    if len(set(plan.input_buffers)) < len(plan.input_buffers):
        out.append(fault(program, "one buffer holds two inputs", "give each input its own buffer"))
    plain = [b for b in plan.output_buffers if info[b].kind == "output"]
    if len(set(plain)) < len(plain):
        out.append(fault(program, "one buffer holds two outputs", "copy the value for the second"))
    return out


def _constants(module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of constants that a program reads and that neither the module has nor `setup` makes."""
    setup = module.programs.get("setup")
    known = {*module.constants, *(p.tensor for p in (setup.signature.outputs if setup is not None else ()))}
    out: list[Diagnostic] = []
    for name, plan in module.programs.items():
        kinds = {b.id: b.kind for b in plan.buffers}
        for id, port in zip(plan.input_buffers, plan.signature.inputs):
            if kinds.get(id) == "constant" and port.tensor not in known:
                why = f"the constant {port.tensor!r} is not in the document"
                out.append(diagnostic("UnknownValue", f"{name}: {id}", why, "give it among `constants`, or kind input"))
    return out


def _held(module: Module[ExecutionPlan]) -> list[Diagnostic]:
    """Faults of inputs of `setup` that are neither constants nor held inputs of `main` with the same name."""
    setup = module.programs.get("setup")
    if setup is None:
        return []
    kinds = {b.id: b.kind for b in setup.buffers}
    passed = {p.tensor for p in module.main.signature.inputs if p.storage == "held" and p.mutability == "immutable"}
    return [
        fault(
            f"setup: {id}",
            f"an input of setup lies in a buffer of kind {kinds.get(id)}",
            'use kind constant, or give main an immutable input of that name with the storage "held"',
        )
        for id, port in zip(setup.input_buffers, setup.signature.inputs)
        if kinds.get(id) != "constant" and port.tensor not in passed
    ]


def _parents(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    info = {b.id: b for b in plan.buffers}
    for b in plan.buffers:
        if b.elements != size_elements(b.layout or ROW_MAJOR, b.shape):
            holds = size_elements(b.layout or ROW_MAJOR, b.shape)
            out.append(fault(f"{program}: {b.id}", f"{b.elements} elements for a shape of {holds}", "give both the same size"))
        seen = {b.id}
        name = b.parent
        while name and name not in seen:
            seen.add(name)
            name = info[name].parent
        if name:
            out.append(diagnostic("CyclicGraph", f"{program}: {b.id}", "a buffer is a slice of itself", "name another parent"))
        elif b.parent:
            above = info[b.parent]
            start = b.offset or ZERO
            end = start + b.elements
            if b.dtype != above.dtype or b.kind != above.kind:
                out.append(
                    fault(f"{program}: {b.id}", f"a slice and its parent {above.id} differ in dtype or kind", "make them equal")
                )
            elif not is_nonneg(start) or not is_at_most(end, above.elements):
                out.append(
                    fault(
                        f"{program}: {b.id}",
                        f"elements {start}..{end} may lie outside {above.id} ({above.elements})",
                        "correct the offset",
                    )
                )
    return out


def _writers(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    """Faults of buffers with several writers; slices written by different instructions have to be provably disjoint."""
    out: list[Diagnostic] = []
    info = {b.id: b for b in plan.buffers}
    root = roots(plan)
    updated = {
        plan.input_buffers[i]
        for i, port in enumerate(plan.signature.inputs)
        if port.mutability == "mutable" and any(o.updates == port.tensor for o in plan.signature.outputs)
        if i < len(plan.input_buffers)
    }
    writer: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    for i, ins in enumerate(plan.instructions):
        for name in ins.outputs:
            if name in writer:
                other = place_of(program, plan.instructions[writer[name]], writer[name])
                why = f"{name} already has a writer, {other.partition(': ')[2]}"
                out.append(fault(place_of(program, ins, i), why, "give each its own buffer"))
                continue
            writer[name] = i
            groups.setdefault(root[name], []).append(name)
            kind = info[root[name]].kind
            if kind == "constant" or (kind == "input" and root[name] not in updated):
                what = "a constant" if kind == "constant" else "an input that nothing updates"
                out.append(
                    fault(place_of(program, ins, i), f"it writes {name}, {what}", "write a buffer of kind arena, then copy")
                )
    for base, names in groups.items():
        out += _disjoint(program, info, base, names)
    return out


def _disjoint(program: str, info: dict[str, BufferInfo], base: str, names: list[str]) -> list[Diagnostic]:
    ranges: list[tuple[str, Expr, Expr]] = []
    for name in names:
        _, start = placed(info, name)
        ranges.append((name, start, start + info[name].elements))
    out: list[Diagnostic] = []
    known = [(low, high, r) for r in ranges if (low := r[1].as_int()) is not None and (high := r[2].as_int()) is not None]
    if len(known) == len(ranges):
        pairs = list(itertools.pairwise(r for _, _, r in sorted(known, key=lambda k: k[:2])))
    else:
        pairs = [(a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :]]
    for (a, low_a, high_a), (b, low_b, high_b) in pairs:
        if not is_at_most(high_a, low_b) and not is_at_most(high_b, low_a):
            why = f"{a} and {b} may share elements of {base}"
            out.append(fault(f"{program}: {base}", why, "give the slices offsets that are provably apart, or separate buffers"))
    return out


def _definitions(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    info = {b.id: b for b in plan.buffers}
    before = dependences(plan)
    held: dict[str, Expr] = {}
    root = roots(plan)
    for name in dict.fromkeys(n for ins in plan.instructions for n in ins.outputs):
        count, above = info[name].elements, name
        while above:
            held[above] = held.get(above, ZERO) + count
            above = info[above].parent
    for i, ins in enumerate(plan.instructions):
        for name in dict.fromkeys(n for n in ins.inputs if n):
            if name in ins.outputs:
                out.append(fault(place_of(program, ins, i), f"it reads and writes {name}", "write another buffer"))
            b = info[root[name]]
            if b.kind in ("arena", "output") and (why := _unwritten(info, name, held)):
                out.append(
                    diagnostic(
                        "UnknownValue",
                        place_of(program, ins, i),
                        f"it reads {name}, {why}",
                        "add the instruction that makes it",
                    )
                )
        late = [j for j in before[i] if j > i]
        if late and all(x.wave != UNORDERED for x in plan.instructions):
            names = ", ".join(plan.instructions[j].debug_name or f"instruction {j}" for j in late[:3])
            out.append(
                fault(
                    place_of(program, ins, i), f"it stands before {names}, which has to come first", "reorder the instructions"
                )
            )
    for i, name in enumerate(plan.output_buffers):
        if info[name].kind == "output" and name not in held:
            out.append(fault(f"{program}: output {i}", f"nothing writes {name}", "add the instruction that makes it"))
    return out


def _unwritten(info: dict[str, BufferInfo], name: str, held: dict[str, Expr]) -> str:
    """The part of a buffer that nothing writes, in words, or "". `held`: number of elements of each buffer that instructions
    write, also through slices, which are disjoint."""
    missing = info[name].elements - held.get(name, ZERO)
    while name and held.get(name, ZERO) != info[name].elements:
        name = info[name].parent
    return "" if name else f"but nothing writes {missing} of its elements"


def _order(program: str, plan: ExecutionPlan, module: Module[ExecutionPlan]) -> list[Diagnostic]:
    waves = [ins.wave for ins in plan.instructions]
    if any(w < UNORDERED for w in waves):
        return [fault(program, f"wave {min(waves)}", "count waves from 0")]
    if any(w == UNORDERED for w in waves):
        return []
    out: list[Diagnostic] = [
        fault(place_of(program, ins, i), "only kernels, and loops of kernels alone, run at the same time", "leave `beside` out")
        for i, ins in enumerate(plan.instructions)
        if ins.beside and not may_run_beside(ins, module.programs)
    ]
    for i in range(1, len(waves)):
        if waves[i] < waves[i - 1]:
            why = f"wave {waves[i]} stands after wave {waves[i - 1]}"
            out.append(fault(place_of(program, plan.instructions[i], i), why, "sort the instructions by wave"))
    for i, needed in enumerate(dependences(plan)):
        for j in needed:
            if j < i and waves[j] >= waves[i]:
                other = plan.instructions[j].debug_name or f"instruction {j}"
                why = f"it is in wave {waves[i]} and {other}, which it follows, in wave {waves[j]}"
                out.append(fault(place_of(program, plan.instructions[i], i), why, "put it in a later wave"))
    return out


def _places(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    """Faults of buffers that take another's place: it has to be of equal size, and read last by their writer."""
    info = {b.id: b for b in plan.buffers}
    sliced = {b.parent for b in plan.buffers if b.parent}
    taken = [b.in_place_of for b in plan.buffers if b.in_place_of]
    out: list[Diagnostic] = []
    for b in plan.buffers:
        if not b.in_place_of:
            continue
        old = info.get(b.in_place_of)
        writers = [i for i, ins in enumerate(plan.instructions) if b.id in ins.outputs]
        if old is None:
            why = f"it stands in place of {b.in_place_of}, which is not a buffer"
        elif not fits(old, b) or {old.id, b.id} & sliced:
            why = f"it and {old.id} are not two whole buffers of the arena of equal size"
        elif taken.count(old.id) > 1:
            why = f"{taken.count(old.id)} buffers stand in place of {old.id}"
        elif len(writers) != 1 or not is_last_reader(plan, writers[0], old.id):
            why = f"the instruction that writes it is not the last that uses {old.id}"
        elif old.arena_offset != b.arena_offset:
            why = f"it stands in place of {old.id}, and has another offset"
        else:
            continue
        out.append(fault(f"{program}: {b.id}", why, "leave `in_place_of` out, and the offsets to be planned"))
    return out


def _uses(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    """Faults of first and last uses, which have to be the real ones: memory is used by others before and after."""
    if any(ins.wave == UNORDERED for ins in plan.instructions):
        return []  # positions are those of the inferred order
    return [
        fault(
            f"{program}: {b.id}",
            f"it is said to be used from {b.first_use} to {b.last_use}; instructions {found.first_use} to {found.last_use} use it",
            "leave first_use and last_use out",
        )
        for b, found in zip(plan.buffers, with_uses(plan), strict=True)
        if (b.first_use, b.last_use) not in ((-1, -1), (found.first_use, found.last_use))
    ]


def _overlap(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    """Faults of arena offsets: two buffers that live in one wave must not share bytes, unless one takes the other's place."""
    heirs = {(b.in_place_of, b.id) for b in plan.buffers if b.in_place_of}
    out: list[Diagnostic] = []
    live: list[tuple[int, int, int, int, str]] = []
    if any(ins.wave == UNORDERED for ins in plan.instructions):
        placed_at = [b.id for b in plan.buffers if b.arena_offset >= 0 and b.kind == "arena"]
        why = "it has an offset, and the instructions have no order"
        return [fault(f"{program}: {id}", why, "give each instruction a wave, or leave arena_offset out") for id in placed_at]
    for b, found in zip(plan.buffers, with_uses(plan), strict=True):
        if b.alignment < 1 or b.alignment & (b.alignment - 1):
            why = f"alignment {b.alignment}"
            out.append(diagnostic("LayoutMismatch", f"{program}: {b.id}", why, "use a power of two of bytes"))
            continue
        if b.kind != "arena" or b.parent or b.arena_offset < 0:
            continue
        b = msgspec.structs.replace(b, first_use=found.first_use, last_use=found.last_use)
        if b.first_use < 0:
            continue
        count = b.elements.as_int()
        if count is None:
            out.append(
                fault(f"{program}: {b.id}", f"it has an offset but its size {b.elements} is not a number", "drop the offset")
            )
            continue
        first, last = plan.instructions[b.first_use].wave, plan.instructions[b.last_use].wave
        live.append((b.arena_offset, b.arena_offset + aligned(count * b.dtype.itemsize), first, last, b.id))
        if b.arena_offset % b.alignment:
            out.append(
                diagnostic(
                    "LayoutMismatch",
                    f"{program}: {b.id}",
                    f"offset {b.arena_offset} is not a multiple of {b.alignment}",
                    "align it",
                )
            )
    live.sort()
    for k, (_, end, first, last, id) in enumerate(live):
        for low, high, first2, last2, id2 in live[k + 1 :]:
            if low >= end:
                break
            if first2 <= last and first <= last2 and low < high and not {(id, id2), (id2, id)} & heirs:
                out.append(
                    fault(
                        f"{program}: {id2}",
                        f"it shares arena bytes {low}..{min(end, high)} with {id} while both are in use",
                        "move one of them",
                    )
                )
    return out


def _sizes(program: str, plan: ExecutionPlan) -> list[Diagnostic]:
    known = {*symbols(plan.signature), *plan.signature.defaults, THREADS}
    for ins in plan.instructions:
        known.update(operation_symbols(ins.op))
    out: list[Diagnostic] = []
    reported: set[str] = set()

    def check(where: str, size: Expr) -> None:
        for name in sorted(free_vars(size) - known - reported):
            reported.add(name)
            out.append(
                diagnostic(
                    "UnboundSymbol",
                    where,
                    f"size symbol {name!r} has no value",
                    "take it from an input's shape, a default or a host step",
                )
            )

    for b in plan.buffers:
        for size in (*b.shape, *((b.offset,) if b.offset is not None else ())):
            check(f"{program}: {b.id}", size)
    for i, ins in enumerate(plan.instructions):
        for size in operation_sizes(ins.op):
            check(place_of(program, ins, i), size)
    return out
