"""Each rule of the verifier of plans for tensor cores and pairs of products: a plan that breaks it is named."""

from __future__ import annotations

from typing import Any

import pytest

from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.plan.ir import LocalEdge, Sm90Pair, Vectorize
from tatami.plan.verify_plan import verify_plan
from tatami.region.ir import Ref, Region, Unary, Yield
from tatami.region.views.pairs.pair import pair_view
from tests.cu.every_choice.legal_problems import CONVOLUTIONS, image_region
from tests.gpu.gemm_examples import gemm, rows_in_groups
from tests.gpu.gemm_examples import sm80 as any_sm80
from tests.gpu.gemm_examples import sm90 as any_sm90
from tests.gpu.gemm_examples import sync as any_sync
from tests.gpu.pairs.test_pair import attention, plan_for, region_of
from tests.plan.test_verify_rules import AVX512, faults, replace
from tests.region import examples as ex

PAIR = region_of(attention())


def sm80(*tile: Any, **fields: Any) -> Any:
    """A plan that names the epilogue of `gemm`."""
    return any_sm80(*tile, epilogue=("bias", "relu"), **fields)


def sync() -> Any:
    """The same of the synchronous template."""
    return replace(any_sync(), epilogue=("bias", "relu"))


def sm90(*tile: Any, **fields: Any) -> Any:
    """A plan for sizes that its tiles divide."""
    edges = (LocalEdge("sum_k", "relu", "reg"),)
    return replace(any_sm90(*tile, tail=(), edges=edges, **fields), epilogue=("bias", "relu"))


NCHW = image_region(next(iter(CONVOLUTIONS)), True)


def test_pairs_of_products_are_the_region_s() -> None:
    region, sm = PAIR, PRESETS["sm80"]
    plan = plan_for(region)
    assert faults(plan, region, sm) == []
    assert faults(plan, region) == [f"a sm80_pair plan on target {AVX512.name}"]
    assert faults(plan, ex.softmax(), sm)[0].startswith("no pair of products to stream: ")
    for change in ({"first": "q"}, {"second": "q"}):
        assert "; the Region has " in faults(replace(plan, **change), region, sm)[0]
    assert "inst_shape fma does not multiply fp16; m16n8k16 does" in faults(replace(plan, inst_shape="fma"), region, sm)
    (found,) = faults(replace(plan, predicate_tail=("q.o",)), region, sm)
    assert found == "predicate_tail names 'q.o', which is not an axis"
    assert faults(replace(plan, predicate_tail=("m.o", "n", "k", "d", region.iters[0].name)), region, sm) == []
    assert faults(replace(plan, predicate_tail=("m.o.i", "n")), region, sm) == []
    (found,) = faults(replace(plan, predicate_tail=("m.o", "m")), region, sm)
    assert found == "predicate_tail names m 2 times"
    big = verify_plan(replace(plan, tile=(256, 64, 256)), region, sm)
    assert big and not {d.kind for d in big} - {"InvalidPlan", "ResourceExceeded"}


def test_plans_of_tensor_cores_are_for_their_machines() -> None:
    region = gemm(256, 256, 256)
    for plan, names in (
        (sm80((64, 64, 32), 2), ("sm80", "sm90")),
        (sm90((128, 64, 64), 2), ("sm90",)),
        (sync(), ("sm80", "sm90")),
    ):
        for target in ("sm80", "sm90", "cpu:avx512"):
            found = faults(plan, region, PRESETS[target])
            assert found == ([] if target in names else [f"a plan for {plan.arch} on target {PRESETS[target].name}"])
        assert faults(plan, ex.softmax(), PRESETS["sm90"]) == ["the plan is for a contraction; the Region has 0"]


GPU: list[tuple[Any, dict[str, Any], str]] = [
    (sm80((64, 64, 32), 2), {"bind": {"q": "blockIdx.x"}}, "'q' is not an axis of the Region"),
    (sm80((64, 64, 32), 2), {"predicate_tail": ("q.o",)}, "'q.o' is not an axis of the Region"),
    (sm80((64, 64, 32), 2), {"predicate_tail": ("m.o", "m.i.i")}, "predicate_tail names m 2 times"),
    (sm80((64, 64, 32), 2), {"predicate_tail": ("m.q",)}, "predicate_tail names 'm.q': parts of an axis are .o and .i"),
    (
        sm80((64, 64, 32), 2),
        {"bind": {"m.o": "block.z", "n.o": "block.x"}, "tile_order": "hilbert"},
        "bind puts m.o on block.z, n.o on block.x: tile_order hilbert counts tiles along block.x and block.y",
    ),
    (sm80((64, 64, 32), 2), {"barrier_model": "mbarrier"}, "barrier_model mbarrier on sm80"),
    (sm90((128, 64, 64), 2), {"barrier_model": "cp_async_group"}, "barrier_model cp_async_group on sm90"),
    (sm80((64, 64, 16), 2), {"stages": 0}, "stages 0 is outside 2..8"),
    (sm90((128, 64, 64), 2), {"stages": 0}, "stages 0 is outside 2..8"),
    (sm80((64, 64, 16), 2), {"stages": 9}, "stages 9 is outside 2..8"),
]


