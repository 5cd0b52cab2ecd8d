from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr
from tatami.core.kernel import Condition
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.decisions import Decisions
from tatami.plan.choose import choose
from tatami.plan.decide import stale_decisions
from tatami.plan.ir import CpuContraction, Guarded, ProgramPlan, Sm90Pair
from tatami.plan.key import plan_key
from tatami.plan.show import show
from tatami.plan.verify import verify
from tatami.poly_core.analyse import analyse
from tatami.region.ir import Read, Region
from tatami.region.views.canonical_key import canonical_key
from tatami.region.walk import rewrite
from tests.region import examples as ex

TARGET = PRESETS["cpu:avx512"]


def plan_of(*regions: Region, decisions: dict[str, object] | None = None) -> Module[ProgramPlan]:
    module = ex.program_of(*regions)
    return choose(module, analyse(module), TARGET, decisions, {"M": 256, "N": 256, "K": 256})


def packed() -> CpuContraction:
    plan = plan_of(ex.gemm()).main.regions[0].choices[0].plan
    assert isinstance(plan, CpuContraction)
    return plan


def test_a_decision_by_key_is_obeyed() -> None:
    mine = msgspec.structs.replace(packed(), kc=128)
    got = plan_of(ex.gemm(), decisions={plan_key(ex.gemm(), TARGET): to_builtins(mine)})
    (choice,) = got.main.regions[0].choices
    assert (choice.conditions, choice.plan) == ((), mine)
    assert any("decision" in r.why for r in got.main.regions[0].rejected)


def test_a_plan_without_a_key_applies_to_the_only_region_of_its_kind() -> None:
    mine = msgspec.structs.replace(packed(), kc=128)
    assert plan_of(ex.gemm(), decisions={"": to_builtins(mine)}).main.regions[0].choices[0].plan == mine
    with pytest.raises(TatamiError, match="0 different Regions are contraction"):
        plan_of(ex.softmax(), decisions={"": to_builtins(mine)})


def test_a_plan_of_products_without_a_key_fits_a_vector_by_a_matrix() -> None:
    g = tt.Graph("vector")
    x, w = g.input("x", (1, 4096), tt.fp32), g.input("w", (4096, 4096), tt.fp32)
    g.output("y", x @ w)
    first = prepare(g, target="cpu").stages["plan"].main.regions[0].choices[0].plan
    assert isinstance(first, CpuContraction) and first.nc != 512
    mine = msgspec.structs.replace(first, nc=512)
    got = prepare(g, target="cpu", decisions=Decisions(plans={"": to_builtins(mine)})).stages["plan"]
    assert got.main.regions[0].choices[0].plan == mine


def test_where_there_is_a_matrix_a_plan_without_a_key_is_its_own() -> None:
    g = tt.Graph("two")
    a, b, x, w = (g.input(n, s, tt.fp32) for n, s in zip("abxw", ((256, 256), (256, 256), (1, 64), (64, 64))))
    g.output("y", a @ b)
    g.output("z", x @ w)
    plans = prepare(g, target="cpu").stages["plan"].main.regions
    first = next(r.choices[0].plan for r in plans if isinstance(r.choices[0].plan, CpuContraction))
    mine = msgspec.structs.replace(first, kc=128)
    got = prepare(g, target="cpu", decisions=Decisions(plans={"": to_builtins(mine)})).stages["plan"].main.regions
    assert mine in [r.choices[0].plan for r in got]


