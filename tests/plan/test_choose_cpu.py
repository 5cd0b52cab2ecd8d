from __future__ import annotations

import pytest

from tatami.core.target import PRESETS
from tatami.plan.choose import choose
from tatami.plan.ir import CpuContraction, CpuRows, Pass, Scalar
from tatami.plan.passes import skeleton
from tatami.plan.verify_plan import verify_plan
from tatami.poly_core.analyse import analyse
from tests.region import examples as ex

AVX512 = PRESETS["cpu:avx512"]
SIZES = {"M": 256, "N": 384, "K": 512, "D": 64, "B": 4}


def planned(make: object, sizes: dict[str, int] = SIZES) -> object:
    module = ex.program_of(make())  # type: ignore[operator]
    return choose(module, analyse(module), AVX512, None, sizes).main.regions[0]


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["cpu:avx512", "cpu:avx2", "cpu:generic", "cpu:neon"])
def test_every_region_has_a_valid_plan_and_rejected_ones(make: object, name: str) -> None:
    region = make()  # type: ignore[operator]
    module = ex.program_of(region)
    facts = analyse(module)
    plan = choose(module, facts, PRESETS[name]).main.regions[0]
    assert plan.choices[-1].conditions == ()
    assert len(plan.rejected) >= 1
    for choice in plan.choices:
        assert [str(d) for d in verify_plan(choice.plan, region, PRESETS[name])] == []


def test_gemm_is_packed() -> None:
    plan = planned(ex.gemm).choices[0].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuContraction)
    assert (plan.mr, plan.nr, plan.kc, plan.swap, plan.epilogue) == (12, 32, 384, False, ("c1", "c2"))


def test_a_matvec_is_rows() -> None:
    plan = planned(ex.gemm, {"M": 1, "N": 384, "K": 512}).choices[0].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert plan.vector_axis == "n"
    assert plan.outer[-1] == "n"


def test_softmax_has_three_passes_over_a_row() -> None:
    plan = planned(ex.softmax).choices[0].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert plan.outer == ("m",)
    assert plan.passes == (Pass(("n",), ("top",), "n"), Pass(("n",), ("e", "z"), "n"), Pass(("n",), ("p",), "n"))
    assert plan.storage == {"top": "register", "e": "row", "z": "register", "p": "register"}


def test_layer_norm_repeats_the_cheap_difference() -> None:
    bones = skeleton(ex.layer_norm(), SIZES, 1 << 20)
    assert bones.outer == ("m",)
    assert bones.storage["d"] == "recompute"
    assert [p.lets for p in bones.passes] == [("s",), ("mean",), ("v",), ("r",), ("y",)]


def test_attention_keeps_scores_in_a_row() -> None:
    bones = skeleton(ex.attention(), SIZES, 1 << 20)
    assert bones.outer == ("b", "m")
    assert [(p.axes, p.lets) for p in bones.passes] == [
        (("n", "d"), ("S",)), (("n",), ("top",)), (("n",), ("P", "Z")), (("e", "n"), ("o",)), (("e",), ("y",)),
    ]  # fmt: skip
    assert bones.storage == {"S": "row", "top": "register", "P": "row", "Z": "register", "o": "row", "y": "register"}


def test_a_moved_axis_is_not_outer() -> None:
    bones = skeleton(ex.two_windows(), SIZES, 1 << 20)
    assert bones.outer == ()
    assert bones.storage["w"] == "tile"


def test_reduces_over_outer_axes_run_in_columns() -> None:
    plan = planned(ex.column_norm).choices[0].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert plan.outer == ("n",)
    assert plan.vector_axis == "n"


def test_a_scan_is_scalar() -> None:
    assert isinstance(planned(ex.running_sum).choices[0].plan, Scalar)  # type: ignore[attr-defined]
