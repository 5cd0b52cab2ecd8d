"""Each rule about the plans of a program: one per Region in order, for the machine of its key, the last for all sizes."""

from __future__ import annotations

from tatami.core.expr import expr, var
from tatami.core.kernel import Condition
from tatami.core.layout import Layout
from tatami.core.module import Module
from tatami.plan.ir import CpuSplit, CpuTurn, Guarded, ProgramPlan, RegionPlan
from tatami.plan.verify import SPLIT_ALONE, target_of, verify
from tatami.region.ir import Region, Step, Yield
from tests.plan.loops.test_phase_rules import MAP, mapped
from tests.plan.test_verify_rules import AVX2, AVX512, planned, replace
from tests.region import examples as ex


def program(*plans: RegionPlan, **others: Region) -> list[str]:
    regions = ex.program_of(planned("turn")[0])
    return [f"{d.at}: {d.why}" for d in verify(Module({"main": ProgramPlan(plans, {})}), regions)]


def chosen(*choices: Guarded, key: str = "0@cpu:avx512") -> RegionPlan:
    region, plan = planned("turn")
    return RegionPlan(region.name, key, choices or (Guarded((), plan),), ())


def test_plans_of_a_program_are_one_per_region_in_order() -> None:
    name = planned("turn")[0].name
    assert program(chosen()) == []
    assert program() == [f"main: {name}: Regions and plans differ"]
    assert program(chosen(), replace(chosen(), region="q")) == ["main: : Regions and plans differ"]
    assert program(replace(chosen(), region="q")) == [f"main: {name}: Regions and plans differ"]
    assert [d.why for d in verify(Module({}), ex.program_of(planned("turn")[0]))] == ["the program has no plan"]
    two = Module({"f": ex.program_of(ex.gemm()).main, "main": ex.program_of(planned("turn")[0]).main})
    wrong = ProgramPlan((), {})
    assert [d.at.partition(":")[0] for d in verify(Module({"main": wrong}), two)] == ["f", "main"]


def test_steps_have_no_plan() -> None:
    regions = ex.program_of(planned("turn")[0])
    body = (Step("s", "host", ("f",), (), ()), *regions.main.body)
    assert verify(Module({"main": ProgramPlan((chosen(),), {})}), Module({"main": replace(regions.main, body=body)})) == []
    beside = replace(chosen(Guarded((), replace(planned("turn")[1], tile=0))), region="s")
    found = verify(Module({"main": ProgramPlan((beside, chosen()), {})}), Module({"main": replace(regions.main, body=body)}))
    assert [d.why for d in found] == ["Regions and plans differ"]


def test_each_plan_fits_its_region_on_the_machine_of_its_key() -> None:
    plan = replace(planned("turn")[1], tile=0)
    assert program(chosen(Guarded((), plan))) == [f"{planned('turn')[0].name}: tiles of 0, vectors of 16 elements"]
    assert program(chosen(Guarded((), plan), key="0@tpu")) == []
    assert program(replace(chosen(Guarded((), plan)), region="q"))[0].endswith("Regions and plans differ")
    assert "a cpu_turn plan on target sm80" in program(chosen(key="0@cuda:sm80"))[0]


def test_keys_name_presets() -> None:
    assert target_of("0@cpu:avx512") == AVX512 and target_of("0@cpu:avx2") == AVX2
    with_vnni = target_of("0@cpu:avx512+vnni")
    assert with_vnni is not None and with_vnni.features == ("vnni",)
    assert target_of("0") is None and target_of("0@cpu:sm80") is None and target_of("0@cuda:avx512") is None


def test_the_last_plan_applies_to_all_sizes_and_each_condition_may_hold() -> None:
    region, plan = planned("turn")
    some = Guarded((Condition(var("N"), 2, 1, 8),), plan)
    always = "no plan applies to all sizes"
    assert program(chosen(some, Guarded((), plan))) == []
    assert program(chosen(some)) == [f"{region.name}: {always}"]
    assert program(replace(chosen(), choices=())) == [f"{region.name}: {always}"]
    for wrong in (Condition(expr("N"), 0), Condition(expr("N"), 1, -1), Condition(expr("N"), 1, 3, 2)):
        assert program(chosen(Guarded((wrong,), plan), Guarded((), plan))) == [f"{region.name}: condition on N can never hold"]
    for fine in (Condition(expr("N"), 1), Condition(expr("N"), 1, 3, 3), Condition(expr("N"), 1, 3)):
        assert program(chosen(Guarded((fine,), plan), Guarded((), plan))) == []


def test_a_region_is_split_for_all_sizes() -> None:
    region, plan = planned("turn")
    split = CpuSplit((tuple(l.name for l in region.lets),))
    assert program(chosen(Guarded((), split))) == []
    some = Guarded((Condition(var("N"), 2),), plan)
    assert program(chosen(some, Guarded((), split))) == [f"{region.name}: {SPLIT_ALONE}"]


def test_loops_fit_values_as_they_lie_or_as_a_region_says() -> None:
    """Other plans are for what the Region says alone."""
    copied = replace(MAP, lets=(ex.let("s", "m n", ex.read("X", "m", "n")),))
    reader = replace(MAP, name="reader", inputs=(ex.param("Y", 64, 128),), outputs=(ex.target("Z", 64, 128),))
    reader = replace(reader, lets=(ex.let("s", "m n", ex.read("Y", "m", "n")),), yields=(Yield("s", "Z"),))
    last = RegionPlan("reader", "0@cpu:avx512", (Guarded((), mapped()),), ())
    along_n, along_m = mapped(nontemporal=("Y",)), mapped("n m", "n", "m", nontemporal=("Y",))
    turn = CpuTurn("m", "n", 64, 16)
    for plan, plain, turned in ((along_n, 0, 0), (along_m, 1, 0), (turn, 1, 1)):
        for layouts, count in (({}, plain), ({"Y": Layout("col_major")}, turned)):
            chosen = RegionPlan(copied.name, "0@cpu:avx512", (Guarded((), plan),), ())
            found = verify(Module({"main": ProgramPlan((chosen, last), layouts)}), ex.program_of(copied, reader))
            assert len(found) == count, (plan, layouts, found)


def test_steps_lie_nowhere() -> None:
    regions = ex.program_of(planned("turn")[0])
    body = (Step("s", "host", ("f",), (), ()), *regions.main.body)
    beside = replace(chosen(), region="s")
    found = verify(Module({"main": ProgramPlan((beside, chosen()), {})}), Module({"main": replace(regions.main, body=body)}))
    assert [d.why for d in found] == ["Regions and plans differ"]


def test_a_layout_is_of_a_value_and_of_its_axes() -> None:
    """An order of other axes ended in an error of Python, where the layout is followed."""
    plan = mapped()
    last = RegionPlan(MAP.name, "0@cpu:avx512", (Guarded((), plan),), ())
    for layouts, why in (
        ({"Y": Layout("blocked", order=(1, 0))}, ""),
        ({"Y": Layout("blocked", order=(1, 2))}, "order [1, 2] does not order 2 axes"),
        ({"Y": Layout("row_major", order=(1, 0))}, "layout row_major has no order, blocks or padding; blocked has"),
        ({"Q": Layout("col_major")}, "the program has no such value"),
    ):
        found = verify(Module({"main": ProgramPlan((last,), layouts)}), ex.program_of(MAP))
        assert why in [*(d.why for d in found), ""], (layouts, found)
        assert bool(why) == any("layout of" in d.at for d in found)
