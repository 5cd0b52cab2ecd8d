"""Facts that are not those of their Regions are named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.poly_core.analyse import analyse
from tatami.poly_core.ir import PairDependence, PolyCore
from tatami.poly_core.verify import verify
from tests.region import examples as ex

REGIONS = ex.program_of(ex.gemm())
FACTS = analyse(REGIONS)
replace = msgspec.structs.replace


def faults(core: PolyCore | None) -> list[str]:
    return [f"{d.at}: {d.why}" for d in verify(Module({} if core is None else {"main": core}), REGIONS)]


def test_facts_of_the_regions_pass() -> None:
    assert verify(FACTS, REGIONS) == []
    steps = msgspec.structs.replace(REGIONS.main, body=(*REGIONS.main.body, ex_step()))
    assert verify(FACTS, Module({"main": steps})) == []


def ex_step() -> Any:
    from tatami.region.ir import Step

    return Step("s", "host", ("f",), (), ())


@pytest.mark.parametrize("field", ["kind", "parallel_axes", "affine_closed", "flops", "barrier", "bytes_written"])
def test_a_wrong_fact_is_named(field: str) -> None:
    wrong = {
        "kind": "map",
        "parallel_axes": ("m",),
        "affine_closed": False,
        "flops": expr("1" + "0" * 130),
        "barrier": {},
        "bytes_written": expr(1),
    }
    (facts,) = FACTS.main.regions
    found = faults(replace(FACTS.main, regions=(replace(facts, **{field: wrong[field]}),)))
    assert len(found) == 1 and f": {field} is " in found[0], found


def test_long_facts_are_cut() -> None:
    (facts,) = FACTS.main.regions
    for length, said in ((119, "k" * 119 + ","), (120, "k" * 117 + "...,")):
        (found,) = faults(replace(FACTS.main, regions=(replace(facts, kind="k" * length),)))
        assert f"kind is {said}" in found


def test_missing_facts_are_named() -> None:
    assert faults(None) == ["main: the program has no facts"]
    assert [f.partition(": the")[2] for f in faults(replace(FACTS.main, regions=()))] == [" Region has no facts"]
    extra = PairDependence("true", "a", "b", "t")
    assert faults(replace(FACTS.main, dependences=(extra,))) == ["main: the dependences are not those of the Regions"]
    two = Module({"f": REGIONS.main, "main": REGIONS.main})
    assert [d.at for d in verify(Module({"main": replace(FACTS.main, dependences=(extra,))}), two)] == ["f", "main"]
