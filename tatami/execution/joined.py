"""Operands of concatenations written to their place in the result (spec 3 §12).

    a = k0(x)                                 a = k0(x)            a: slice of y at element 0
    b = k1(x)                                 b = k1(x)            b: slice of y at element 131072
    y = r2(a, b)      concatenation   ->      (nothing)
    z = k3(y)                                 z = k3(y)

A buffer may be a slice once. Two concatenations that share operands have to agree on them: for ``y = a|b`` and ``z = a|b|c``,
y itself becomes a slice of z. Operands that cannot be slices (an input, a constant, a result of the program, a buffer in
another's place) are copied there, if they are the smaller part; else the Region stays a kernel.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.order import is_at_most
from tatami.core.expr import ZERO, Expr, exact_div, expr
from tatami.execution.ir import BufferInfo, Choose, Copy, ExecutionPlan, Instruction, Launch
from tatami.execution.waves import placed
from tatami.region.ir import Program, Region
from tatami.region.views.concatenation import Part, concatenated


def join(plan: ExecutionPlan, program: Program) -> ExecutionPlan:
    """The plan without the kernels that its slices make unnecessary."""
    parts = {r.name: p for r in program.body if isinstance(r, Region) and (p := concatenated(r)) is not None}
    if not parts:
        return plan
    joining = _Joining(plan)
    instructions: list[Instruction] = []
    for ins in plan.instructions:
        copies = joining.copies(ins, parts[ins.debug_name]) if ins.debug_name in parts else None
        instructions += (ins,) if copies is None else copies
    return msgspec.structs.replace(plan, instructions=tuple(instructions), buffers=tuple(joining.buffers.values()))


class _Joining:
    def __init__(self, plan: ExecutionPlan) -> None:
        self.buffers = {b.id: b for b in plan.buffers}
        kernels = [ins for ins in plan.instructions if isinstance(ins.op, Launch | Choose)]
        self.made = {name for ins in kernels for name in ins.outputs}

    def copies(self, ins: Instruction, parts: tuple[Part, ...]) -> list[Instruction] | None:
        """The copies that replace a concatenation whose other operands are slices of its result; None if it stays as it is."""
        (name,) = ins.outputs
        whole = self.buffers[name]
        if whole.kind != "arena" or whole.layout is not None:
            return None
        slices: dict[str, Expr] = {}
        copied: list[Part] = []
        for root, at, own in self._groups(parts):
            if at is None or not self._may_lie(root, at, own, whole):
                copied += own
            else:
                slices[root] = at
        sizes = [self.buffers[p.name].elements for p in copied]
        if not is_at_most(sum(sizes, ZERO) * 2, whole.elements):
            return None
        for root, at in slices.items():
            self.buffers[root] = msgspec.structs.replace(self.buffers[root], parent=name, offset=at)
        return [self._copy(p, whole, k) for k, p in enumerate(copied)]

    def _groups(self, parts: tuple[Part, ...]) -> list[tuple[str, Expr | None, tuple[Part, ...]]]:
        """(whole buffer, its start in the result or None if the parts disagree, its parts) for each buffer that parts lie
        in."""
        found: dict[str, list[tuple[Part, Expr]]] = {}
        for part in parts:
            root, within = placed(self.buffers, part.name)
            found.setdefault(root, []).append((part, part.offset - within))
        out: list[tuple[str, Expr | None, tuple[Part, ...]]] = []
        for root, own in found.items():
            starts = {start for _, start in own}
            out.append((root, starts.pop() if len(starts) == 1 else None, tuple(p for p, _ in own)))
        return out

    def _may_lie(self, root: str, at: Expr, own: tuple[Part, ...], whole: BufferInfo) -> bool:
        """True if buffer `root` can be the slice of `whole` that all of its parts make up."""
        b = self.buffers[root]
        held = sum((self.buffers[p.name].elements for p in own), ZERO)
        is_aligned = exact_div(at * b.dtype.itemsize, expr(b.alignment)) is not None
        is_plain = b.kind == "arena" and b.dtype == whole.dtype and b.layout is None
        return is_plain and root in self.made and held == b.elements and is_aligned

    def _copy(self, part: Part, whole: BufferInfo, number: int) -> Instruction:
        b = self.buffers[part.name]
        name = f"{whole.id}.{number}"
        self.buffers[name] = BufferInfo(
            name, b.dtype, b.shape, b.elements, "arena", b.layout, parent=whole.id, offset=part.offset
        )
        return Instruction(Copy(), (part.name,), (name,), name)
