"""Comments above kernels: the tensors of the model, as text that is never code."""

from __future__ import annotations

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.execution.views.kernel_labels import comment
from tatami.frontend.graph import Graph
from tatami.stages import show
from tatami.storage.code_folder import code_texts

HOSTILE = '*/ int evil; /* ??/\n#include "x"'


def model(name: str, out: str) -> Graph:
    g = Graph("g")
    x, w = g.input(name, (16, 16), DType.fp32), g.input("weight", (16, 8), DType.fp32)
    g.output(out, (x @ w).relu())
    return g


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80"])
def test_a_kernel_has_the_names_of_its_tensors_as_a_comment(target: str) -> None:
    compilation = prepare(model("image", "scores"), target=target)
    label = "/* kernel of image, weight to scores */\n"
    stage = "c" if target.startswith("cpu") else "cu"
    assert label in show(stage, compilation.stages[stage])
    assert any(text.startswith(label) for text in code_texts(compilation).values())


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80"])
def test_names_are_no_code_and_change_no_kernel(target: str) -> None:
    stage = "c" if target.startswith("cpu") else "cu"
    plain, hostile = (
        prepare(model(*names), target=target).stages[stage].main for names in (("a", "b"), (HOSTILE, f"y{HOSTILE}"))
    )
    assert plain.units == hostile.units
    for label in hostile.labels.values():
        text = comment(label)
        assert text.count("/*") == text.count("*/") == text.count("\n") == 1 and "evil" in text and "#" not in text
    assert tt.compile(model(HOSTILE, "y"), target="reference").signature.inputs[0].tensor == HOSTILE


def test_a_long_list_of_names_is_cut() -> None:
    assert len(comment("n" * 10_000)) < 330 and comment("") == ""
