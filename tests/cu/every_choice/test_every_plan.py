"""The record of `every_plan.py`: what NVRTC 13.0 and ptxas made of every kernel that the planner can choose for the benchmark.

Where a plan or a kernel's text is another than it was, the record is out of date: the command compiles what it lacks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.cases import timed
from tatami.core.target import PRESETS
from tests.cu.every_choice import every_plan
from tests.cu.every_choice.every_plan import GROUPS, TARGETS, Record, kernels_of, points

PATH = Path(__file__).parent / "every_plan.json"
COMMAND = "run `python -m tests.cu.every_choice.every_plan --record tests/cu/every_choice/every_plan.json`"
RECORD: dict[str, Any] = json.loads(PATH.read_text())


def test_no_kernel_of_the_record_spills_or_takes_more_than_there_is() -> None:
    assert RECORD["nvrtc"] == "13.0"
    most = {"sm_80": PRESETS["sm80"].smem_per_block, "sm_90a": PRESETS["sm90"].smem_per_block}
    for name, kernel in RECORD["kernels"].items():
        assert kernel["spilled"] == 0 and not {"LDL", "STL"} & kernel["code"].keys(), name
        assert 0 < kernel["registers"] <= 255 and kernel["shared"] <= most[name.split()[0]], name


def test_every_point_has_its_kernels() -> None:
    used = {n for names in RECORD["points"].values() for n in names}
    assert RECORD["points"] and used == RECORD["kernels"].keys()


def test_another_compiler_does_not_take_the_record_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_plan, "nvrtc_version", lambda: "13.0")
    assert Record(PATH).points == RECORD["points"]
    monkeypatch.setattr(every_plan, "nvrtc_version", lambda: "13.5")
    with pytest.raises(SystemExit, match=r"is of NVRTC 13\.0, installed is 13\.5"):
        Record(PATH)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS)
def test_the_record_has_every_plan_as_it_is_today(group: str, target: str) -> None:
    """For every third case the kernels of one plan are printed: the first plan of the first such case, the second plan of the second, and so on."""
    offered = {case.name: list(points(case, target)) for case in timed(group)}
    names = {name for plans in offered.values() for name, _ in plans}
    assert names == {p for p in RECORD["points"] if p.split(" | ")[0] == target and p.split(" | ")[1] in offered}, COMMAND
    for number, case in enumerate(timed(group)[::3]):
        name, decisions = offered[case.name][number % len(offered[case.name])]
        assert RECORD["points"][name] == [m.name for m in kernels_of(case, target, decisions)], f"{name}: {COMMAND}"
