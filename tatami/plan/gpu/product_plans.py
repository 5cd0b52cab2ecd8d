"""The plan of a product by each MMA template, once its tile is decided: the fields that follow from the Region, and the line
that identifies the plan."""

from __future__ import annotations

from typing import assert_never

from tatami.core.kernel import is_divisible
from tatami.plan.gpu.sm90_shapes import COPYING_REGISTERS, REGISTERS, Loads, TileShape, stages_of
from tatami.plan.ir import INST_K, Async, Cache, GpuSync, LocalEdge, Sm80Mma, Sm90Mma, Vectorize
from tatami.plan.views.grid import places
from tatami.plan.views.product_limits import MmaPlan, sm80_instruction, sm90_depth, sm90_instruction
from tatami.region.ir import Region
from tatami.region.views.product import GemmView, mergeable, why_not_plain


def sm80_plan(region: Region, view: GemmView, tile: tuple[int, int, int], warp: str, stages: int, width: int) -> Sm80Mma:
    """The SM80 plan of a product. `warp`: tile of a warp; `width`: elements per access."""
    instruction = sm80_instruction(view.lhs.dtype, view.tf32)
    return Sm80Mma(
        tile=tile,
        stages=stages,
        bind={**places(view, tile[:2]), "m.i.o": "warp.y", "n.i.o": "warp.x"},
        warp_tile=warp,
        cache=cached(view),
        vectorize=Vectorize("n.i.i", width),
        predicate_tail=tails(view, tile),
        epilogue=epilogue_of(region, view),
        layout_hints={"A_swizzle": True, "B_swizzle": True, "C_stride": "row"},
        algo_choice={kind_of(view): "implicit_gemm"},
        local_edges=edges_of(region, view),
        async_=Async(True, stages, False),
        tile_order="grouped" if tile[0] * tile[1] >= 128 * 128 else "row",
        inst_shape=instruction,
        k_steps=max(1, tile[2] // INST_K.get(instruction, 16)),
        acc=view.acc,
    )


def sm90_plan(region: Region, view: GemmView, shape: TileShape, staged: bool, row: int, loads: Loads) -> Sm90Mma:
    """The SM90 plan of a product. `staged`: results may leave by TMA; `row`: bytes per row of a block of k."""
    bm, bn = shape.tile
    bk = row // view.lhs.dtype.itemsize
    stages = stages_of(shape, staged, row)
    cm, cn = shape.cluster
    streamed = shape.is_streamed and view.groups is None
    staged = staged and shape.split_k == 1
    by_threads = "cp_async" in loads.loaders
    return Sm90Mma(
        tile=(bm, bn, bk),
        stages=stages,
        bind=places(view, (bm, bn), shape.swap_ab, shape.split_k, streamed),
        cache=cached(view),
        vectorize=Vectorize("n.i.i", loads.width if by_threads else 8),
        predicate_tail=tails(view, (bn * cn, bm * cm, bk) if shape.swap_ab else (bm * cm, bn * cn, bk)),
        epilogue=epilogue_of(region, view),
        layout_hints={"A_swizzle": True, "B_swizzle": True, "C_stride": "row"},
        algo_choice={kind_of(view): "implicit_gemm"},
        local_edges=edges_of(region, view),
        async_=Async(True, stages, streamed),
        inst_shape=sm90_instruction(view.lhs.dtype, bn),
        k_steps=bk // sm90_depth(view.lhs.dtype),
        consumers=shape.consumers,
        schedule=shape.schedule,
        registers=(COPYING_REGISTERS if by_threads else REGISTERS)[shape.consumers],
        loads=loads.loaders[::-1] if shape.swap_ab else loads.loaders,
        cluster=shape.cluster,
        multicast=shape.multicast,
        persistent=streamed,
        epilogue_store="stmatrix_tma" if staged else "direct",
        epilogue_load="tma" if shape.fetched else "direct",
        split_k=shape.split_k,
        swap_ab=shape.swap_ab,
        acc=view.acc,
    )


def cached(view: GemmView) -> tuple[Cache, ...]:
    """Operands in shared memory: A and B."""
    return tuple(Cache(o.gather.tensor if o.gather is not None else o.tensor) for o in (view.lhs, view.rhs))


def tails(view: GemmView, tile: tuple[int, int, int]) -> tuple[str, ...]:
    """Axes whose size is not known to be a multiple of the tile."""
    m, n = mergeable(view.m, view.lhs, view.k)[0], mergeable(view.n, view.rhs, view.k)[0]
    groups = (("m", m), ("n", n), ("k", view.k))
    ragged = view.groups is not None
    return tuple(f"{r}.i.i" for (r, g), t in zip(groups, tile) if (r == "m" and ragged) or not is_divisible(g.size, t))


def epilogue_of(region: Region, view: GemmView) -> tuple[str, ...]:
    """Names of the lets after the accumulator."""
    return tuple(let.name for let in view.epilogue)


def kind_of(view: GemmView) -> str:
    """Kind of the product for `algo_choice`: its operands are matrices, with rows in groups or not, or windows of an image."""
    if view.groups is not None:
        return "grouped_matmul"
    is_window = why_not_plain(view.lhs, view.m, view.k) or why_not_plain(view.rhs, view.n, view.k)
    return "conv" if is_window else "matmul"


def edges_of(region: Region, view: GemmView) -> tuple[LocalEdge, ...]:
    """The edge from the accumulator to the epilogue, if there is one."""
    return (LocalEdge(view.acc, view.epilogue[0].name),) if view.epilogue else ()


def product_line(plan: MmaPlan | GpuSync) -> str:
    """The line that identifies a plan of a product among its candidates."""
    name = {Sm80Mma: "sm80_mma", Sm90Mma: "sm90_mma", GpuSync: "gpu_sync"}[type(plan)]
    tile = "x".join(map(str, plan.tile))
    match plan:
        case Sm80Mma():
            return (
                f"{name} {tile} {plan.inst_shape} warp {plan.warp_tile} stages {plan.stages} width {plan.vectorize.width}"
                + (f" split_k {plan.split_k}" if plan.split_k > 1 else "")
            )
        case Sm90Mma():
            words = (
                (plan.schedule, plan.schedule != "cooperative"),
                (f"cluster {plan.cluster[0]}x{plan.cluster[1]}", plan.cluster != (1, 1)),
                ("stores by TMA", plan.epilogue_store == "stmatrix_tma"),
                ("residual by TMA", plan.epilogue_load == "tma"),
                ("operands exchanged", plan.swap_ab),
                (
                    f"stream_k of {plan.stream_k.rows} rows over {plan.stream_k.units}" if plan.stream_k else "",
                    plan.stream_k is not None,
                ),
                (f"split_k {plan.split_k}{' of persistent tiles' if plan.persistent else ''}", plan.split_k > 1),
                (
                    f"{' and '.join(o for o, who in zip('AB', plan.loads) if who == 'cp_async')} by cp.async",
                    "cp_async" in plan.loads,
                ),
            )
            said = "".join(f", {word}" for word, holds in words if holds)
            return f"{name} {tile} consumers {plan.consumers} stages {plan.stages}{said}"
        case GpuSync():
            return f"{name} {tile} block {plan.block[0]}x{plan.block[1]} stages {plan.stages}"
        case _:
            assert_never(plan)
