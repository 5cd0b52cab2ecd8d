"""Models of the whole vocabulary, drawn from seeds, mean the same in the reference, every stage and the kernels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tatami.api import build, prepare
from tatami.core.dtype import DType
from tatami.core.numbers.collectives import COLLECTIVES
from tatami.frontend.graph import Graph
from tatami.frontend.ops import OPS
from tatami.report.playback import compare_outputs, play_back
from tatami.stages import STAGES, runner
from tests.random_models.generated_graphs import drawn_operations, examine
from tests.random_models.model_maker import Model, make_model
from tests.shares import is_whole


def assert_agree(model: Model, stage: str, got: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> None:
    for a in compare_outputs(model.module.main.signature, got, reference):
        assert a.difference is None, f"{stage} differs from the reference after {model.ops}: {a.difference}"


@pytest.mark.parametrize("seed", range(46))
def test_stages_and_kernels_mean_the_same(seed: int) -> None:
    model = make_model(seed)
    compilation = prepare(model.module, target="cpu:avx2")
    with np.errstate(all="ignore"):
        reference = compilation.reference_run(model.inputs, model.sizes)
        for s in STAGES:
            run = runner(s.name)
            if run is not None and s.name in compilation.stages:
                got = run(compilation.stages[s.name], dict(model.inputs), dict(model.sizes), mode="declared")
                assert_agree(model, s.name, got, reference)
    function = build(compilation, 1 + seed % 2, model.sizes)
    assert_agree(model, "kernels", function({n: a.copy() for n, a in model.inputs.items()}), reference)


def assert_every_stage_runs(g: Graph, inputs: dict[str, np.ndarray]) -> None:
    compilation = prepare(g, target="cpu:avx2")
    result = play_back(compilation.values(), inputs, {}, build(compilation, 2)(inputs))
    assert result.first_divergence is None


def test_erf_of_rank_0() -> None:
    g = Graph("g")
    g.output("y", g.input("x", ("N",), DType.fp32).sum().one("erf"))
    assert_every_stage_runs(g, {"x": np.full(3, 0.25, np.float32)})


def test_a_size_that_nodes_count_is_not_taken_from_the_caller() -> None:
    g = Graph("g")
    g.output("y", g.input("x", ("N",), DType.fp32).op("nonzero", size="Z"))
    x = np.array([1, 0, 2], np.float32)
    assert prepare(g).reference_run({"x": x}, {"Z": 4})["y"].tolist() == [[0, 2]]


def test_a_concatenation_of_symbolic_length_tiles() -> None:
    g = Graph("g")
    x = g.input("x", ("S",), DType.fp32)
    joined = g.concat([x, x, x, g.constant(np.ones(2, np.float32))])
    g.output("y", joined.tile(0, 2)[::2])
    assert_every_stage_runs(g, {"x": np.arange(5, dtype=np.float32)})


@pytest.mark.parametrize("block", range(20 if is_whole() else 10))
def test_graphs_of_the_whole_vocabulary_agree_with_their_meaning(block: int) -> None:
    """100 graphs, in the whole grid 200; `python -m tests.random_models.generated_graphs --count 1000` draws more."""
    faults = {seed: fault for seed in range(10 * block, 10 * block + 10) if (fault := examine(seed)[1])}
    assert not faults, faults


def test_every_operation_of_the_table_is_drawn() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(1000):
        drawn += drawn_operations(make_model(seed, vocabulary=True).module)
    assert {name for name in OPS if not drawn[name]} <= UNDRAWN.keys(), [n for n in OPS if not drawn[n]]


UNDRAWN = {
    "kernel_body": "a C body is the user's own; tests/rows/test_custom_kernel.py",
    **dict.fromkeys(COLLECTIVES, "it needs other processes; tests/distributed draws them"),
    "tree_ensemble": "its tables are trees; tests/onnx/ml/test_trees.py draws them",
}
"""Operations that no seed draws, and why."""
