"""The routines sort and topk on a GPU (`gpu/stream_ir.py` SortKernel): a block per line, or per tile of few long lines.

sort of [65536], parts of 1024:   64 blocks sort a tile each, 3 kernels merge runs of 1024, 4096, 16384, one takes
"""

from __future__ import annotations

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, maximum, product, var
from tatami.core.kernel import Binding
from tatami.gpu.ir import NO_FACE
from tatami.gpu.stream_ir import SORT_WAYS, Param, SortKernel, SortStep
from tatami.gpu.views.folded import folded_grid
from tatami.plan.ir import GpuStream, SchedulePlan
from tatami.region.ir import Region
from tatami.region.walk import routine_axis, routine_operands

THREADS = 256
"""Number of threads per block."""
TILE = 1024
"""Elements that a block sorts in shared memory, if the plan does not say."""
ENTRY_BYTES = 16
"""Bytes of an entry: a key and a position of 8 bytes each."""
LONGEST = 1 << 31
"""Longest line, in elements, that is sorted when the length is not known; merges of runs beyond the line's end return at
once."""
DOWN = {"sort": ("descending", False), "topk": ("largest", True)}
"""Routine -> the attribute that reverses its order, and the attribute's default."""


def lower_sort(region: Region, plan: SchedulePlan) -> list[tuple[SortKernel, Binding]]:
    """Kernels in order of launch with their bindings, without the kernels' names."""
    assert region.opaque is not None
    word, default = DOWN[region.opaque.routine]
    down = bool(region.opaque.attrs.get(word, default))
    source = next(p for p in region.inputs if p.name == routine_operands(region)[0])
    values, positions = region.outputs
    shape, kept = source.memref.shape, values.memref.shape
    rank = len(shape)
    axis = routine_axis(region)
    outer, inner = product(shape[:axis]), product(shape[axis + 1 :])
    length, keep = (shape[axis], kept[axis]) if rank else (ONE, ONE)
    symbols = sorted({s for e in (outer, inner, length, keep) for s in free_vars(e)})
    own: dict[str, Expr] = {s: var(f"s{i}") for i, s in enumerate(symbols)}
    parts = plan.parts if isinstance(plan, GpuStream) else ()
    tile = parts[0] if parts else TILE
    known = length.as_int()
    entries = ONE if not parts and known is not None and known <= tile else maximum(ONE, outer * inner * length)
    scratch = tuple((f"entries{i}", entries * ENTRY_BYTES) for i in range(2))
    dtype = source.memref.dtype
    of_buffer = {source.name: dtype, values.name: dtype, positions.name: DType.i64}

    def kernel(
        step: SortStep, buffers: tuple[str, ...], written: tuple[str, ...], grid: Expr, *more: Expr
    ) -> tuple[SortKernel, Binding]:
        params = tuple(Param(f"p{i}", of_buffer.get(b, DType.u64), b in written) for i, b in enumerate(buffers))
        shared = 2 * tile * ENTRY_BYTES if step in ("line", "tile") else 0
        line = [substitute(e, own) for e in (outer, length, inner, keep)]
        made = SortKernel(NO_FACE, params, line[0], line[1], line[2], line[3], down, tile, THREADS, shared, step)
        binding = Binding(
            region.name,
            "",
            buffers,
            (*(var(s) for s in symbols), *more),
            scratch=scratch if step in ("line", "tile") else (),
            grid=folded_grid(grid) if step in ("line", "tile") else (grid, ONE, ONE),
            block=(THREADS,),
            shared_bytes=shared,
        )
        return made, binding

    results, both = (values.name, positions.name), ("entries0", "entries1")
    if not parts:
        return [kernel("line", (source.name, *results, *both), (*results, *both), outer * inner)]
    out = [kernel("tile", (source.name, both[0]), both, outer * inner * ceildiv(length, tile))]
    width, turn = tile, 0
    while width < (LONGEST if known is None else known):
        out.append(
            kernel(
                "merge", (both[turn], both[1 - turn]), (both[1 - turn],), ceildiv(outer * inner * length, THREADS), expr(width)
            )
        )
        width, turn = width * SORT_WAYS, 1 - turn
    out.append(kernel("take", (source.name, *results, *both), results, ceildiv(outer * inner * keep, THREADS)))
    return out
