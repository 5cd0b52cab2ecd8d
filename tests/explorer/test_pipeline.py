"""The time line of a GPU kernel's simulated pipeline: it is the run that the estimate is made of, seen by roles and units."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

import tatami as tt
from benchmarks.gpu.cases import attention, gemm
from tatami.explorer.document import explored
from tatami.explorer.ir import Pipeline
from tatami.plan.gpu.simulate import run_whole
from tatami.plan.gpu.sm_load import Pipeline as Load
from tatami.plan.simulation.roles import Span
from tatami.prepare import prepare
from tatami.targets import resolve_target

LOAD = Load(
    tiles=264, blocks=8, stages=4, ctas_per_sm=1, math_cycles=512.0, block_bytes=49152.0, l2_bytes=49152.0, dram_bytes=8192.0,
    smem_reads=49152.0, result_bytes=65536.0, store_bytes=65536.0, consumers=2, persistent=True,
)  # fmt: skip


def pipeline(case: object, target: str) -> Pipeline:
    """The one time line of a model with one product."""
    (found,) = explored(prepare(case.make(), target=target), "m").pipelines.values()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("is_specialised", [True, False])
def test_a_log_does_not_change_the_simulation(is_specialised: bool) -> None:
    import msgspec

    load = msgspec.structs.replace(LOAD, specialised=is_specialised)
    target, log = resolve_target("h100"), list[Span]()
    assert run_whole(load, target, log) == run_whole(load, target)
    lanes = defaultdict(list)
    for s in log:
        lanes[s.lane].append(s)
    for spans in lanes.values():
        spans.sort(key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(spans))  # a role and a unit do one thing at a time
    math = sum(s.end - s.start for s in lanes["multiply-adds"])
    assert math == pytest.approx(run_whole(load, target).busy["math"] * run_whole(load, target).cycles)


def test_consumers_wait_for_full_slots_and_the_producer_for_free_ones() -> None:
    p = pipeline(gemm(4096, 4096, 4096), "h100")
    waits = {lane.name: {p.tokens[t] for _, _, t in lane.spans if t >= 0} for lane in p.lanes if lane.is_role}
    assert {"producer", "consumer 0", "consumer 1"} <= waits.keys()
    assert all(t.startswith(("free slot", "tile written")) for t in waits["producer"]) and waits["producer"]
    assert any(t.startswith("full slot") for t in waits["consumer 0"])
    assert (p.tiles, p.blocks, p.of_blocks) == (2, 12, 64)
    assert max(end for lane in p.lanes for _, end, _ in lane.spans) <= p.cycles + 1


def test_attention_and_threads_without_roles_have_time_lines() -> None:
    names = {lane.name for lane in pipeline(attention(4, 16, 4096, 128, True), "h100").lanes}
    assert {"producer", "group 0", "products of group 0", "exponentials"} <= names
    p = pipeline(gemm(1024, 1024, 1024), "sm80")
    (threads,) = [lane for lane in p.lanes if lane.is_role and lane.name.startswith("threads")][:1]
    assert {p.tokens[t] for _, _, t in threads.spans if t >= 0} == {"copies of a block"}


def test_it_is_of_the_plan_that_runs_at_the_sizes() -> None:
    g = tt.Graph("product")
    x, y = g.input("x", ("M", "K"), tt.fp16), g.input("y", ("K", "N"), tt.fp16)
    g.output("z", x @ y)
    compilation = prepare(g, target="h100")
    assert len(compilation.stages["plan"].main.regions[0].choices) == 2  # the first one needs K and N that 8 divides
    for size, role in ((512, "producer"), (511, "threads")):
        (found,) = explored(compilation, "m", sizes=dict.fromkeys("MKN", size)).pipelines.values()
        assert any(lane.is_role and lane.name.startswith(role) for lane in found.lanes)


def test_a_cpu_program_has_none() -> None:
    assert explored(prepare(gemm(64, 64, 64).make(), target="cpu:avx2"), "m").pipelines == {}
