"""Reductions over blocks of rows or columns of a tile, and the wait for the kernel before."""

from __future__ import annotations

from tatami.core.algebra.visit import step_of
from tatami.core.diagnostic import Diagnostic
from tatami.core.expr import ZERO
from tatami.core.kernel import is_divisible
from tatami.gpu.ir import Kernel
from tatami.gpu.proof.faults import hazardous
from tatami.gpu.proof.program import all_statements
from tatami.gpu.statement_ir import GridDependency, MBarrierInit, StBlocks, StGlobalVec, StMatrix, SyncThreads


def check_dependency(kernel: Kernel) -> list[Diagnostic]:
    """Faults of GridDependency: a kernel that may begin early waits once, with all its threads, before everything but the
    initialisation of barriers."""
    first = next((s for s in kernel.body if not isinstance(s, MBarrierInit | SyncThreads)), None)
    found = sum(isinstance(s, GridDependency) for s in all_statements(kernel.body))
    if found > 1 or (found and first != GridDependency()):
        why = "threads may touch memory that the kernel before still writes"
        return [hazardous(kernel, "GridDependency", why)]
    return []


def check_blocks(kernel: Kernel) -> list[Diagnostic]:
    """Faults of reductions over blocks: each block is whole in one warp, the first block of a tile begins where the tile does,
    no other CTA has a part of its sum over k, and each of its values is stored once, at an address of its own."""
    out: list[Diagnostic] = []
    statements = all_statements(kernel.body)
    stored = [s.ptr for s in statements if isinstance(s, StGlobalVec | StMatrix)]
    stored += [f.ptr for s in statements if isinstance(s, StBlocks) for f in s.folds]
    for s in statements:
        if not isinstance(s, StBlocks):
            continue
        where = "StBlocks " + ", ".join(f.ptr for f in s.folds)
        if not kernel.has_roles or kernel.template != "mma" or kernel.split > 1 or kernel.groups is not None:
            out.append(hazardous(kernel, where, "only whole sums of the warp roles' accumulators lie in blocks"))
        if any(kernel.tile[1 if f.along == "n" else 0] % 64 for f in s.folds):
            out.append(hazardous(kernel, where, f"a block of 64 is cut by tiles of {kernel.tile[0]}x{kernel.tile[1]}"))
        for f in s.folds:
            step = {v: step_of(f.index, v) for v in ("m", "n", "t")}
            kept, count = ("m", "n") if f.along == "n" else ("n", "m")
            if step[count] != ZERO or any(step[v] in (None, ZERO) for v in (kept, "t")):
                out.append(
                    hazardous(kernel, where, f"its address has to step with {kept} and t, and not with {count}: {f.index}")
                )
            before = [g for g in s.folds[: s.folds.index(f)] if g.ptr == f.top]
            if f.top and not any((g.fn, g.along, g.regs, f.fn, f.along) == ("max", "n", f.regs, "sum", "n") for g in before):
                out.append(hazardous(kernel, where, f"{f.top} is not a maximum of the rows whose exponentials {f.ptr} sums"))
            if stored.count(f.ptr) > 1:
                out.append(hazardous(kernel, where, f"{f.ptr} is stored to more than once"))
        outside = {r for r, size, tile in zip("mn", (kernel.m, kernel.n), kernel.tile) if not is_divisible(size, tile)}
        if outside & set(kernel.tail) - set(s.pred):
            out.append(
                hazardous(kernel, where, "rows or columns outside the result count, or are stored: its predicate lacks them")
            )
    return out
