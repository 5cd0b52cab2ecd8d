"""Reference, tiny, region and CPU kernels agree on generated graphs."""

from __future__ import annotations

from hypothesis import given, settings

from tatami.api import build, prepare
from tatami.report.playback import compare_outputs
from tatami.stages import STAGES, runner
from tests.random_models.generated import Generated, graphs
from tests.shares import is_whole


def assert_agree(case: Generated, stage: str, got: dict, reference: dict) -> None:
    for a in compare_outputs(case.module.main.signature, got, reference):
        assert a.difference is None, f"{stage} differs from the reference after {case.ops}: {a.difference}"


@settings(max_examples=300 if is_whole() else 150)
@given(graphs())
def test_every_stage_and_the_kernels_mean_the_same(case: Generated) -> None:
    compilation = prepare(case.module)
    reference = compilation.reference_run(case.inputs, case.sizes)
    for s in STAGES:
        run = runner(s.name)
        if run is not None and s.name in compilation.stages:
            got = run(compilation.stages[s.name], dict(case.inputs), dict(case.sizes), mode="declared")
            assert_agree(case, s.name, got, reference)
    function = build(compilation, 2, case.sizes)
    assert_agree(case, "kernels", function(case.inputs), reference)
