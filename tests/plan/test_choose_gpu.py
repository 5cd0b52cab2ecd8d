"""GPU choices: guarded where alignment is open, STOP rules in numbers, the spec's plan document obeyed."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.gpu.ir import Kernel
from tatami.gpu.lower import lower_region, lower_split, lower_stream_k
from tatami.plan.choose_gpu import choose_gpu, fastest, measurable
from tatami.plan.decide import read_plan
from tatami.plan.ir import GpuStream, GpuSync, Guarded, SchedulePlan, Sm80Mma, Sm90Mma, StreamK
from tatami.plan.show import show_estimate
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.product_limits import Needs, limits, needs, stop_rules
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.product import GemmView, gemm_view
from tatami.report.explain import explain
from tests.gpu.gemm_examples import gemm, sm80, sm90

FACTS: RegionFacts = None  # type: ignore[assignment]
SYNC = GpuSync((64, 64, 16), (16, 16), {}, ("m", "n", "k"), ())
BIG = {"M": 4096, "N": 4096, "K": 4096}

SPEC_PLAN: dict[str, Any] = {
    "tile": [128, 64, 64],
    "stages": 2,
    "bind": {"m.o": "block.y", "n.o": "block.x", "m.i.o": "warp.y", "n.i.o": "warp.x"},
    "warp_tile": "64x64",
    "cache": [
        {"tensor": "A", "where": "smem", "at": "k.i", "pingpong": True},
        {"tensor": "B", "where": "smem", "at": "k.i", "pingpong": True},
    ],
    "vectorize": {"axis": "n.i.i", "width": 8},
    "predicate_tail": ["m.i.i", "n.i.i", "k.i.i"],
    "epilogue": ["bias", "relu"],
    "arch": "sm80",
    "layout_hints": {"A_swizzle": True, "B_swizzle": True, "C_stride": "row"},
    "algo_choice": {"matmul": "implicit_gemm"},
    "local_edges": [{"from": "sum_k", "to": "relu", "buffer": "reg"}],
    "async": {"enable": True, "prefetch_depth": 2, "epilogue_overlap": True},
    "barrier_model": "cp_async_group",
}


def choices(region: Region, target: str, sizes: dict[str, int] | None = None) -> Any:
    return choose_gpu(region, FACTS, PRESETS[target], BIG if sizes is None else sizes)


def test_open_sizes_get_a_guarded_and_a_general_plan() -> None:
    for target, kind in (("sm80", Sm80Mma), ("sm90", Sm90Mma)):
        found, _ = choices(gemm(), target)
        assert [(str(c.size), c.divisor) for c in found[0].conditions] == [("K", 8), ("N", 8)]
        assert isinstance(found[0].plan, kind)
        assert found[-1].conditions == () and isinstance(found[-1].plan, Sm80Mma)


def test_aligned_constants_need_no_guard() -> None:
    found, _ = choices(gemm(4096, 4096, 4096), "sm90", {})
    assert len(found) == 1 and found[0].conditions == () and found[0].plan.predicate_tail == ()


def test_odd_constants_still_use_tensor_cores() -> None:
    found, _ = choices(gemm(100, 75, 130), "sm90", {})
    assert len(found) == 1 and isinstance(found[0].plan, Sm80Mma)
    assert found[0].plan.predicate_tail == ("m.i.i", "n.i.i", "k.i.i")


def test_fp32_takes_the_ring_with_multiply_adds() -> None:
    for target in ("sm80", "sm90"):
        found, _ = choices(gemm(dtype=DType.fp32, out=DType.fp32), target)
        assert [(str(c.size), c.divisor) for c in found[0].conditions] == [("K", 4), ("N", 4)]
        assert all(isinstance(g.plan, Sm80Mma) and g.plan.inst_shape == "fma" for g in found)
        assert found[0].plan.vectorize.width == 4


def test_a_dtype_without_a_ring_takes_the_synchronous_template() -> None:
    found, rejected = choices(gemm(dtype=DType.fp64, out=DType.fp64), "sm80")
    assert isinstance(found[0].plan, GpuSync) and found[0].plan.block == (16, 16)
    assert "fp64" in rejected[0].why


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "parts"),
    [(128, 4096, 8192, (128, 256, 64), 4), (1024, 1024, 16384, (128, 256, 64), 4), (16, 4096, 4096, (64, 128, 64), 4)],
)
def test_parts_of_k_fill_the_last_wave(m: int, n: int, k: int, tile: tuple[int, ...], parts: int) -> None:
    """Large tiles are persistent and shared by a cluster, small ones of a plain grid; without parts all are slower. A cluster of two
    rows of tiles has an idle half at 128 rows, so that the larger tile is the faster one."""
    found, rejected = choices(gemm(m, n, k), "sm90", {})
    plan = found[0].plan
    large = tile != (64, 128, 64)
    assert (plan.tile, plan.split_k, plan.persistent, plan.cluster) == (tile, parts, large, (2, 1) if large else (1, 1))
    assert 10 <= len(rejected) + 1 <= 20
    divided = [r for r in rejected if "sm90" in r.plan and ("split_k" in r.plan or "stream_k of" in r.plan)]
    assert len(divided) == 1
    whole = [r.estimate["total"] for r in rejected if "sm90" in r.plan and r.estimate and r not in divided]
    assert found[0].estimate["total"] < min(whole)


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "units"),
    [(2304, 2048, 16384, 1, 66), (2304, 2048, 4096, 9, 66), (1536, 3072, 8192, 1, 66), (2304, 6144, 8192, 1, 66)],
)
def test_a_tail_of_few_tiles_is_cut_evenly(m: int, n: int, k: int, rows: int, units: int) -> None:
    """Tiles of 128x256 in pairs fill 1.1 waves, or 3.3: the row of the last ones, or all, as one line of blocks of k over all SMs."""
    found, rejected = choices(gemm(m, n, k), "sm90", {})
    plan = found[0].plan
    assert (plan.tile, plan.cluster, plan.stream_k) == ((128, 256, 64), (2, 1), StreamK(rows, units))
    assert 10 <= len(rejected) + 1 <= 20
    assert found[0].estimate["wave_eff"] > 0.9
    assert found[0].estimate["total"] < min(r.estimate["total"] for r in rejected if "sm90" in r.plan)
    lower_stream_k(gemm(m, n, k), found[0], PRESETS["sm90"])


@pytest.mark.parametrize(
    ("region", "why"),
    [
        (gemm(), "not all sizes are known"),
        (gemm(4096, 4096, 4096), "slower: "),
        (gemm(1024, 1024, 1024), "slower: "),
        (gemm(8448, 4096, 4096), "of their waves or more"),
    ],
    ids=["open sizes", "small loss", "short k", "full waves"],
)
def test_explain_says_why_nothing_is_cut(region: Region, why: str) -> None:
    found, rejected = choices(region, "sm90", {})
    assert found[0].plan.stream_k is None
    assert [why in r.why for r in rejected if "stream_k" in r.plan] == [True], [(r.plan, r.why) for r in rejected]


def test_whole_tiles_that_fill_the_waves_are_not_split() -> None:
    found, _ = choices(gemm(4096, 4096, 4096), "sm90", {})
    assert found[0].plan.split_k == 1


def test_rejections_carry_both_numbers() -> None:
    found, rejected = choices(gemm(), "sm80")
    stopped = [r.why for r in rejected if "CTA/SM < 2" in r.why]
    assert stopped and all("registers x" in w and "B shared memory" in w for w in stopped)
    assert any("us against" in r.why for r in rejected)
    assert 10 <= len(rejected) + 1 <= 20
    assert found[0].estimate.keys() >= {"compute", "memory", "launch", "total", "wave_eff", "ctas_per_sm", "smem_bytes"}


@pytest.mark.parametrize(
    ("plan", "target", "rule"),
    [
        (sm80((128, 128, 64), 3, warp="64x32"), "rtx3090", r"shared memory 98304 B > 80 % of 101376 B"),
        (sm80((256, 128, 32), 2), "sm80", r"1 CTA/SM < 2 \(\d+ registers x 256 threads"),
        (sm80((64, 64, 32), 2, warp="32x32", width=4), "sm80", r"accesses of 8 B < 16 B"),
        (sm80((64, 64, 32), 2, warp="32x32", width=2), "sm90", r"accesses of 4 B < 16 B"),
        (sm80((64, 64, 32), 2, warp="32x32"), "sm90", r"tile 64x64x32 by cp.async and mma.sync, not by TMA and wgmma"),
        (sm80((128, 128, 64), 2), "sm80", r"258 registers per thread > 255: some spill"),
    ],
    ids=["shared memory", "CTAs", "width", "width on sm90", "off TMA", "spills"],
)
def test_each_stop_rule_ends_the_search_at_a_candidate(plan: Sm80Mma, target: str, rule: str) -> None:
    (found,) = [r for r in stop_rules(plan, DType.fp16, PRESETS[target]) if re.match(rule, r)]
    other = sm90() if target == "sm90" else sm80((64, 64, 32), 2, warp="32x32")
    view = gemm_view(gemm())
    assert isinstance(view, GemmView)
    best, rejected = fastest([plan, other], view, PRESETS[target], BIG)
    assert best is not None and best.plan == other
    assert [found in r.why for r in rejected] == [True]


def test_a_plan_that_spills_is_not_taken_where_all_break_a_rule() -> None:
    """The plan that spills breaks one rule, the other two."""
    spilling, slow = sm80((128, 128, 64), 2), sm80((256, 128, 32), 2, width=4)
    view = gemm_view(gemm())
    assert isinstance(view, GemmView)
    broken = [stop_rules(p, DType.fp16, PRESETS["sm80"]) for p in (spilling, slow)]
    assert [len(b) for b in broken] == [1, 2] and "some spill" in broken[0][0]
    best, rejected = fastest([spilling, slow], view, PRESETS["sm80"], BIG)
    assert best is not None and best.plan == slow and "some spill" in rejected[0].why


def test_a_product_is_streamed_where_the_machine_has_room_for_no_tile() -> None:
    tiny = msgspec.structs.replace(PRESETS["sm80"], smem_per_block=2048)
    for region in (gemm(), gemm(dtype=DType.fp64, out=DType.fp64)):
        found, rejected = choose_gpu(region, FACTS, tiny, BIG)
        assert [(type(c.plan), c.conditions) for c in found] == [(GpuStream, ())]
        assert any("B > 2048 B per CTA" in r.why for r in rejected)


def test_a_refusal_names_the_registers_that_it_allows() -> None:
    at_most = Needs(128, 0, 271, 1)
    assert limits(at_most, PRESETS["sm80"]) == []
    (why,) = limits(msgspec.structs.replace(at_most, registers=272), PRESETS["sm80"])
    assert why == "272 registers per thread > 255 and 16 in memory"


def test_sm90_plans_fill_the_machine_with_one_block() -> None:
    """More than 80 % of shared memory and one CTA per SM are how they are meant."""
    plan = sm90((128, 256, 64), 4)
    need = needs(plan, DType.fp16, PRESETS["sm90"])
    assert need.smem_bytes * 5 > PRESETS["sm90"].smem_per_block * 4 and need.ctas_per_sm == 1
    assert stop_rules(plan, DType.fp16, PRESETS["sm90"]) == []


def test_a_plan_is_verified_by_the_operands_that_lie_in_shared_memory() -> None:
    """fp16 there, though the product is of fp32: a ring of eight stages has room."""
    g = Graph("wide")
    q, k = (g.input(n, (2, 72, 64), DType.fp16).cast(DType.fp32) for n in "qk")
    g.output("y", q @ k.transpose(-2, -1))
    (plan,) = prepare(g, target="sm90").stages["plan"].main.regions
    assert isinstance(plan.choices[0].plan, Sm90Mma) and plan.choices[0].plan.stages == 8


def test_every_choice_lowers() -> None:
    for region in (gemm(), gemm(100, 75, 130), gemm(batch="B", a_col=True), gemm(dtype=DType.fp32, out=DType.fp32)):
        for target in ("sm80", "sm90"):
            for choice in choices(region, target)[0]:
                split = getattr(choice.plan, "split_k", 1) > 1
                (lower_split if split else lower_region)(region, choice, PRESETS[target])


@pytest.mark.parametrize("a_col", [False, True])
@pytest.mark.parametrize("b_col", [False, True])
@pytest.mark.parametrize("out", [DType.fp16, DType.fp32], ids=str)
def test_every_candidate_of_tensor_cores_lowers(a_col: bool, b_col: bool, out: DType) -> None:
    """The template takes every candidate of the planner: none is refused for the layout of operands or output."""
    region = gemm(a_col=a_col, b_col=b_col, batch="B", out=out)
    found = measurable(region, PRESETS["sm90"], {"M": 512, "N": 512, "K": 512, "B": 2})
    conditions = choices(region, "sm90")[0][0].conditions
    kinds = set()
    for candidate in found:
        split = getattr(candidate.plan, "split_k", 1) > 1
        (lower_split if split else lower_region)(region, Guarded(conditions, candidate.plan), PRESETS["sm90"])
        if isinstance(candidate.plan, Sm90Mma):
            kinds |= {candidate.plan.schedule, candidate.plan.multicast, candidate.plan.swap_ab, candidate.plan.epilogue_store}
    assert {"pingpong", "cooperative", "none", "a"} <= kinds
    assert ("stmatrix_tma" in kinds) == (out == DType.fp16 and any(str(c.size) == "N" for c in conditions))


def test_the_documents_plan_shapes_the_kernel() -> None:
    plan = read_plan(SPEC_PLAN, "plan")
    assert isinstance(plan, Sm80Mma)
    k, binding = lower_region(gemm(), Guarded((), plan), PRESETS["sm80"])
    assert k.tile == (128, 64, 64) and k.stages == 2 and k.threads == 64
    assert k.shared_bytes == binding.shared_bytes == 2 * (128 + 64) * 64 * 2
    assert k.tail == ("m", "n", "k")
    assert "min(" in str(binding.grid[0])  # epilogue_overlap: a persistent grid


@pytest.mark.parametrize(
    ("target", "plan", "words"),
    [
        ("sm80", msgspec.structs.replace(SYNC, block=(0, 8)), "block 0x8 has a side below 1"),
        ("sm80", msgspec.structs.replace(SYNC, block=(-16, 8)), "block -16x8 has a side below 1"),
        ("sm80", sm80((64, 64, 32), 2, warp="0x0"), "warp_tile 0x0 has a side of 0"),
        ("sm90", sm90((128, 64, 64), 2, consumers=0), "x 0 consumer warpgroups"),
    ],
    ids=["block", "negative block", "warp", "consumers"],
)
def test_a_plan_that_divides_by_nothing_is_refused_by_words(target: str, plan: SchedulePlan, words: str) -> None:
    found = verify_plan(plan, gemm(256, 256, 256), PRESETS[target])
    assert any(words in str(d) for d in found) and all(d.kind == "InvalidPlan" for d in found)
    with pytest.raises(TatamiError, match=words):
        lower_region(gemm(256, 256, 256), Guarded((), plan), PRESETS[target])


@pytest.mark.parametrize(("field", "value", "words"), [("arch", "sm70", "sm70"), ("speed", 3, "speed")])
def test_unknown_words_in_the_document_are_refused(field: str, value: object, words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        read_plan({**SPEC_PLAN, field: value}, "plan")


def test_rows_of_a_tile_that_lie_apart_are_not_stored_by_tma() -> None:
    """A 1x1 convolution whose image was turned to NHWC: its pixels are one axis of the operand, not of an NCHW result."""
    g = Graph("conv")
    x, w = g.input("x", (2, 64, 16, 16), DType.fp16), g.input("w", (256, 64, 1, 1), DType.fp16)
    g.output("y", x.conv(w))
    stages = prepare(g, target="sm90").stages
    assert stages["plan"].main.layouts
    assert {k.template for k in stages["gpu"].main.kernels if isinstance(k, Kernel)} == {"mma"}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_clusters_with_many_accumulators_store_where_addresses_are_even(layout: str) -> None:
    """ptxas serialises wgmma (C7514) where addresses are made of quotients: a tile of 128x256 for two CTAs, in NCHW."""
    g = Graph("conv")
    x, w = g.input("x", (64, 256, 28, 28), DType.fp16), g.input("w", (256, 256, 1, 1), DType.fp16)
    y = x.conv(w)
    g.output("y", y if layout == "NCHW" else y.permute(0, 2, 3, 1))
    region = prepare(g, target="sm90").stages["realised"].main.body[-1]  # after the image and the weights were turned
    plans = [o.plan for o in measurable(region, PRESETS["sm90"], {}) if isinstance(o.plan, Sm90Mma)]
    crowded = [p for p in plans if p.cluster != (1, 1) and p.tile[0] * p.tile[1] == 128 * 256]
    assert bool(crowded) == (layout == "NHWC")


def test_a_region_without_contraction_is_streamed() -> None:
    import msgspec

    from tatami.core.expr import var
    from tatami.region.ir import Let, Read, Unary

    region = gemm(bias=False, relu=False)
    let = Let("acc", ("m", "n"), DType.fp16, Unary("relu", Read("A", (var("m"), var("n")))))
    plain = msgspec.structs.replace(region, lets=(let,), reduce_axes=(), inputs=region.inputs[:1])
    found, rejected = choices(plain, "sm80")
    assert isinstance(found[0].plan, GpuStream) and rejected[0].why == "no let is a sum of products"


def test_terms_that_are_no_time_have_their_own_units() -> None:
    text = show_estimate(
        {"compute": 2.27e-6, "wave_eff": 0.0111, "ctas_per_sm": 5.0, "smem_bytes": 16384.0, "registers": 96.0, "at.M": 128.0}
    )
    assert text == "compute 2.27 us, wave_eff 0.011, ctas_per_sm 5, smem_bytes 16384 B, registers 96  (at M=128)"


@pytest.mark.parametrize("target", ["sm80", "sm90", "rtx3090"])
def test_explain_tells_what_a_plan_takes_and_what_limits_it(target: str) -> None:
    """Resources and limits are shown for the chosen plan and for each rejected one."""
    g = Graph("g")
    a, b = g.input("a", (4096, 4096), DType.fp16), g.input("b", (4096, 4096), DType.fp16)
    g.output("y", (a @ b).relu())
    lines = explain(prepare(g, target=target)).splitlines()
    plans = [i for i, line in enumerate(lines) if "Mma tile" in line or "rejected sm" in line]
    assert len(plans) >= 10
    limit = PRESETS[target].smem_per_block
    for i in plans:
        assert re.search(
            rf"shared memory \d+ B of {limit} B, registers \d+ of 255, CTAs per SM \d+, waves [\d.]+; "
            r"shared memory [\de+.]+ MB, L2 [\de+.]+ MB, memory [\de+.]+ MB; [\de+.]+ us, limited by \w+",
            lines[i + 1],
        ), lines[i : i + 2]
