"""Plans of a GPU that a search may measure: all dimensions of the space, those that rules refuse with numbers, the others obeyed."""

from __future__ import annotations

import re

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.plan.gpu.alternatives import MOST
from tatami.search.alternatives import Alternatives, alternatives
from tatami.search.suggesters.tiling import tiling


def product(dtype: DType) -> tt.Graph:
    g = tt.Graph("product")
    g.output("y", (g.input("a", (512, 512), dtype) @ g.input("b", (512, 512), dtype)).relu())
    return g


def found(graph: tt.Graph, target: str) -> Alternatives:
    compilation = prepare(graph, target=target)
    stages = compilation.stages
    (only,) = alternatives(stages["region"], stages["poly_core"], stages["plan"], compilation.target)
    return only


@pytest.mark.parametrize(("target", "dtype"), [("sm80", tt.fp16), ("sm90", tt.fp16), ("sm80", tt.fp32)])
def test_every_dimension_is_tried_and_each_plan_is_obeyed_or_refused_in_numbers(target: str, dtype: DType) -> None:
    a = found(product(dtype), target)
    assert 10 <= len(a.candidates) <= MOST
    every = [c.line for c in a.candidates] + [r.plan for r in a.refused]
    for word in ("stages 2", "stages 4", "width 4", "width 16", "copies that wait", "gpu_stream"):
        assert any(word in line for line in every), word
    assert all(re.search(r"\d|async", r.why) for r in a.refused)
    totals = [c.estimate["total"] for c in a.candidates]
    assert totals == sorted(totals)
    compilation = prepare(product(dtype), target=target)
    for p in tiling(compilation, {})[::6]:
        obeyed = prepare(product(dtype), target=target, decisions=p.decision)
        assert obeyed.stages["cu"] and not obeyed.warnings


def test_copies_of_sm90_do_not_wait() -> None:
    refused = {r.plan.rpartition("; ")[2]: r.why for r in found(product(tt.fp16), "sm90").refused}
    assert refused["copies that wait"].startswith("async.enable false: copies of sm90 are asynchronous")


def test_a_stream_has_other_blocks_and_accesses() -> None:
    g = tt.Graph("rows")
    g.output("y", g.input("x", (512, 512), tt.fp32).softmax(axis=1))
    lines = [c.line for c in found(g, "sm80").candidates]
    assert len(lines) == 9 and "gpu_stream threads 128, accesses of 8 B" in lines
