"""Six real architectures from ONNX, with symbolic batch and sequence, against PyTorch in float64."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

from tests.models.compare import compare
from tests.models.zoo import CORE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CORE)
def test_a_real_architecture_agrees_with_float64(name: str) -> None:
    found = compare(name)
    assert all(e.good() for e in found.errors), found.errors
    assert not found.changed.good(), "the comparison does not notice one changed weight"
