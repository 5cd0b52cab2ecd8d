"""The simulation of a contraction's pipeline against kernels that were measured on an H100 (notes: gpu §2.1).

A public worklog made a bf16 product of 4096^3 quicker in eleven steps. The work of each kernel is read from its
source (fast.cu, examples/matmul/matmul_N.cuh), its registers and instructions from the output of ptxas 13; no duration of the
simulation comes from these times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.target import CHIPS, PRESETS
from tatami.plan.gpu.block_work import BlockWork
from tatami.plan.gpu.estimate import gpu_estimate
from tatami.plan.gpu.simulate import run_whole, simulate
from tatami.plan.gpu.sm_load import Pipeline, Traffic, pipeline_of
from tatami.plan.gpu.tile_order import hilbert, missed_on, walk
from tatami.plan.simulation.figures import figures_of
from tests.gpu.gemm_examples import sm80, sm90

SIZE = 4096
H100 = PRESETS["h100"]
GRID = 128
"""CTAs that the kernels of the later steps launch."""


def kernel(bm: int, bn: int, bk: int = 64, steps: Iterator[tuple[int, int]] | None = None, **other: object) -> Pipeline:
    """Results are bf16 and stored one by one: a warp touches 4 lines and half of each sector."""
    rows, columns, blocks = SIZE // bm, SIZE // bn, SIZE // bk
    panels = (bm * SIZE * 2, bn * SIZE * 2)
    missed = missed_on(steps or walk("row", rows, columns), panels, bm * bn * 2, GRID, H100.l2_bytes)
    p = Pipeline(
        tiles=rows * columns,
        blocks=blocks,
        stages=1,
        ctas_per_sm=1,
        math_cycles=2 * bm * bn * bk / 4096,
        block_bytes=(bm + bn) * bk * 2,
        l2_bytes=(bm + bn) * bk * 2,
        dram_bytes=missed / (rows * columns * blocks),
        smem_reads=(bm // 64) * (bk // 16) * (2048 + 32 * bn),
        result_bytes=bm * bn * 2,
        store_bytes=bm * bn * 4,
        store_lines=bm * bn / 8,
        boxes=2,
    )
    return msgspec.structs.replace(p, **other)


def in_blocks(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Tiles of 128 x 256 in blocks of `height` x `width`."""
    for i in range(0, SIZE // 128, height):
        for j in range(0, SIZE // 256, width):
            yield from ((i + a, j + b) for a in range(height) for b in range(width))


def persistent(**other: object) -> Pipeline:
    order = hilbert(SIZE // 128, SIZE // 256) if other.pop("hilbert", False) else in_blocks(16, 8)
    return kernel(128, 256, 64, order, stages=3, consumers=2, specialised=True, persistent=True, overlap=True, **other)


EVERY_LANE: dict[str, Any] = {"full_arrivals": 128, "free_arrivals": 128}
"""cuda::barrier: each thread arrives, at the full slot too."""
SHARED_B = {"cluster": 2, "l2_bytes": (128 + 256 / 2) * 64 * 2}
MERGED = {"store_bytes": 128 * 256 * 2}
STAGED = {"store_lines": 0.0, "staged_store": True}
INSTRUCTIONS = 4 * (16 * 184 + 96)
"""Instructions of the first kernel per block of 16 k: 4 warps; 184 per k, of which 128 are multiply-adds, and the copies."""

LADDER: list[tuple[float, Pipeline]] = [
    (32, kernel(128, 128, 16, tensor=False, boxes=0, ctas_per_sm=3, math_cycles=INSTRUCTIONS / 4)),  # 161 registers
    (317, kernel(64, 64, ctas_per_sm=8, full_arrivals=256)),  # 61 registers
    (423, kernel(128, 128, ctas_per_sm=2, full_arrivals=256)),  # 197 registers
    (498, kernel(128, 128, stages=5, specialised=True, **EVERY_LANE)),
    (631, kernel(128, 256, stages=3, consumers=2, specialised=True, **EVERY_LANE)),
    (660, persistent(**EVERY_LANE)),
    (704, persistent()),
    (734, persistent(**SHARED_B)),
    (747, persistent(**SHARED_B, **MERGED)),
    (758, persistent(**SHARED_B, **MERGED, **STAGED)),
    (764, persistent(**SHARED_B, **MERGED, **STAGED, hilbert=True)),
]
"""TFLOP/s and the kernel: on ordinary cores; TMA and wgmma; larger tiles; a producer; two consumers; persistent; barriers
of one lane; a cluster that shares B; stores of whole sectors; asynchronous stores; tiles along the Hilbert curve."""


def tflops(p: Pipeline) -> float:
    return 2 * SIZE**3 / (run_whole(p, H100).cycles / H100.clock + H100.launch_seconds) / 1e12


def test_every_step_of_the_ladder_is_a_gain_and_large_gains_are_right_within_a_third() -> None:
    found = [tflops(p) for _, p in LADDER]
    for (was, now), (before, after) in zip(pairwise(t for t, _ in LADDER), pairwise(found)):
        assert after > before, found
        gain, simulated = now / was - 1, after / before - 1
        if gain > 0.1:
            assert simulated == pytest.approx(gain, rel=1 / 3), found


def test_no_step_of_the_ladder_is_a_quarter_off() -> None:
    assert [tflops(p) for _, p in LADDER] == [pytest.approx(measured, rel=0.27) for measured, _ in LADDER]


@pytest.mark.parametrize("step", range(len(LADDER)))
def test_a_few_blocks_and_tiles_tell_the_time_of_all(step: int) -> None:
    p = LADDER[step][1]
    assert simulate(p, H100).cycles == pytest.approx(run_whole(p, H100).cycles, rel=0.02)


def test_nothing_is_quicker_than_its_units() -> None:
    for bn in (64, 128, 256):
        for stages in (2, 4):
            for persistent in (False, True):
                p = pipeline_of(sm90((128, bn, 64), stages, persistent=persistent), DType.fp16, (1, 2048, 2048, 1024), H100)
                found = simulate(p, H100)
                per_sm = -(-p.tiles // H100.sms) * p.blocks
                smem = (p.block_bytes + p.smem_reads) / figures_of(H100).smem_bytes_per_clock
                assert found.cycles >= per_sm * max(p.math_cycles, smem)
                assert max(found.busy.values()) <= 1


def test_deeper_rings_and_overlap_never_cost() -> None:
    def cycles(*tile: int, stages: int, overlap: bool = False) -> float:
        plan = sm80(tile, stages, warp="32x32", overlap=overlap)
        p = pipeline_of(plan, DType.fp16, (1, 4096, 4096, 512), PRESETS["a100"])
        return simulate(msgspec.structs.replace(p, ctas_per_sm=1), PRESETS["a100"]).cycles

    depths = [cycles(64, 64, 32, stages=s) for s in (2, 3, 4, 6, 8)]
    assert depths == sorted(depths, reverse=True) and depths[0] > 1.2 * depths[-1]
    assert cycles(64, 64, 32, stages=3, overlap=True) < cycles(64, 64, 32, stages=3)


def test_ping_pong_hides_the_epilogue_of_short_products() -> None:
    def cycles(bn: int = 128, k: int = 256, **how: object) -> float:
        plan = sm90((128, bn, 64), 4, persistent=True, overlap=True, **{"cluster": (2, 2), "multicast": "both", **how})
        return simulate(pipeline_of(plan, DType.fp16, (1, 8192, 8192, k), H100), H100).cycles

    assert cycles(schedule="pingpong") < cycles()
    assert cycles(256, 1024, width=1, epilogue_store="stmatrix_tma") < cycles(256, 1024, width=1)
    assert cycles() < cycles(cluster=(2, 1), multicast="b") < cycles(cluster=(1, 1), multicast="none")


def test_reductions_in_the_epilogue_cost_where_no_other_warpgroup_multiplies() -> None:
    """All additions of the SM that has most tiles are its ordinary cores' time, which turns hide."""
    work = BlockWork(ordinary=12.0, exponentials=1.0, shuffles=1.0)

    def longer(*tile: int, **how: object) -> float:
        plan = sm90((*tile, 64), 4, persistent=True, overlap=True, cluster=(2, 1), multicast="b", **how)
        cycles = [
            simulate(pipeline_of(plan, DType.fp16, (1, 4096, 4096, 1024), H100, Traffic(blocks=w)), H100).cycles
            for w in (BlockWork(), work)
        ]
        return cycles[1] - cycles[0]

    tiles = -(-4096 * 4096 // (128 * 256) // H100.sms)
    alone = tiles * 128 * 256 * max(12 / 128, 1 / 16, 1 / 32)
    together = longer(128, 256, epilogue_store="stmatrix_tma")
    assert 0.4 * alone < together < alone
    assert longer(64, 256, schedule="pingpong", epilogue_store="stmatrix_tma") < 0.3 * together


def test_every_order_walks_every_tile_once_and_the_curve_by_neighbours() -> None:
    for rows, columns in ((8, 8), (5, 7), (1, 9), (16, 4), (17, 19), (1, 1)):
        for order in ("row", "grouped", "hilbert"):
            found = list(walk(order, rows, columns))
            assert sorted(found) == [(i, j) for i in range(rows) for j in range(columns)]
    steps = list(hilbert(16, 16))
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise(steps))


def test_hilbert_stays_in_a_group_of_rows_as_its_kernels_do() -> None:
    steps = list(walk("hilbert", 20, 19))
    groups = [i // 8 for i, _ in steps]
    assert groups == sorted(groups)
    assert steps[:64] == list(hilbert(8, 8)) and steps[128:152] == [(i, j) for j in (16, 17, 18) for i in range(8)]


def test_what_l2_keeps_is_read_from_memory_once() -> None:
    panels = (1000.0, 1000.0)
    whole = missed_on(walk("row", 8, 8), panels, 0.0, 4, 10**9)
    assert whole == 16_000
    assert missed_on(walk("row", 8, 8), panels, 0.0, 4, 6000) > whole
    assert missed_on(walk("hilbert", 8, 8), panels, 0.0, 4, 6000) < missed_on(walk("row", 8, 8), panels, 0.0, 4, 6000)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_has_an_estimate_below_its_peak(chip: str) -> None:
    target = PRESETS[chip]
    found = gpu_estimate(sm80((128, 128, 32), 3), DType.fp16, (1, 4096, 4096, 4096), target)
    assert 0.2 < 2 * 4096**3 / found["total"] / target.flops_fp16 < 1
    assert 0 < found["pipeline_eff"] <= 1.001 and found["memory"] == pytest.approx(3 * 4096**2 * 2 / target.bandwidth)
