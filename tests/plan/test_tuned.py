"""The tables of tuned plans: each entry is of a product of the benchmark, says what ranked it, and is what the planner takes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu.cases import Case, attention, gemm, timed, tuned
from benchmarks.gpu.tuned import measured
from tatami.api import Compilation, prepare
from tatami.decisions import Decisions
from tatami.gpu.ir import Kernel
from tatami.gpu.lower import lower_region
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.verify import verify_kernel
from tatami.plan import tuned as tables
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Guarded, RegionPlan, Sm90Mma, Sm90Pair
from tatami.plan.key import plan_key
from tatami.plan.tuned import Entry, tuned_table
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions

CASE = gemm(1024, 1024, 1024)
CASES = {c.name: c for c in tuned()}
PRODUCTS = {c.name for c in timed("gemm")}
STEP = 5
"""Step through the cases that are not products: every fifth is tested."""


WITHOUT = {"gemm 4096x4096x4096 fp32 nn", "gemm 4095x4095x4095 bf16 nn"}
"""Cases that the SM90 template does not take."""


def product(case: Case, chip: str) -> tuple[Compilation, Region]:
    compilation = prepare(case.make(), target=chip)
    (region,) = (r for r in compilation.stages["realised"].main.body if isinstance(r, Region) and contractions(r))
    return compilation, region


def planned(compilation: Compilation) -> RegionPlan:
    """The plan of the one Region with a product."""
    found: RegionPlan = compilation.stages["plan"].main.regions[-1]
    return found


@pytest.mark.parametrize("chip", ["h100", "h200"])
def test_each_entry_is_taken_and_as_quick_as_its_record_says(chip: str) -> None:
    table = tuned_table(chip)
    assert {e.case for e in table.values()} == CASES.keys() - WITHOUT
    others = [k for k, e in table.items() if e.case not in PRODUCTS]
    for key in [*(k for k in table if k not in others), *others[(chip == "h200") :: STEP]]:
        entry = table[key]
        compilation, region = product(CASES[entry.case], chip)
        assert plan_key(region, compilation.target) == key, entry.case
        (choice,) = planned(compilation).choices
        own = measurable(region, compilation.target, {})[0]
        assert choice.estimate["total"] <= own.estimate["total"] * (1 + 1e-9), entry.case
        if entry.ranked_by == "simulation":
            assert choice.estimate["total"] == pytest.approx(entry.seconds, rel=1e-9), entry.case


def test_a_tuned_kernel_is_proved() -> None:
    compilation, region = product(CASE, "h200")
    (choice,) = planned(compilation).choices
    assert isinstance(choice.plan, Sm90Mma) and choice.plan.cluster == (2, 1)
    assert verify_kernel(lower_region(region, choice, compilation.target)[0]) == []


def test_attention_of_the_table_mixes_as_many_batches_as_leave_the_sms_even() -> None:
    compilation, region = product(attention(4, 16, 4096, 128, True), "h100")
    (choice,) = planned(compilation).choices
    assert isinstance(choice.plan, Sm90Pair) and choice.plan.section
    assert choice.estimate["wave_eff"] > 0.95
    *_, (kernel, _) = lower_pair(region, choice, compilation.target)
    assert isinstance(kernel, Kernel) and verify_kernel(kernel) == []


def test_explain_says_where_a_tuned_plan_comes_from() -> None:
    compilation, _ = product(CASE, "h200")
    entry = next(e for e in tuned_table("h200").values() if e.case == CASE.name)
    told = f"us by {entry.ranked_by} of {entry.plans} plans"
    assert any("the table of h200 has" in r.why and told in r.why for r in planned(compilation).rejected)


def test_a_decision_comes_before_the_table() -> None:
    compilation, region = product(CASE, "h200")
    key = plan_key(region, compilation.target)
    own = measurable(region, compilation.target, {})[0].plan
    again = prepare(CASE.make(), target="h200", decisions=Decisions(plans={key: own}))
    assert planned(again).choices[0].plan == own


def test_a_measurement_takes_the_place_of_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan that was measured fastest is taken, whatever its simulated time."""
    (key, old) = next((k, e) for k, e in tuned_table("h200").items() if e.case == CASE.name)

    def row(seconds: float, stages: int, ok: bool = True) -> dict[str, Any]:
        document = {**old.document, "stages": stages, "async": {**old.document["async"], "prefetch_depth": stages}}
        return {"name": CASE.name, "key": key, "ok": ok, "median": {"Tatami": seconds}, "document": document}

    record = {"steps": [{"step": "plans", "rows": [row(9e-6, 4), row(8e-6, 3), row(1e-6, 2, ok=False)]}]}
    found = measured(record, "h200.json")
    assert found == {key: Entry(CASE.name, "measurement", 8e-6, 2, "h200.json", row(8e-6, 3)["document"])}
    monkeypatch.setattr(tables, "tuned_table", lambda chip: found)
    best = planned(prepare(CASE.make(), target="h200")).choices[0]
    assert isinstance(best, Guarded) and isinstance(best.plan, Sm90Mma) and best.plan.stages == 3


def test_a_chip_without_a_table_has_the_planners_choice() -> None:
    compilation, region = product(CASE, "sm90")
    assert tuned_table("sm90") == {}
    assert planned(compilation).choices[0].plan == measurable(region, compilation.target, {})[0].plan
