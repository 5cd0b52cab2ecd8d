"""Names that a user gives to nodes stand in plans, execution plans, explain, and their documents."""

from __future__ import annotations

import json

import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.module import names_text
from tatami.frontend.graph import Graph


def named() -> Graph:
    g = Graph("g")
    x, w = g.input("x", (16, 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    h = g.op("matmul", x, w, node="first_layer")
    g.output("y", g.op("relu", h, node="gate").softmax(1))
    return g


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80"])
def test_names_of_nodes_reach_plans(target: str) -> None:
    from tatami.api import prepare
    from tatami.stages import show

    stages = prepare(named(), target=target).stages
    for stage in ("plan", "execution"):
        names = {n for found in stages[stage].origins["main"].values() for n in found}
        assert names == {"first_layer", "gate", "softmax"}
        assert "first_layer, gate" in show(stage, stages[stage])


def test_names_of_nodes_reach_explain_and_documents() -> None:
    f = tt.compile(named(), target="cpu:avx2")
    report = f.explain()
    assert "(first_layer, gate" in report.split("\n\n")[0]
    document = json.loads(f.stages["plan"].json)
    assert "first_layer" in json.dumps(document["origins"])


def test_a_plan_of_a_region_document_has_no_names_to_show() -> None:
    document = json.loads(tt.compile(named(), target="cpu:avx2").stages["region"].json)
    assert "computes" not in tt.compile(document, target="cpu:avx2").stages["plan"].text


def test_many_names_are_counted() -> None:
    assert names_text([f"n{k}" for k in range(8)]) == "n0, n1, n2, n3, n4, n5 and 2 more"
    assert "\n" not in names_text(["two\nlines"])