WIDTH, EDGE = ("n.i.i", 16), LocalEdge("sum_k", "relu", "reg")
GPU += [
    (
        sm80((64, 64, 32), 2),
        {"vectorize": Vectorize(*WIDTH)},
        "vectorize.width 16: an access has 16 bytes at most, and tiles that TMA moves have none; use 8",
    ),
    (
        sm90((128, 64, 64), 2, epilogue_store="stmatrix_tma"),
        {"vectorize": Vectorize("n.i.i", 4)},
        "vectorize.width 4: an access has 16 bytes at most, and tiles that TMA moves have none; use 8",
    ),
    (
        sm90((128, 64, 64), 2),
        {"predicate_tail": ("k.i.i",)},
        "predicate_tail names k.i.i: 256 is a multiple of its tile of 64; leave it out",
    ),
    (sm90((128, 64, 64), 2), {"local_edges": ()}, "local_edges leaves out acc -> c1: name it, with buffer reg"),
    (sm80((64, 64, 32), 2), {"local_edges": (EDGE, EDGE)}, "local_edges sum_k -> relu: acc has one edge; leave it out"),
]


@pytest.mark.parametrize(("plan", "fields", "why"), GPU, ids=[w for _, _, w in GPU])
def test_a_broken_rule_of_a_gpu_plan_is_named(plan: Any, fields: dict[str, Any], why: str) -> None:
    region = gemm(256, 256, 256)
    target = PRESETS[plan.arch]
    assert faults(plan, region, target) == []
    assert why in faults(replace(plan, **fields), region, target)


@pytest.mark.parametrize("axis", ["m", "n", "k", "b", "m.o", "k.i"])
def test_axes_by_their_roles_are_known(axis: str) -> None:
    region = gemm(256, 256, 256)
    for plan in (sm80((64, 64, 32), 2), sync()):
        assert faults(replace(plan, bind={axis: "x"}, predicate_tail=(axis,)), region, PRESETS["sm80"]) == []


def test_warpgroups_have_registers_for_what_they_keep() -> None:
    """128 accumulators and a residual that no warp loads while others multiply."""
    plan = sm90((128, 256, 64), 2, persistent=True)
    region, target = gemm(256, 256, 256, residual=True), PRESETS["sm90"]
    (found,) = faults(plan, region, target)
    assert found.endswith("besides operands of the epilogue that are read while the producer waits")
    for other in (
        replace(plan, persistent=False),
        sm90((128, 256, 64), 2, persistent=True, overlap=True),
        replace(plan, epilogue_load="tma", epilogue_store="stmatrix_tma"),
        sm90((128, 128, 64), 2, persistent=True),
        sm90((128, 256, 64), 2, persistent=True, cluster=(2, 1), overlap=True),
    ):
        assert faults(other, region, target) == []
    assert faults(plan, gemm(256, 256, 256), target) == []
    assert faults(replace(plan, epilogue_store="stmatrix_tma"), region, target) == [found]


def test_addresses_that_are_made_of_quotients_leave_registers_for_fewer_accumulators() -> None:
    """Rows of a product that are two axes of its result."""
    region = replace(NCHW, name="conv")
    for cluster, count in (((2, 1), 1), ((1, 2), 1), ((1, 1), 0)):
        plan = sm90((128, 256, 64), 2, persistent=True, overlap=True, cluster=cluster)
        found = [f for f in faults(plan, region, PRESETS["sm90"]) if f.endswith("besides addresses that are made of quotients")]
        assert len(found) == count


def test_rows_in_groups_are_for_some_templates() -> None:
    assert faults(sync(), rows_in_groups(), PRESETS["sm80"]) == ["gpu_sync does not take rows in groups"]


def test_a_region_of_two_products_is_measured_by_the_first() -> None:
    assert faults(sm80((128, 128, 64), 4), PAIR, PRESETS["sm80"]) == []


def two_products(dtype: DType) -> Region:
    """(exp(Q K^T)) V, with Q and K of `dtype`, and all sums in fp32."""
    score = ex.total("d", ex.mul(ex.read("Q", "m", "d"), ex.read("K", "n", "d")))
    lets = (
        ex.let("s", "m n", score),
        ex.let("p", "m n", Unary("exp", Ref("s"))),
        ex.let("o", "m e", ex.total("n", ex.mul(Ref("p"), ex.read("V", "n", "e")))),
    )
    inputs = (ex.param("Q", "M", "D", dtype=dtype), ex.param("K", "N", "D", dtype=dtype), ex.param("V", "N", "D"))
    sizes = ex.iters(m="M", n="N", e="D")
    return Region("two", sizes, ex.iters(d="D"), inputs, (ex.target("O", "M", "D"),), lets, (Yield("o", "O"),))


def test_a_region_of_two_products_has_the_operands_of_the_first() -> None:
    plan = sm80((128, 128, 64), 4)
    assert faults(plan, two_products(DType.fp16), PRESETS["sm80"]) == []
    (found,) = faults(plan, two_products(DType.fp32), PRESETS["sm80"])
    assert found.startswith("shared memory 262144 B > ")


def test_what_a_plan_takes_of_the_machine_is_asked_once_it_breaks_no_rule() -> None:
    region = gemm(256, 256, 256)
    (found,) = verify_plan(sm80((128, 128, 64), 8), region, PRESETS["sm80"])
    assert found.kind == "ResourceExceeded"
    broken = verify_plan(sm80((128, 128, 60), 8), region, PRESETS["sm80"])
    assert broken and all(d.kind == "InvalidPlan" for d in broken)


def test_tails_of_a_pair_are_partial() -> None:
    """TMA fills what lies beyond the keys and the depth: a tail of whole tiles is refused."""
    region = PAIR
    view = pair_view(region)
    assert not isinstance(view, str)
    plan = Sm90Pair(view.first, view.second, (128, 64, 32), 64, 2, 2, ())
    sm = PRESETS["sm90"]
    assert faults(plan, region, sm) == []
    assert faults(replace(plan, predicate_tail=(view.keys,)), region, sm) == []
    assert faults(replace(plan, predicate_tail=(view.depth,)), region, sm) == [
        f"predicate_tail names {view.depth}: 64 is a multiple of its tile of 64; leave it out"
    ]
