"""Every plan that `tatami explain --candidates` offers for the digits network compiles and computes what the reference does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tatami.api import prepare
from tatami.bench.inputs import gather_inputs
from tatami.build import build
from tatami.core.diagnostic import TatamiError
from tatami.plan.ir import Candidate, CpuWindow
from tatami.report.playback import compare_outputs, least_precise
from tatami.search.alternatives import plans_of
from tests.shares import slow

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
N = 8
SIZES = {"N": N}
USUAL = {"N": (0, N, N)}


@pytest.mark.parametrize("region", ["r3", *(pytest.param(r, marks=slow) for r in ("r0", "r1", "r2", "r4", "r5"))])
def test_candidates_compile_and_agree(region):
    base = prepare(DIGITS, target="cpu:avx2", sizes=USUAL)
    own = build(base, 1, SIZES)
    arrays, at = gather_inputs(own.signature, own.arguments, (), SIZES)
    reference = base.reference_run({n: a.copy() for n, a in arrays.items()}, at)
    offered = [(a, c) for a in plans_of(base, SIZES) if a.region.name == region for c in a.candidates]
    assert len(offered) > 4
    for a, candidate in offered:
        made = prepare(DIGITS, target="cpu:avx2", sizes=USUAL, decisions=a.decision(candidate))
        program = build(made, 1, SIZES)
        found = compare_outputs(program.signature, program.bind(arrays)(), reference, least_precise(made.stages[made.first]))
        assert not [f for f in found if f.difference], candidate.line


def test_a_window_of_vectors_of_one_element_is_refused():
    base = prepare(DIGITS, target="cpu:avx2", sizes=USUAL)
    a = next(a for a in plans_of(base, SIZES) if a.region.name == "r3")
    plan = next(c.plan for c in a.candidates if isinstance(c.plan, CpuWindow))
    narrow = a.decision(Candidate(msgspec.structs.replace(plan, width=1), "", {}))
    with pytest.raises(TatamiError, match="vectors of width 1, which hold one element of 4 bytes"):
        _ = prepare(DIGITS, target="cpu:avx2", sizes=USUAL, decisions=narrow).stages["plan"]
