"""Exports of scikit-learn, LightGBM and XGBoost are right, where these packages are installed."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.onnx.ml.tabular_exports import cases, outcome

CASES = dict(cases())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_an_export_is_right(name: str) -> None:
    found = outcome(CASES[name]).outcome
    if found.startswith("skipped"):
        pytest.skip(found)
    assert found == "right"
