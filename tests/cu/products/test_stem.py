"""A stem (3 channels, 7x7 in steps of 2): tiles whose elements are copied one by one, against the streaming template. Instructions of both
are counted in machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import Compilation, prepare
from tatami.decisions import Decisions
from tatami.plan.gpu.sm_load import SINGLE_ISSUES
from tatami.plan.gpu.stream_estimate import POINT_ISSUES, STEP_ISSUES
from tatami.plan.ir import GpuStream, Sm80Mma
from tatami.plan.key import plan_key
from tatami.report.explain import explain
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, instructions


def stem(images: int, size: int) -> tt.Graph:
    g = tt.Graph("stem")
    weights = g.constant((np.random.default_rng(0).integers(-8, 9, (64, 3, 7, 7)) / 64).astype(np.float16))
    g.output("y", g.input("x", (images, 3, size, size), tt.fp16).conv(weights, stride=2, padding=3).relu())
    return g


def code(c: Compilation, folder: Path) -> list[str]:
    source = c.stages["cu"].main
    (unit,) = source.units
    return instructions(compiled(unit, source.headers), folder)


def plan(c: Compilation) -> Any:
    return c.stages["plan"].main.regions[-1]


def test_tiles_of_copied_elements_are_quicker_than_streaming_and_explain_has_both_times() -> None:
    c = prepare(stem(64, 224), target="h100")
    chosen = plan(c).choices[0]
    assert isinstance(chosen.plan, Sm80Mma)
    (streamed,) = (r for r in plan(c).rejected if r.plan.startswith("gpu_stream"))
    assert streamed.estimate["total"] > 20 * chosen.estimate["total"]
    assert f"rejected {streamed.plan}: {streamed.why}" in explain(c)
    assert chosen.estimate["busy.ordinary cores"] > 0.9, "copies limit it, not the tensor cores"


def test_few_results_are_streamed() -> None:
    """One tile, whose CTA copies all of it."""
    c = prepare(stem(1, 8), target="h100")
    assert isinstance(plan(c).choices[0].plan, GpuStream)
    assert any("slower" in r.why for r in plan(c).rejected if r.plan.startswith("sm80_mma"))


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_both_issue_what_their_estimates_count(tmp_path: Path) -> None:
    c = prepare(stem(64, 224), target="sm90")
    ops = code(c, tmp_path)
    first = ops[: ops.index("LDGDEPBAR")]
    copies = first.count("LDG")
    assert copies == 4, "two elements of windows and two of the weights at a time"
    assert len(first) == pytest.approx(copies // 2 * SINGLE_ISSUES * 1.3, rel=0.15)
    chosen = plan(c).choices[0].plan
    region = c.stages["region"].main.body[-1]
    direct = msgspec.structs.replace(chosen, algo_choice={"conv": "direct"})
    streamed = prepare(stem(64, 224), target="sm90", decisions=Decisions(plans={plan_key(region, c.target): direct}))
    ops = code(streamed, tmp_path)
    terms = ops.count("LDG") // 2
    assert len(ops) == pytest.approx(POINT_ISSUES + terms * STEP_ISSUES, rel=0.15)
