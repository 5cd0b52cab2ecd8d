"""The routines sort and topk on a GPU: a block per line (`gpu/stream_ir.py` SortKernel)."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, free_vars, maximum, product, substitute, var
from tatami.core.kernel import Binding
from tatami.gpu.ir import NO_FACE
from tatami.gpu.stream_ir import Param, SortKernel
from tatami.region.ir import Region
from tatami.region.walk import routine_operands

THREADS = 256
TILE = 1024
ENTRY_BYTES = 16
DOWN = {"sort": ("descending", False), "topk": ("largest", True)}
"""Routine -> the attribute that turns its order around, and its default."""


def lower_sort(region: Region) -> tuple[SortKernel, Binding]:
    """The kernel of the Region and its binding, without the kernel's name."""
    assert region.opaque is not None
    word, default = DOWN[region.opaque.routine]
    down = bool(region.opaque.attrs.get(word, default))
    source = next(p for p in region.inputs if p.name == routine_operands(region)[0])
    values, positions = region.outputs
    shape, kept = source.memref.shape, values.memref.shape
    rank = len(shape)
    given = region.opaque.attrs.get("axis", -1)
    axis = int(given) % rank if rank and isinstance(given, int | float) else 0
    outer, inner = product(shape[:axis]), product(shape[axis + 1 :])
    length, keep = (shape[axis], kept[axis]) if rank else (ONE, ONE)
    symbols = sorted({s for e in (outer, inner, length, keep) for s in free_vars(e)})
    own: dict[str, Expr] = {s: var(f"s{i}") for i, s in enumerate(symbols)}
    known = length.as_int()
    in_shared = known is not None and known <= TILE
    entries = ONE if in_shared else maximum(ONE, outer * inner * length)
    dtype = source.memref.dtype
    kernel = SortKernel(
        NO_FACE,
        (
            Param("p0", dtype),
            Param("p1", dtype, True),
            Param("p2", DType.i64, True),
            Param("p3", DType.u64, True),
            Param("p4", DType.u64, True),
        ),
        substitute(outer, own),
        substitute(length, own),
        substitute(inner, own),
        substitute(keep, own),
        down,
        TILE,
        THREADS,
        2 * TILE * ENTRY_BYTES,
    )
    binding = Binding(
        region.name,
        "",
        (source.name, values.name, positions.name, "entries0", "entries1"),
        tuple(var(s) for s in symbols),
        scratch=tuple((f"entries{i}", entries * ENTRY_BYTES) for i in range(2)),
        grid=(outer * inner, ONE, ONE),
        block=(THREADS,),
        shared_bytes=kernel.shared_bytes,
    )
    return kernel, binding
