"""Proposals are obeyed and right, for each kind of Region that the benchmark has, on each instruction set.

A share of them in each run: `python -m tests.search.proposals` checks all."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.compilation import decisions_of
from tatami.core.codec import to_builtins
from tatami.core.target import PRESETS
from tatami.decisions import Decisions, decisions_text, load_decisions
from tatami.plan.choose_cpu import MOST
from tatami.plan.verify_plan import verify_plan
from tatami.runtime.machine.host import runs_here
from tatami.search.alternatives import Alternatives, alternatives
from tatami.search.proposal import Proposal, merged
from tatami.search.suggesters import suggest
from tests.search.cases import called_twice, model_of, small_cases
from tests.search.proposals import Checker, proposals
from tests.shares import is_whole, share

TARGETS = ("cpu:avx512", "cpu:avx2", "cpu:generic")
ONE_IN = 8
"""Share of the proposals of a case that a run checks."""


@pytest.mark.parametrize(("name", "target"), share(list(small_cases()), TARGETS, of=6))
def test_every_proposal_is_taken_and_right(name: str, target: str, tmp_path: Path) -> None:
    if not runs_here(PRESETS[target]):
        pytest.skip(f"this CPU lacks instructions of {target}")
    case = small_cases()[name]
    checker = Checker(model_of(case, tmp_path), case.inputs(), target)
    found = proposals(checker.model, target)
    wrong = [(p.line, why) for p in found[:: 1 if is_whole() else ONE_IN] if (why := checker.fault(p.decision))]
    assert not wrong


def every_alternative(name: str, target: str, folder: Path) -> list[Alternatives]:
    stages = prepare(str(model_of(small_cases()[name], folder)), target=target).stages
    return list(alternatives(stages["region"], stages["poly_core"], stages["plan"], PRESETS[target]))


@pytest.mark.parametrize("name", ["gemm 50x80x96", "conv 3x3 32-48 14", "attention 48", "layer small 40x96x64 gelu"])
def test_a_template_with_a_choice_has_ten_to_twenty_plans(name: str, tmp_path: Path) -> None:
    main = max(every_alternative(name, "cpu:avx512", tmp_path), key=lambda a: len(a.candidates))
    assert 10 <= len(main.candidates) <= MOST
    assert len({c.line for c in main.candidates}) == len(main.candidates)
    totals = [c.estimate["total"] for c in main.candidates]
    assert totals == sorted(totals) and min(totals) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_refused_plan_is_never_offered_and_has_a_reason_in_numbers(target: str, tmp_path: Path) -> None:
    refused = 0
    for name in small_cases():
        for a in every_alternative(name, target, tmp_path):
            for c in a.candidates:
                assert [str(d) for d in verify_plan(c.plan, a.region, PRESETS[target])] == [], c.line
            lines = {c.line for c in a.candidates}
            for r in a.refused:
                refused += 1
                assert r.plan not in lines and r.why
                assert r.plan == "cpu_contraction" or re.search(r"\d|axis|operand|vector|nothing|kind", r.why), (r.plan, r.why)
    assert refused > 100


@pytest.mark.parametrize("name", ["gemm 50x80x96", "conv 3x3 32-48 14", "softmax 48x96"])
def test_the_compiler_s_own_decisions_are_not_proposed(name: str, tmp_path: Path) -> None:
    compilation = prepare(str(model_of(small_cases()[name], tmp_path)), target="cpu:avx512")
    own = decisions_of(compilation.stages)
    for p in suggest(compilation, {}):
        for part in ("plans", "partitions", "calls"):
            assert all(own_part.get(k) != v for own_part in (getattr(own, part),) for k, v in getattr(p.decision, part).items())
        assert [*p.decision.plans, *p.decision.partitions, *p.decision.calls] == [p.subject]


def test_a_call_may_be_inlined_or_not(tmp_path: Path) -> None:
    model, arrays = called_twice(tmp_path)
    (proposal,) = (p for p in proposals(model, "cpu") if p.suggester == "calls")
    assert set(proposal.decision.calls.values()) <= {"inline", "call"} and proposal.estimate is not None
    assert proposal.terms["kernels"] == proposal.estimate != proposal.terms["kernels before"]
    assert Checker(model, arrays, "cpu").fault(proposal.decision) == ""


def test_a_kernel_is_cut_and_joined_with_the_sum_of_the_best_plans(tmp_path: Path) -> None:
    compilation = prepare(str(model_of(small_cases()["layer norm 48x96"], tmp_path)), target="cpu:avx512")
    found = [p for p in suggest(compilation, {}) if p.suggester == "fusion"]
    own = sum(r.choices[-1].estimate["total"] for r in compilation.stages["plan"].main.regions)
    for p in found:
        assert p.estimate == pytest.approx(p.terms["changed"] + p.terms["unchanged"])
        assert p.terms["replaced"] + p.terms["unchanged"] == pytest.approx(own)
        planned = prepare(compilation.stages["frontend"], target="cpu:avx512", decisions=p.decision).stages["plan"].main
        assert sum(r.choices[-1].estimate["total"] for r in planned.regions) == pytest.approx(p.estimate)
    assert len(found) >= 3


def of_each_subject(found: list[Proposal], generator: np.random.Generator) -> list[Proposal]:
    """One proposal of every subject, at random."""
    subjects: dict[str, list[Proposal]] = {}
    for p in found:
        subjects.setdefault(p.subject, []).append(p)
    return [of[generator.integers(len(of))] for of in subjects.values()]


@pytest.mark.parametrize("seed", range(4))
def test_merged_fragments_of_different_subjects_are_one_document(seed: int) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    generator = np.random.default_rng(seed)
    found = [p for p in proposals(model, "cpu") if p.suggester == "tiling" or seed % 2]
    chosen = of_each_subject(found, generator)
    document = merged(p.decision for p in chosen)
    assert len({**document.plans, **document.partitions, **document.calls}) == len(chosen) > 5
    again = load_decisions(to_builtins(document))
    assert decisions_text(again) == decisions_text(document)
    f = tt.compile(str(model), decisions=document, threads=2)
    inputs = {"image": generator.standard_normal((3, 1, 8, 8)).astype(np.float32)}
    expected = prepare(str(model)).reference_run(inputs, {})
    (output,) = expected
    np.testing.assert_allclose(f(**inputs)[output], expected[output], rtol=1e-3, atol=1e-5)
    if not seed % 2:
        assert not [w for w in f.compilation.warnings if w.code in ("StaleDecision", "UnknownDecision")]


def test_the_last_of_two_fragments_of_one_subject_holds() -> None:
    assert merged([Decisions(calls={"a": "call"}), Decisions(calls={"a": "inline"})]).calls == {"a": "inline"}
