"""Each rule of the fields of a GPU plan for one product: a plan that breaks it has that fault and no other, and the plan at its
edge has none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.plan.ir import Async, LocalEdge, StreamK
from tatami.plan.views.product_rules import algorithm_rules, block_rules, crowded_rules, group_rules, shape_rules
from tests.gpu.gemm_examples import sm80, sm90, sync

replace: Any = msgspec.structs.replace
TILES: dict[str, Any] = {"persistent": True}
ONE: dict[str, Any] = {"consumers": 1, "registers": (56, 224)}
THREE: dict[str, Any] = {"consumers": 3, "registers": (32, 160)}
PINGPONG: dict[str, Any] = {"schedule": "pingpong", "persistent": True, "overlap": True}
COPIED: dict[str, Any] = {"loads": ("cp_async", "tma"), "registers": (80, 208)}
COPIED_B: dict[str, Any] = {"loads": ("tma", "cp_async"), "registers": (80, 208)}


def edge(buffer: str, depth: int = 1, **fields: Any) -> Any:
    return sm80(edges=(LocalEdge("a", "b", buffer, depth),), **fields)


def fma(tile: tuple[int, int, int] = (64, 64, 16), warp: str = "32x16") -> Any:
    return sm80(tile, warp=warp, inst_shape="fma")


def tf32(depth: int) -> Any:
    return sm80((64, 64, depth), warp="32x32", inst_shape="m16n8k8")


def small(m: int, n: int, warp: str = "16x16") -> Any:
    return sm80((m, n, 64), warp=warp)


RIGHT: list[Any] = [
    sm80(), sm90(), sync(), *(replace(sync(), stages=n) for n in (1, 2, 8)), sync(block=(1, 1)), sync(block=(16, 1)), sync((16, 64, 1)),
    *(sm80(stages=n) for n in (2, 3, 8)), *(sm90(stages=n) for n in (2, 8)),
    replace(sm80(), async_=Async(True, 1)),
    *(sm80(width=n) for n in (1, 2, 4, 8, 16)),
    *(sm80(split_k=n) for n in (1, 2, 32)), sm80(overlap=True), sm80(enable=False), sm90(split_k=2), sm90(overlap=True),
    sm90(split_k=2, overlap=True, **TILES), sm90(split_k=2, **COPIED), sm90(**TILES, **COPIED),
    *(sm80((128, 64, n)) for n in (16, 32, 64, 128)), *(tf32(n) for n in (8, 16, 32, 64)), *(fma((64, 64, n)) for n in (8, 16, 32)),
    fma(warp="32x32"), fma(warp="64x16"), small(32, 32), small(32, 64), small(64, 32), small(192, 64), small(64, 192), small(128, 64, "16x64"), small(128, 64, "64x16"),
    edge("reg"), edge("smem_ring"), edge("smem_ring", 2), edge("smem_ring", 4),
    sm90((128, 128, 32), depth=8), sm90((128, 128, 128), depth=32), sm90((128, 8, 64)), sm90((128, 256, 64)), sm90((128, 128, 32)),
    sm90((192, 128, 64), **THREE), sm90((64, 128, 64), **ONE), sm90((64, 128, 64), **PINGPONG), sm90((256, 64, 64)),
    *(sm90(registers=r) for r in ((24, 232), (40, 256), (40, 40))),
    sm90((128, 136, 64)), sm90(epilogue_store="stmatrix_tma"), sm90(epilogue_store="stmatrix_tma", epilogue_load="tma"),
    sm90((128, 64, 64), swap_ab=True), sm90((128, 64, 64), cluster=(2, 1), **TILES),
    sm90((128, 64, 64), swap_ab=True, cluster=(2, 1), epilogue_store="stmatrix_tma", **TILES),
    sm90(wait_depth=0), sm90(wait_depth=1), sm90(stream_k=StreamK(1, 1), **TILES), sm90(stream_k=StreamK(4, 5), **TILES),
    sm90((256, 128, 64)), sm90((256, 192, 64), epilogue_store="stmatrix_tma"), sm90((64, 192, 64), **ONE), sm90((128, 200, 64)),
    *(sm90(cluster=c, **TILES) for c in ((8, 1), (1, 8), (2, 4))), sm90((128, 192, 64), cluster=(2, 2), **TILES), sm90((128, 256, 64), cluster=(2, 1), **TILES),
    sm90((128, 256, 64), cluster=(1, 2), **TILES),
    sm90(cluster=(1, 2), multicast="a", **TILES), sm90(cluster=(2, 1), multicast="b", **TILES), sm90(cluster=(2, 2), multicast="both", **TILES),
    sm90(cluster=(2, 1), multicast="b", **TILES, **COPIED), sm90(cluster=(1, 2), multicast="a", **TILES, **COPIED_B),
]  # fmt: skip
WRONG: list[tuple[Any, tuple[str, ...]]] = [
    (replace(sm80(), tile=(0, 64, 64)), ("tile [0, 64, 64] has a size below 1",)),
    (replace(sm90(), tile=(128, 128, 0)), ("tile [128, 128, 0] has a size below 1",)),
    (replace(sm80(), tile=(128, 64, 1)), ("BK = 1 is none of 16, 32, 64, 128",)),
    (sync(block=(0, 16)), ("block 0x16 has a side below 1",)),
    (sync(block=(16, 0)), ("block 16x0 has a side below 1",)),
    (sync(block=(48, 16)), ("tile 64x64 is not a multiple of the block 48x16",)),
    (sync(block=(16, 48)), ("tile 64x64 is not a multiple of the block 16x48",)),
    *((replace(sync(), stages=n), (f"stages {n} is outside 1..8",)) for n in (0, 9)),
    (sm80(stages=1), ("stages 1 is outside 2..8",)),
    (sm90(stages=9), ("stages 9 is outside 2..8",)),
    (replace(sm80(), async_=Async(True, 0)), ("prefetch_depth 0 is outside 1..stages = 2",)),
    (replace(sm80(), async_=Async(True, 3)), ("prefetch_depth 3 is outside 1..stages = 2",)),
    *((replace(sm80(enable=False), async_=Async(False, n)), (f"async.prefetch_depth {n}: nothing is copied ahead",)) for n in (0, 3)),
    (replace(sm90(), async_=Async(False, 4)), ("async.enable false: copies of sm90 are asynchronous",)),
    (replace(sm90(stages=4), async_=Async(True, 3)), ("async.prefetch_depth 3: the producer of sm90",)),
    (sm80(width=3), ("vectorize.width 3 is none of 1, 2, 4, 8, 16",)),
    (sm80(split_k=0), ("split_k 0 is outside 1..32",)),
    (sm80(split_k=33), ("split_k 33 is outside 1..32",)),
    (sm90(split_k=2, **TILES, **COPIED), ("split_k 2 with persistent tiles needs loads by tma",)),
    (sm80(split_k=2, enable=False), ("split_k 2 needs async.enable without epilogue_overlap",)),
    (sm80(split_k=2, overlap=True), ("split_k 2 needs async.enable without epilogue_overlap",)),
    (sm90(split_k=2, overlap=True), ("split_k 2 needs async.enable without epilogue_overlap",)),
    (sm80(warp="64"), ("warp_tile '64' is not of the form 64x64",)),
    (sm80(warp="0x64"), ("warp_tile 0x64 has a side of 0",)),
    (sm80(warp="64x0"), ("warp_tile 64x0 has a side of 0",)),
    (sm80(warp="48x64"), ("tile 128x64 is not a multiple of warp_tile 48x64",)),
    (sm80(warp="64x48"), ("tile 128x64 is not a multiple of warp_tile 64x48",)),
    (sm80(warp="8x64"), ("warp_tile 8x64 is not a multiple of 16x16",)),
    (sm80(warp="64x8"), ("warp_tile 64x8 is not a multiple of 16x16",)),
    (sm80((128, 64, 48)), ("BK = 48 is none of 16, 32, 64, 128",)),
    (tf32(128), ("BK = 128 is none of 8, 16, 32, 64",)),
    (fma(warp="16x16"), ("warp_tile 16x16 is not a multiple of 32x16",)),
    (fma(warp="32x8"), ("warp_tile 32x8 is not a multiple of 32x16",)),
    (fma((64, 64, 64)), ("BK = 64 is none of 8, 16, 32",)),
    (sm80(inst_shape="m8"), ("inst_shape m8 does not exist on sm80",)),
    (small(96, 64), ("tile 96x64: each side is a power of two or a multiple of 64",)),
    (small(64, 96), ("tile 64x96: each side is a power of two or a multiple of 64",)),
    (small(128, 48), ("tile 128x48: each side is a power of two or a multiple of 64",)),
    (edge("l2"), ("local_edges a -> b by l2: reg and smem_ring are implemented",)),
    (edge("smem_ring", 0), ("local_edges a -> b by smem_ring: depth 0 is outside 1..4",)),
    (edge("smem_ring", 5), ("local_edges a -> b by smem_ring: depth 5 is outside 1..4",)),
    (edge("smem_ring", enable=False), ("local_edges a -> b by smem_ring: only fragments of mma are exchanged",)),
    (replace(fma(), local_edges=(LocalEdge("a", "b", "smem_ring", 1),)), ("local_edges a -> b by smem_ring: only fragments",)),
    *((edge("reg", n), (f"local_edges a -> b by reg: depth {n}, registers hold one",)) for n in (0, 2, 5)),
    *((replace(sm90(), inst_shape=s), (f"inst_shape {s} is not a wgmma shape",)) for s in ("m32n128k16", "m128n128k16", "m64n128k4", "m64n12k16", "m64n0k16", "m64n264k16", "x")),
    (replace(sm90(), inst_shape="m64n64k16"), ("inst_shape n = 64 differs from BN = 128",)),
    (replace(sm90(), tile=(128, 128, 32)), ("k_steps 4 x 16 differs from BK = 32",)),
    (sm90((128, 128, 48)), ("BK = 48: a swizzled row of 64 or 128 bytes is 2 or 4 steps",)),
    (sm90((256, 128, 64), consumers=4), ("BM = 256 is not a multiple of 64 x 4 consumer",)),
    (sm90((96, 128, 64)), ("BM = 96 is not a multiple of 64 x 2 consumer",)),
    (sm90((64, 128, 64)), ("BM = 64 is not a multiple of 64 x 2 consumer",)),
    (sm90((384, 64, 64), **THREE), ("tile 384x64: a TMA box has at most 256 rows",)),
    (replace(sm90(epilogue_store="stmatrix_tma"), tile=(128, 272, 64)), ("inst_shape n = 128 differs", "tile 128x272: a TMA box")),
    (sm90(registers=(16, 232)), ("setmaxnreg 16 is not a multiple of 8 in 24..256",)),
    (sm90(registers=(36, 232)), ("setmaxnreg 36 is not a multiple of 8 in 24..256",)),
    (sm90(registers=(40, 264)), ("setmaxnreg 264 is not a multiple of 8 in 24..256",)),
    (sm90(registers=(232, 40)), ("setmaxnreg 232 of the producer > 40 of a consumer",)),
    (sm90((64, 128, 64), **PINGPONG, **THREE), ("schedule pingpong: 2 consumers",)),
    (sm90((64, 128, 64), **PINGPONG, **ONE), ("schedule pingpong: 2 consumers",)),
    (sm90((64, 128, 64), schedule="pingpong", persistent=True), ("schedule pingpong: 2 consumers",)),
    (sm90((64, 128, 64), schedule="pingpong", overlap=True), ("schedule pingpong: 2 consumers",)),
    (sm90((128, 136, 64), epilogue_store="stmatrix_tma"), ("epilogue_store stmatrix_tma: BN = 136",)),
    (sm90(epilogue_load="tma"), ("epilogue_load tma: fetched operands share the shared memory of results",)),
    (sm90((128, 64, 64), swap_ab=True, cluster=(2, 1), **TILES), ("swap_ab in a cluster of 2x1",)),
    (sm90(wait_depth=2), ("wait_depth 2 is neither 0 nor 1",)),
    (sm90(stream_k=StreamK(1, 1)), ("stream_k with persistent false",)),
    (sm90(stream_k=StreamK(1, 1), split_k=2, **TILES), ("stream_k with split_k 2",)),
    (sm90((64, 128, 64), stream_k=StreamK(1, 1), **PINGPONG), ("stream_k with schedule pingpong",)),
    (sm90((128, 64, 64), stream_k=StreamK(1, 1), swap_ab=True, **TILES), ("stream_k with swap_ab",)),
    (sm90(stream_k=StreamK(1, 1), **TILES, **COPIED), ("stream_k with loads cp_async",)),
    (sm90(stream_k=StreamK(0, 1), **TILES), ("stream_k of 0 rows over 1 units",)),
    (sm90(stream_k=StreamK(1, 0), **TILES), ("stream_k of 1 rows over 0 units",)),
    (sm90((256, 192, 64)), ("192 accumulators of a warpgroup that stores results one by one > 128 that it has registers for",)),
    (sm90((64, 200, 64), **ONE), ("100 accumulators of a warpgroup that stores results one by one > 96 that it has registers for",)),
    (sm90((128, 96, 64), swap_ab=True), ("144 accumulators and their addresses of a warpgroup that stores results one by one > 128",)),
    (sm90((128, 256, 64), cluster=(2, 2), **TILES), ("128 accumulators of a warpgroup that stores results one by one > 96 that it has registers for besides its places along both sides of the cluster 2x2",)),
    (sm90(cluster=(0, 1)), ("cluster 0x1 is outside 1..8 CTAs",)),
    (sm90(cluster=(3, 3), **TILES), ("cluster 3x3 is outside 1..8 CTAs",)),
    (sm90(cluster=(2, 1)), ("cluster 2x1 needs persistent tiles",)),
    (sm90(cluster=(1, 2)), ("cluster 1x2 needs persistent tiles",)),
    (sm90(multicast="a"), ("multicast a: a is shared along n, where the cluster 1x1 has one CTA",)),
    (sm90(multicast="b"), ("multicast b: b is shared along m, where the cluster 1x1 has one CTA",)),
    (sm90(multicast="both"), ("multicast both: a is shared", "multicast both: b is shared")),
    (sm90(cluster=(2, 1), multicast="a", **TILES), ("multicast a: a is shared along n, where the cluster 2x1 has one CTA",)),
    (sm90(cluster=(1, 2), multicast="a", **TILES, **COPIED), ("multicast a: a comes by cp.async",)),
    (sm90(cluster=(2, 1), multicast="b", **TILES, **COPIED_B), ("multicast b: b comes by cp.async",)),
]  # fmt: skip


@pytest.mark.parametrize("plan", RIGHT, ids=range(len(RIGHT)))
def test_a_plan_at_the_edge_of_its_rules_has_no_faults(plan: Any) -> None:
    assert shape_rules(plan) == []


def agree(found: list[str], wanted: tuple[str, ...]) -> bool:
    return len(found) == len(wanted) and all(f.startswith(w) for f, w in zip(found, wanted))


@pytest.mark.parametrize(("plan", "wanted"), WRONG, ids=range(len(WRONG)))
def test_a_plan_that_breaks_a_rule_has_that_fault(plan: Any, wanted: tuple[str, ...]) -> None:
    assert agree(shape_rules(plan), wanted), shape_rules(plan)


def test_what_is_crowded_is_said_to_its_end() -> None:
    """Nothing else is kept besides the accumulators of these."""
    for plan in (sm90((256, 192, 64)), sm90((128, 96, 64), swap_ab=True)):
        (said,) = shape_rules(plan)
        assert said.endswith(" that it has registers for")


def test_what_is_kept_while_results_are_not_stored_takes_registers_too() -> None:
    plan = sm90((128, 256, 64), epilogue_store="stmatrix_tma")
    assert crowded_rules(plan) == crowded_rules(plan, "operands") == []
    said = "128 accumulators of a warpgroup > 96 that it has registers for besides operands"
    assert crowded_rules(plan, "operands", stored=False) == [said]


GROUPS: list[tuple[Any, tuple[str, ...]]] = [
    (sync(), ("gpu_sync does not take rows in groups",)),
    (sm80(), ()),
    (sm90(), ()),
    (sm80(split_k=2), ("split_k: rows in groups",)),
    (sm80(overlap=True), ("async.epilogue_overlap: rows in groups",)),
    (sm80(enable=False), ("async.enable false: rows in groups",)),
    (sm90(split_k=2), ("split_k: rows in groups",)),
    (sm90(**TILES), ("persistent: rows in groups",)),
    (sm90(epilogue_store="stmatrix_tma"), ("epilogue_store stmatrix_tma: rows in groups",)),
    (sm90((128, 64, 64), swap_ab=True), ("swap_ab: rows in groups",)),
    (sm90(**COPIED), ("loads cp_async: rows in groups",)),
    (sm90(stream_k=StreamK(1, 1)), ("stream_k: rows in groups",)),
    (sm90((128, 192, 64)), ()),
    (sm90((128, 256, 64)), ("128 accumulators of a warpgroup that stores results one by one > 96 that it has registers for besides values kept",)),
]  # fmt: skip
BLOCKS: list[tuple[Any, tuple[str, ...]]] = [
    (sm80(), ("Sm80Mma reduces no rows or columns",)),
    (sync(), ("GpuSync reduces no rows or columns",)),
    (sm90(), ()),
    (sm90(split_k=2), ("split_k: rows and columns are reduced in blocks",)),
    (sm90(stream_k=StreamK(1, 1)), ("stream_k: rows and columns are reduced in blocks",)),
    (sm90(swap_ab=True), ("swap_ab: rows and columns are reduced in blocks",)),
    (sm90((128, 96, 64)), ("tile 128x96: rows and columns are reduced in blocks",)),
    (sm90((96, 128, 64)), ("tile 96x128: rows and columns are reduced in blocks",)),
    (sm90((256, 128, 64)), ()),
    (sm90((256, 192, 64)), ("a thread with 192 accumulators has no registers",)),
]


@pytest.mark.parametrize(("plan", "wanted"), GROUPS, ids=range(len(GROUPS)))
def test_rows_in_groups(plan: Any, wanted: tuple[str, ...]) -> None:
    assert agree(group_rules(plan), wanted), group_rules(plan)


@pytest.mark.parametrize(("plan", "wanted"), BLOCKS, ids=range(len(BLOCKS)))
def test_rows_and_columns_in_blocks(plan: Any, wanted: tuple[str, ...]) -> None:
    assert agree(block_rules(plan), wanted), block_rules(plan)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({}, []),
        ({"matmul": "gemm"}, []),
        ({"matmul": "other"}, []),
        ({"matmul": "direct"}, []),
        ({"sort": "gemm"}, ["algo_choice names 'sort'; the key for this Region is matmul"]),
        ({"matmul": "gemm", "conv": "direct"}, ["algo_choice names 'conv'; the key for this Region is matmul"]),
        ({"matmul": "fft"}, ["algo_choice.matmul 'fft': gemm, other, direct are implemented"]),
    ],
)
def test_algorithms(choice: dict[str, str], wanted: list[str]) -> None:
    assert algorithm_rules(choice, "matmul", ("gemm", "other")) == wanted


def test_an_algorithm_is_named_once_in_the_suggestion() -> None:
    (found,) = algorithm_rules({"conv": "fft"}, "conv", ("implicit_gemm", "gemm", "winograd"))
    assert found == "algo_choice.conv 'fft': implicit_gemm, winograd, direct are implemented"
