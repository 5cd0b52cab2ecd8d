"""The table of operators: complete beside ONNX Runtime's own list, and printed as the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

import tatami as tt
from tatami.onnx.microsoft.not_taken import LIMITS, NOT_TAKEN
from tatami.onnx.microsoft.show_operators import show_operators
from tatami.onnx.microsoft.table import MICROSOFT, NCHWC
from tests.onnx.microsoft.against_onnxruntime import model_of, node

PAGE = Path(__file__).parents[3] / "docs" / "onnx-microsoft.md"


def names_of(domain: str) -> set[str]:
    return {o.name for o in runtime.get_all_operator_schema() if o.domain == domain}


def test_every_operator_has_an_import_or_a_reason() -> None:
    assert not set(MICROSOFT) & set(NOT_TAKEN)
    assert set(LIMITS) <= set(MICROSOFT)
    assert names_of("com.microsoft") <= {*MICROSOFT, *NOT_TAKEN}
    assert names_of("com.microsoft.nchwc") <= set(NCHWC)


def test_the_page_is_the_table(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(show_operators())
    assert PAGE.read_text() == show_operators()


@pytest.mark.parametrize("op", ["BeamSearch", "WordConvEmbedding", "QOrderedMatMul"])
def test_the_reason_is_told(op: str) -> None:
    model = model_of([node(op, ["x"])], {"x": np.zeros((2, 3), "f4")}, {"y": (1, [2, 3])})
    with pytest.raises(tt.TatamiError) as told:
        tt.compile(model)
    assert NOT_TAKEN[op].split("; ")[0] in str(told.value)
