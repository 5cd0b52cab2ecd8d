"""Decisions are documents: what a compilation decided repeats it, what is edited is obeyed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tatami.api import prepare
from tatami.compilation import decisions_of
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.decisions import Decisions, decisions_text, load_decisions
from tatami.frontend.graph import Graph
from tatami.plan.ir import CpuContraction


def gemm() -> Graph:
    g = Graph("gemm")
    a, b = g.input("a", ("M", 256), DType.fp32), g.input("b", (256, 128), DType.fp32)
    g.output("y", (a @ b).relu())
    return g


def decided() -> Decisions:
    return decisions_of(prepare(gemm(), target="cpu:avx2").stages)


def first_plan(decisions: Any) -> Any:
    return prepare(gemm(), target="cpu:avx2", decisions=decisions).stages["plan"].main.regions[0].choices[-1].plan


def test_what_was_decided_repeats_the_compilation(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    path.write_text(decisions_text(decided()))
    first = prepare(gemm(), target="cpu:avx2")
    again = prepare(gemm(), target="cpu:avx2", decisions=path)
    assert again.stages["c"].main == first.stages["c"].main
    assert again.warnings == []


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
def test_one_decision_serves_every_equal_region_and_other_names(target: str, tmp_path: Path) -> None:
    def layers(*names: str) -> Graph:
        g = Graph("layers")
        for name in names:
            x, w = g.input(f"x{name}", (32, f"K{name}"), DType.fp16), g.input(f"w{name}", (f"K{name}", f"N{name}"), DType.fp16)
            g.output(f"y{name}", (x @ w).relu())
        return g

    path = tmp_path / "decisions.json"
    first = prepare(layers("a", "b"), target=target)
    path.write_text(decisions_text(decisions_of(first.stages)))
    printed = "c" if target.startswith("cpu") else "cu"
    again = prepare(layers("a", "b"), target=target, decisions=path)
    assert again.stages[printed].main == first.stages[printed].main and again.warnings == []
    other = prepare(layers("c"), target=target, decisions=path).stages["plan"].main.regions[0]
    assert any("decision" in r.why for r in other.rejected)
    assert [bool(c.conditions) for c in other.choices] == ([False] if printed == "c" else [True, False])


def test_a_plan_of_rows_in_groups_needs_no_key_and_keeps_its_condition() -> None:
    g = Graph("groups")
    x, w, ends = (
        g.input("x", ("T", 64), DType.fp16),
        g.input("w", ("G", 64, 128), DType.fp16),
        g.input("ends", ("G",), DType.i64),
    )
    g.output("y", x.grouped_matmul(w, ends))
    first = prepare(g, target="sm90")
    ((_, choices),) = decisions_of(first.stages).plans.items()
    assert [bool(c["conditions"]) for c in choices] == [True, False]
    again = prepare(g, target="sm90", decisions=Decisions(plans={"": choices}))
    assert again.stages["cu"].main == first.stages["cu"].main
    swapped = [{**choices[0], "plan": {**choices[0]["plan"], "swap_ab": True}}, choices[1]]
    with pytest.raises(TatamiError, match="swap_ab: rows in groups"):
        _ = prepare(g, target="sm90", decisions=Decisions(plans={"": swapped})).stages["plan"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c[:1], "the last choice, and no other, has no conditions"),
        (lambda c: [c[1], c[1]], "the last choice, and no other, has no conditions"),
        (lambda c: [{"plan": c[0]["plan"]}, c[1]], "not an object with conditions and a plan"),
        (
            lambda c: [{**c[0], "conditions": [{"size": "Q", "divisor": 8}]}, c[1]],
            "speaks of 'Q', which is not a size of the Region",
        ),
        (lambda c: [{**c[0], "conditions": [{"size": "Q +"}]}, c[1]], "expected"),
        (lambda c: [{**c[0], "plan": {"kind": "none"}}, c[1]], "plan kind 'none' is not known"),
    ],
)
def test_choices_that_are_none_are_refused(change: Any, words: str) -> None:
    g = Graph("product")
    g.output("y", g.input("x", (32, "K"), DType.fp16) @ g.input("w", ("K", "N"), DType.fp16))
    decided = decisions_of(prepare(g, target="sm80").stages)
    ((key, choices),) = decided.plans.items()
    with pytest.raises(TatamiError, match=words):
        _ = prepare(g, target="sm80", decisions=Decisions(plans={key: change(choices)})).stages["plan"]


def test_an_edited_tile_is_obeyed() -> None:
    d = decided()
    key, plan = next((k, p) for k, p in d.plans.items() if p["kind"] == "cpu_contraction")
    edited = msgspec.structs.replace(d, plans={key: {**plan, "kc": 64}})
    chosen = first_plan(edited)
    assert isinstance(chosen, CpuContraction) and chosen.kc == 64


@pytest.mark.parametrize("change", [{"mr": 0}, {"kc": -1}, {"colour": 1}, {"acc": "nothing"}])
def test_an_impossible_plan_is_refused(change: dict[str, Any]) -> None:
    d = decided()
    key, plan = next((k, p) for k, p in d.plans.items() if p["kind"] == "cpu_contraction")
    with pytest.raises(TatamiError):
        first_plan(Decisions(plans={key: {**plan, **change}}))


def test_a_decision_for_another_model_warns() -> None:
    g = Graph("other")
    g.output("y", g.input("x", ("N", 3), DType.fp32).softmax(1))
    compilation = prepare(g, target="cpu:avx2", decisions=decided())
    compilation.values()
    assert {w.kind for w in compilation.warnings} == {"StaleDecision"}


def test_a_file_that_is_no_decision_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"plan": {}}')
    with pytest.raises(TatamiError):
        load_decisions(path)


def test_the_usual_size_of_a_range_decides_plans() -> None:
    small = prepare(gemm(), target="cpu:avx2", sizes={"M": (1, 1, 4)}).stages["plan"].main.regions[0]
    large = prepare(gemm(), target="cpu:avx2", sizes={"M": (1, 2048, 4096)}).stages["plan"].main.regions[0]
    assert small.choices[-1].estimate["at.M"] == 1 and large.choices[-1].estimate["at.M"] == 2048
