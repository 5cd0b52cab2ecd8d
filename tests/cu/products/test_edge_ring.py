"""The accumulator's edge through shared memory (`local_edges` by smem_ring, spec 3 §8.1): numbers, races, machine code,
and what a plan may not say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.decisions import Decisions
from tatami.gpu.lower import lower_region
from tatami.gpu.proof.verify_memory import check_memory
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Guarded, LocalEdge, Sm80Mma
from tatami.plan.key import plan_key
from tatami.plan.views.product_limits import needs
from tatami.region.ir import Region
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import machine_code
from tests.cu.test_compile import BY8, compiled
from tests.cu.test_numbers import compare
from tests.emulated.kernels import Built, changed
from tests.gpu.gemm_examples import gemm, sm80, sm90


def by_ring(plan: Any, depth: int = 2, source: str = "acc") -> Any:
    return msgspec.structs.replace(plan, local_edges=(LocalEdge(source, "relu", "smem_ring", depth),))


SMALL = sm80((64, 64, 32), warp="32x32")


@pytest.mark.parametrize(
    ("region", "plan", "conditions"),
    [
        (gemm(residual=True), by_ring(SMALL), BY8),
        (gemm(dtype=DType.bf16), by_ring(sm80((64, 128, 32), 3, warp="32x64", overlap=True), depth=1), BY8),
        (gemm(out=DType.fp32), by_ring(SMALL, depth=3), BY8),
        (gemm(), by_ring(sm80((32, 64, 32), warp="16x16")), ()),
        (
            gemm(dtype=DType.fp32, out=DType.fp32, tf32=True),
            by_ring(sm80((64, 64, 16), warp="32x32", inst_shape="m16n8k8")),
            (),
        ),
    ],
    ids=["residual", "persistent, one slot", "fp32 results", "single elements", "tf32"],
)
def test_it_computes_the_same(region: Region, plan: Sm80Mma, conditions: Any) -> None:
    compare(
        region, plan, "sm80", {"M": 136, "N": 120, "K": 72} if conditions else {"M": 37, "N": 53, "K": 19}, conditions, sms=2
    )


def test_a_plan_of_a_convolution_says_how_its_sums_reach_silu() -> None:
    """Row C-73: the plan's word changes the kernel, and both compute the same."""
    g = tt.Graph("c")
    x, w = g.input("x", (2, 8, 9, 9), tt.fp16), g.input("w", (16, 8, 3, 3), tt.fp16)
    g.output("y", x.conv(w, padding=1).silu())
    texts, results = [], []
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float16) for n, s in (("x", (2, 8, 9, 9)), ("w", (16, 8, 3, 3)))}
    chosen = prepare(g.module(), target="emulated-sm80")
    region = next(r for r in chosen.stages["region"].main.body if isinstance(r, Region))
    lying = next(r for r in chosen.stages["realised"].main.body if r.name == region.name)
    plan = next(o.plan for o in measurable(lying, chosen.target, {}) if isinstance(o.plan, Sm80Mma))
    assert [(e.buffer, e.depth) for e in plan.local_edges] == [("reg", 1)]
    for edge in (plan.local_edges[0], LocalEdge(plan.local_edges[0].source, plan.local_edges[0].target, "smem_ring", 2)):
        decided = Decisions(plans={plan_key(region, chosen.target): msgspec.structs.replace(plan, local_edges=(edge,))})
        made = prepare(g.module(), target="emulated-sm80", decisions=decided)
        texts.append("".join(u.text for u in made.stages["cu"].main.units))
        results.append(build(made)(arrays)["y"])
    assert "smE" not in texts[0] and "smE" in texts[1]
    np.testing.assert_array_equal(results[0], results[1])


def test_the_ring_is_part_of_what_the_plan_needs() -> None:
    for depth in (1, 2, 4):
        kernel, _ = lower_region(gemm(), Guarded(BY8, by_ring(SMALL, depth)), PRESETS["sm80"])
        ring = kernel.smem[-1]
        assert (ring.name, ring.slots, ring.rows, ring.row_bytes) == ("smE", depth, 16 * 4, 32 * 4 + 16)
        assert kernel.shared_bytes == needs(by_ring(SMALL, depth), DType.fp16, PRESETS["sm80"]).smem_bytes
        assert check_memory(kernel) == []
        narrow = msgspec.structs.replace(ring, row_bytes=ring.row_bytes // 2)
        wrong = msgspec.structs.replace(kernel, smem=(*kernel.smem[:-1], narrow))
        assert "does not hold" in check_memory(wrong)[0].why


@pytest.mark.parametrize(
    ("depth", "planted"),
    [(2, changed("tt_sync_warp();\n", "\n")), (1, changed("tt_sync_warp();  // all", "// all"))],
    ids=["read before it is laid down", "laid over what others still read"],
)
def test_a_missing_barrier_of_the_warp_is_a_race(depth: int, planted: Any) -> None:
    built = Built(gemm(), by_ring(SMALL, depth), "sm80", BY8, planted)
    arrays = {"A": np.ones((64, 32), np.float16), "B": np.ones((32, 64), np.float16), "bias": np.ones(64, np.float16)}
    report, _ = built.report(arrays, {"M": 64, "N": 64, "K": 32})
    assert report is not None and report.check in ("race", "uninitialised") and "smE" in report.text


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (by_ring(SMALL, depth=5), "depth 5 is outside 1..4"),
        (by_ring(SMALL, source="c1"), "only what leaves the accumulator"),
        (msgspec.structs.replace(SMALL, local_edges=(LocalEdge("a", "b", "l2"),)), "reg and smem_ring are implemented"),
        (msgspec.structs.replace(SMALL, local_edges=(LocalEdge("a", "b", "reg", 2),)), "registers hold one"),
        (by_ring(sm80((64, 64, 32), enable=False)), "has neighbours"),
        (by_ring(sm90()), "epilogue_store says how results leave"),
    ],
)
def test_what_a_plan_may_not_say_of_it(plan: Any, why: str) -> None:
    target = "sm80" if isinstance(plan, Sm80Mma) else "sm90"
    with pytest.raises(TatamiError, match=why):
        lower_region(gemm(), Guarded(BY8, plan), PRESETS[target])


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_its_machine_code_stores_16_bytes(tmp_path: Path) -> None:
    code = machine_code(compiled(gemm(residual=True), by_ring(sm80((128, 128, 32), 3)), "sm80"), tmp_path)
    assert sum(n for op, n in code.items() if op.startswith("STG")) == sum(
        n for op, n in code.items() if op.startswith("STG.E.128")
    )
    assert not any(op.startswith(("STL", "LDL")) for op in code)
