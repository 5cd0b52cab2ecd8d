"""Number of elements of a kernel's buffers, in its own sizes, to check its accesses against."""

from __future__ import annotations

from tatami.core.expr import Expr
from tatami.core.layout import size_elements
from tatami.loop import ir
from tatami.plan.views.own_names import rename
from tatami.region.ir import Program, Region
from tatami.region.views.fp8 import spelled_out


def extents_of_kernels(program: Program, loops: ir.Program) -> dict[str, tuple[Expr, ...] | None]:
    """Per kernel, the number of elements of each parameter over s0, s1, …; None if Regions of other shapes share it."""
    regions = {step.name: step for step in program.body if isinstance(step, Region)}
    found: dict[str, tuple[Expr, ...] | None] = {}
    for b in loops.bindings:
        own = extents(regions[b.region])
        found[b.kernel] = own if found.get(b.kernel, own) == own else None
    return found


def extents(region: Region) -> tuple[Expr, ...]:
    """Number of elements of a Region's inputs, then of its outputs."""
    renamed, _ = rename(spelled_out(region))
    memrefs = [*(p.memref for p in renamed.inputs), *(t.memref for t in renamed.outputs)]
    return tuple(size_elements(m.layout, m.shape) for m in memrefs)
