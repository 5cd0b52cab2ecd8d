"""Two products in one kernel: which Regions it takes, what its plan may say, and what its protocol must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr, var
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.show import show
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import GpuStream, Guarded, Sm80Pair
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.region.walk import reads
from tests.gpu.test_verify import Edit, change, drop, edited


def attention(
    depth: Any = 64, columns: Any = 64, dtype: Any = tt.fp16, heads: int = 2, turned: bool = False, **attrs: Any
) -> tt.Graph:
    """S rows, T keys; `turned`: rows and keys are contiguous."""
    g = tt.Graph("attention")

    def operand(name: str, count: int, size: str, width: Any) -> Any:
        if turned:
            return g.input(name, ("B", count, width, size), dtype).transpose(-2, -1)
        return g.input(name, ("B", count, size, width), dtype)

    q, k, v = operand("q", 2, "S", depth), operand("k", heads, "T", depth), operand("v", heads, "T", columns)
    g.output("y", q.attention(k, v, **attrs))
    return g


def region_of(g: tt.Graph, **options: Any) -> Region:
    (found,) = (x for x in prepare(g, target="sm80", **options).stages["region"].main.body if isinstance(x, Region))
    return found


def view_of(g: tt.Graph) -> PairView:
    view = pair_view(region_of(g))
    assert isinstance(view, PairView), view
    return view


def plan_for(region: Region, **fields: Any) -> Sm80Pair:
    v = pair_view(region)
    assert isinstance(v, PairView)
    plan = Sm80Pair(v.first, v.second, (64, 64, 32), 64, 16, 2, (v.rows, v.keys))
    return msgspec.structs.replace(plan, **fields)


PRECISION = {"m16n8k16": "fp32", "fma": "fp32", "m16n8k8": "tf32"}


def region_for(shape: str, width: int = 64, **attrs: Any) -> Region:
    """An attention whose operands the instruction multiplies."""
    dtype = tt.fp16 if shape == "m16n8k16" else tt.fp32
    return region_of(attention(width, width, dtype, **attrs), precision=PRECISION[shape])


def kernel(stages: int, shape: str = "m16n8k16", **attrs: Any) -> ir.Kernel:
    region = region_for(shape, **attrs)
    made = lower_pair(region, Guarded((), plan_for(region, stages=stages, inst_shape=shape)), PRESETS["sm80"])[-1][0]
    assert isinstance(made, ir.Kernel)
    return made


@pytest.mark.parametrize("shape", PRECISION)
def test_the_planner_takes_it_and_no_scores_are_in_memory(shape: str) -> None:
    graph = attention(dtype=tt.fp16 if shape == "m16n8k16" else tt.fp32, causal=True)
    stages = prepare(graph, target="sm80", precision=PRECISION[shape]).stages
    plan = stages["plan"].main.regions[0].choices[0].plan
    assert isinstance(plan, Sm80Pair) and plan.inst_shape == shape
    bindings = stages["gpu"].main.bindings
    assert all("S*T" not in str(size) for b in bindings for _, size in b.scratch)
    assert "tP[k] = Rescale acc after tW[k]" in show(stages["gpu"])


def test_a_causal_row_sees_the_keys_up_to_itself() -> None:
    view = view_of(attention(causal=True))
    assert (view.low, view.high) == ((), (var(view.rows),))


def test_a_window_bounds_the_keys_from_both_sides() -> None:
    view = view_of(attention(causal=True, window=8))
    assert view.low == (var(view.rows) - 7,) and view.high == (var(view.rows),)


def test_keys_up_to_a_length_in_memory_are_bounded_by_it() -> None:
    """The length is read once a tile: blocks behind it are passed over, and only the block that it cuts is masked."""
    g = tt.Graph("lengths")
    q, k, v = (g.input(n, ("B", 2, "S", 64), tt.fp16) for n in "qkv")
    full = ("B", 2, "S", "S")
    lengths = g.input("n", ("B",), tt.i64).reshape("B", 1, 1, 1).expand(full)
    g.output("y", q.attention(k, v, (g.iota(full, 3) < lengths) & (g.iota(full, 3) <= g.iota(full, 2))))
    view = view_of(g)
    assert set(view.high) == {var("known0'") - 1, var(view.rows)} and [r.tensor for r in view.known.values()] == ["n3"]
    assert view.excluded is not None and not reads(view.excluded)
    made = prepare(g, target="sm80").stages
    assert "known0 = p0[b0]" in show(made["gpu"])
    (unit,) = (u for u in made["cu"].main.units if "known0" in u.text)
    assert "tt_min_size(tt_min_size(keys, m_last + 1), known0)" in unit.text


def test_without_a_mask_no_kernel_looks_at_the_values_first() -> None:
    assert len(prepare(attention(), target="sm80").stages["gpu"].main.bindings) == 1


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (attention(dtype=tt.fp64), "operands are fp64; the template takes fp16, bf16 or fp32"),
        (attention(depth=512), "depth 512, 64 columns: the template keeps 1 to 256 of each on chip"),
    ],
    ids=["fp64", "deep"],
)
def test_what_it_does_not_take_is_streamed_and_says_why(graph: tt.Graph, why: str) -> None:
    plan = prepare(graph, target="sm80").stages["plan"].main.regions[0]
    assert isinstance(plan.choices[0].plan, GpuStream)
    assert any(why in r.why for r in plan.rejected), [r.why for r in plan.rejected]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"warp_rows": 24}, "64 rows by warps of 24"),
        ({"tile": (64, 64, 24)}, "24 keys: no multiple of 16"),
        ({"stages": 5}, "stages 5 is outside 1..4"),
        ({"tile": (128, 64, 256), "warp_rows": 32}, "registers per thread > 255 and 16 in memory"),
        ({"tile": (512, 64, 128), "stages": 4}, "B > 166912 B per CTA"),
        ({"first": "nothing"}, "the Region has"),
        ({"predicate_tail": ()}, "is not in predicate_tail"),
        ({"depth": 32}, "the plan has room for 32"),
        ({"inst_shape": "fma"}, "inst_shape fma does not multiply fp16; m16n8k16 does"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_a_plan_that_cannot_be_is_refused_with_numbers(fields: dict[str, Any], why: str) -> None:
    region = region_of(attention())
    plan = plan_for(region, **fields)
    found = [d.why for d in verify_plan(plan, region, PRESETS["sm80"])]
    if not found:
        with pytest.raises(TatamiError) as error:
            lower_pair(region, Guarded((), plan), PRESETS["sm80"])
        found = [d.why for d in error.value.diagnostics]
    assert any(why in f for f in found), found


@pytest.mark.parametrize("shape", PRECISION)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_every_depth_is_free_of_hazards(stages: int, shape: str) -> None:
    assert verify_kernel(kernel(stages, shape, causal=True)) == []


FAULTS: list[tuple[str, int, Edit, int | None, str]] = [
    ("keys read before their Wait", 1, drop(statement_ir.Wait, lambda s: s.token[0].name == "tK"), None, "precedes a Wait"),
    ("values read before their Wait", 1, drop(statement_ir.Wait, lambda s: s.token[0].name == "tB"), None, "precedes a Wait"),
    ("values refilled under the second product", 1, drop(statement_ir.SyncThreads), 0, "TokFree"),
    ("keys refilled under the first product", 1, drop(statement_ir.SyncThreads), 1, "TokFree"),
    ("one barrier too few", 2, drop(statement_ir.SyncThreads), None, "and a barrier after it"),
    ("one group too many pending", 3, change(statement_ir.Wait, pending=2), None, "pending groups leave tK[k] under way"),
    (
        "rows that never arrive",
        2,
        drop(statement_ir.CpAsync, lambda s: s.dst_smem == "smQ"),
        None,
        "tQ is never given",
    ),
    ("a commit dropped", 1, drop(statement_ir.CommitGroup), 0, "in no committed group"),
    (
        "keys copied too early",
        2,
        change(statement_ir.CpAsync, lambda s: str(s.block) == "k + 1", block=var("k") + 2),
        None,
        "holds another",
    ),
    (
        "weights of no scores",
        2,
        change(statement_ir.Weigh, in_token=statement_ir.Token("tK", var("k"))),
        None,
        "tK is a TokLoad; TokCompute is needed",
    ),
    (
        "rows filled again",
        2,
        change(statement_ir.CpAsync, lambda s: s.dst_smem == "smK", dst_smem="smQ"),
        None,
        "copies into smQ give tQ and tK",
    ),
    (
        "the first block twice",
        3,
        change(statement_ir.CpAsync, lambda s: str(s.block) == "1", block=expr(0)),
        None,
        "was never filled",
    ),
]


FAULTS_OF_FMA: list[tuple[str, int, Edit, int | None, str]] = [
    ("keys read before their Wait", 1, drop(statement_ir.Wait, lambda s: s.token[0].name == "tK"), None, "precedes a Wait"),
    ("values refilled under the second product", 1, drop(statement_ir.SyncThreads), 0, "TokFree"),
    (
        "weights of the block before",
        2,
        change(statement_ir.Rescale, block=var("k") - 1),
        None,
        "multiplies weights of another block",
    ),
    (
        "scores for weights",
        2,
        change(statement_ir.Fma, lambda s: s.acc == "scores", in_token=(statement_ir.Token("tP", var("k")),)),
        None,
        "TokLoad is needed",
    ),
]


@pytest.mark.parametrize(("name", "stages", "edit", "only", "message"), FAULTS_OF_FMA, ids=[f[0] for f in FAULTS_OF_FMA])
def test_a_planted_fault_of_multiply_adds_is_named(name: str, stages: int, edit: Edit, only: int | None, message: str) -> None:
    found = verify_kernel(edited(kernel(stages, "fma"), edit, only))
    assert found and message in found[0].why, (name, found)


@pytest.mark.parametrize(("name", "stages", "edit", "only", "message"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_named(name: str, stages: int, edit: Edit, only: int | None, message: str) -> None:
    found = verify_kernel(edited(kernel(stages), edit, only))
    assert found, f"{name} was not found"
    assert message in found[0].why, found[0].why
