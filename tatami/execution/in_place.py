"""Results that take the place of an operand in the arena (spec 3 §12).

    n19  use 0..2                            n19  use 0..2
    n42  use 2..3                   ->       n42  use 2..3  in place of n19
    n42 = k(n30, n5, n19, n42)               k reads n19 only where it writes n42 (KernelFace.in_place)

The kernel states which of its parameters may share memory; here it is tested whether the operand's value is unused
afterwards. Lines that were just read are written, so no others have to be loaded from memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.kernel import KernelFace
from tatami.execution.ir import BufferInfo, Choose, ExecutionPlan, Instruction, Launch, Ptr


def take_places(plan: ExecutionPlan, faces: Mapping[str, KernelFace]) -> ExecutionPlan:
    """The ordered plan with `in_place_of` wherever a kernel allows it and the operand dies there."""
    info = {b.id: b for b in plan.buffers}
    sliced = {b.parent for b in plan.buffers if b.parent}
    over: dict[str, str] = {}
    for i, ins in enumerate(plan.instructions):
        for old, new in _allowed(ins, faces):
            a, b = info[old], info[new]
            free = new not in over and old not in over.values() and not {old, new} & sliced
            if free and fits(a, b) and b.first_use == i and is_last_reader(plan, i, old):
                over[new] = old
    buffers = tuple(msgspec.structs.replace(b, in_place_of=over.get(b.id, "")) for b in plan.buffers)
    return msgspec.structs.replace(plan, buffers=buffers)


def fits(old: BufferInfo, new: BufferInfo) -> bool:
    """True if both are whole buffers of the arena, with the same number of bytes."""
    whole = all(b.kind == "arena" and not b.parent for b in (old, new))
    return whole and old.elements == new.elements and old.dtype.itemsize == new.dtype.itemsize


def is_last_reader(plan: ExecutionPlan, i: int, name: str) -> bool:
    """True if instruction `i` reads buffer `name`, and all others that use it are in earlier waves."""
    wave = plan.instructions[i].wave
    others = (x for k, x in enumerate(plan.instructions) if k != i and name in (*x.inputs, *x.outputs))
    return name in plan.instructions[i].inputs and all(x.wave < wave for x in others)


def _allowed(ins: Instruction, faces: Mapping[str, KernelFace]) -> list[tuple[str, str]]:
    """Pairs (read, written) of buffers that may be one memory in every case of the instruction."""
    match ins.op:
        case Launch() as launch:
            return _of_kernels((launch,), faces)
        case Choose(cases=cases):
            first, *rest = (_of_kernels(c.launches, faces) for c in cases)
            return [pair for pair in first if all(pair in other for other in rest)]
        case _:
            return []


def _of_kernels(launches: Sequence[Launch], faces: Mapping[str, KernelFace]) -> list[tuple[str, str]]:
    """Pairs (read, written) of the only kernel that touches the written buffer, if no later kernel touches the read one."""
    pointers = [[a.buffer for a in k.args if isinstance(a, Ptr)] for k in launches]
    out: list[tuple[str, str]] = []
    for k, launch in enumerate(launches):
        for i, o in faces[launch.kernel].in_place if launch.kernel in faces else ():
            old, new = pointers[k][i], pointers[k][o]
            alone = [name for p in pointers for name in p].count(new) == 1 and pointers[k].count(old) == 1
            if alone and not any(old in p for p in pointers[k + 1 :]):
                out.append((old, new))
    return out