@pytest.mark.parametrize(
    "change,why",
    [
        ({"mr": 16}, "needs 35 vector registers; cpu:avx512 has 32"),
        ({"mc": 100}, "mc 100"),
        ({"acc": "c1"}, "not a contraction"),
        ({"epilogue": ()}, "epilogue"),
        ({"width": 32}, "32"),
        ({"packed": ("bias",)}, "not an operand"),
        ({"swap": True, "in_place": ("m",)}, "not a matrix with contiguous rows"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_reasons(change: dict[str, object], why: str) -> None:
    wrong = msgspec.structs.replace(packed(), **change)
    with pytest.raises(TatamiError, match=why):
        plan_of(ex.gemm(), decisions={"": to_builtins(wrong)})


TOP = {"axes": [], "lets": ["top"], "along": {"top": "n"}}


def phase(**changes: Any) -> dict[str, Any]:
    """The phase of a softmax with other fields."""
    last = {"axes": ["n"], "lets": ["p"], "vector": "n"}
    passes = [TOP, {"axes": ["n"], "lets": ["e", "z"], "vector": "n"}, last]
    return {"outer": ["m"], "threads": ["m"], "passes": passes} | changes


@pytest.mark.parametrize(
    "change,why",
    [
        ({"storage": {"top": "register", "e": "register", "z": "register", "p": "register"}}, "store it as row"),
        ({"phases": [phase(outer=["m", "n"])]}, "outer axis n"),
        ({"phases": [phase(outer=["q"])]}, "neither an axis nor a let"),
        ({"phases": [phase(passes=[{"axes": ["n"], "lets": ["e", "p", "z"], "vector": "n"}])]}, "let top is in no pass"),
        ({"phases": [phase(passes=[TOP, {"axes": ["n"], "lets": ["e", "p", "z"], "vector": "n"}])]}, "p stands before z"),
        ({"phases": [phase(passes=[TOP, {"axes": ["n"], "lets": ["e", "z", "p"], "vector": "n"}])]}, "put them last"),
        ({"phases": [phase(threads=["n"])]}, "threads share n"),
        ({"width": 64}, "16 elements"),
        ({"phases": [phase(group=3)]}, "3 neighbouring points"),
    ],
)
def test_a_schedule_that_breaks_a_rule_is_refused(change: dict[str, object], why: str) -> None:
    good = to_builtins(plan_of(ex.softmax()).main.regions[0].choices[0].plan)
    assert plan_of(ex.softmax(), decisions={"": good})
    with pytest.raises(TatamiError, match=why):
        plan_of(ex.softmax(), decisions={"": good | change})


def test_unknown_fields_and_kinds_are_named() -> None:
    with pytest.raises(TatamiError, match="unknown plan field 'tiles'"):
        plan_of(ex.gemm(), decisions={"": to_builtins(packed()) | {"tiles": 1}})
    with pytest.raises(TatamiError, match="plan kind 'magic'"):
        plan_of(ex.gemm(), decisions={"": {"kind": "magic"}})
    pair = to_builtins(Sm90Pair("s", "o", (64, 64, 64), 64, 1, 2, ()))
    with pytest.raises(TatamiError, match="unknown plan field 'persistent'"):
        plan_of(ex.gemm(), decisions={"": pair | {"persistent": False}})


def test_stale_keys_warn() -> None:
    module = ex.program_of(ex.gemm())
    keys: dict[str, Any] = {
        plan_key(ex.gemm(), TARGET): {},
        plan_key(ex.softmax(), TARGET): {},
        plan_key(ex.softmax(), PRESETS["sm90"]): {},
    }
    assert [(d.kind, d.at) for d in stale_decisions(module, TARGET, keys)] == [
        ("StaleDecision", plan_key(ex.softmax(), TARGET))
    ]


def renamed() -> Region:
    region = ex.softmax()
    lets = tuple(
        msgspec.structs.replace(n, expr=rewrite(n.expr, lambda e: Read("Y", e.map) if isinstance(e, Read) else e))
        for n in region.lets
    )
    return msgspec.structs.replace(
        region,
        name="again",
        inputs=(ex.param("Y", "M", "N"),),
        outputs=(ex.target("Z", "M", "N"),),
        lets=lets,
        yields=(msgspec.structs.replace(region.yields[0], to="Z"),),
    )


def test_equal_regions_have_one_key_and_one_plan() -> None:
    assert canonical_key(ex.softmax()) == canonical_key(renamed())
    first, second = plan_of(ex.softmax(), renamed()).main.regions
    assert (first.key, first.choices) == (second.key, second.choices)


def test_a_layout_changes_the_kernel_key_only() -> None:
    from tatami.core.layout import Layout, MemRef
    from tatami.region.ir import Param

    memref = MemRef(ex.F32, ex.param("B", "K", "N").memref.shape, layout=Layout("col_major"))
    region = msgspec.structs.replace(ex.gemm(), inputs=(ex.gemm().inputs[0], Param("B", memref), ex.gemm().inputs[2]))
    assert canonical_key(region) == canonical_key(ex.gemm())
    assert canonical_key(region, with_layout=True) != canonical_key(ex.gemm(), with_layout=True)


def test_sizes_reach_the_plan_key() -> None:
    from tatami.core.algebra.substitute import substitute_sizes

    assert canonical_key(substitute_sizes(ex.gemm(), {"M": expr(5)})) != canonical_key(ex.gemm())


def test_the_plan_document_round_trips() -> None:
    plan = plan_of(ex.gemm(), ex.attention()).main
    assert from_builtins(to_builtins(plan), ProgramPlan) == plan
    assert "cpu_contraction acc" in show(Module({"main": plan}))


def test_the_last_choice_has_no_conditions() -> None:
    module = ex.program_of(ex.gemm())
    plan = choose(module, analyse(module), TARGET).main
    assert verify(Module({"main": plan}), module) == []
    guarded = msgspec.structs.replace(plan.regions[0].choices[0], conditions=(Condition(expr("M"), 16),))
    wrong = ProgramPlan((msgspec.structs.replace(plan.regions[0], choices=(guarded,)),), {})
    assert ["no plan applies" in d.why for d in verify(Module({"main": wrong}), module)] == [True]
    assert [d.kind for d in verify(Module({"main": ProgramPlan((), {})}), module)] == ["InvalidPlan"]


def test_an_edited_plan_document_is_checked() -> None:
    module = ex.program_of(ex.softmax())
    plan = choose(module, analyse(module), TARGET).main
    good = plan.regions[0]
    wrong = msgspec.structs.replace(good.choices[0].plan, phases=())
    edited = ProgramPlan((msgspec.structs.replace(good, choices=(Guarded((), wrong),)),), {})
    assert "InvalidPlan" in [d.kind for d in verify(Module({"main": edited}), module)]


@pytest.mark.parametrize(
    "change,kind,why",
    [
        ({"tile": [256, 256, 128], "stages": 4}, "ResourceExceeded", "B per CTA"),
        ({"barrier_model": "mbarrier"}, "InvalidDocument", "mbarrier"),
        ({"stages": 9}, "InvalidPlan", "9"),
        ({"bind": {"q.o": "block.x"}}, "InvalidPlan", "not an axis"),
    ],
)
def test_a_gpu_plan_that_does_not_fit_is_refused(change: dict[str, object], kind: str, why: str) -> None:
    from tatami.core.dtype import DType

    module = ex.program_of(ex.gemm(DType.fp16))
    sm80 = PRESETS["sm80"]
    plan = choose(module, analyse(module), sm80, None, {"M": 4096, "N": 4096, "K": 4096}).main.regions[0].choices[0].plan
    document = to_builtins(plan)
    assert choose(module, analyse(module), sm80, {"": document}).main.regions[0].choices[0].plan == plan
    with pytest.raises(TatamiError, match=why) as caught:
        choose(module, analyse(module), sm80, {"": document | change})
    assert kind in [d.kind for d in caught.value.diagnostics]
