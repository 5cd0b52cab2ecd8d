"""A share of each campaign: seeds that a test run has time for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz import views
from tests.fuzz.edits import document_worker
from tests.fuzz.edits.document_programs import documents


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_chains_of_views(first: int) -> None:
    assert [fault for seed in range(first, first + 30) if (fault := views.check(seed))] == []


@pytest.mark.parametrize("seed", [70, 129, 218, 548, 837, 1245, 1714, 1850, 2774])
def test_chains_that_were_refused_or_wrong(seed: int) -> None:
    assert views.check(seed, run=seed == 2774) == ""


@pytest.mark.parametrize("first", [0, 20])
def test_random_onnx_models(first: int) -> None:
    pytest.importorskip("onnxruntime")
    from tests.fuzz import onnx

    assert [fault for seed in range(first, first + 20) if (fault := onnx.check(seed))] == []


def test_a_model_with_a_remainder_in_two_lanes() -> None:
    pytest.importorskip("onnxruntime")
    from tests.fuzz import onnx

    assert onnx.check(487) == ""


@pytest.mark.parametrize("seed", [667, 1865])
def test_a_model_whose_window_is_longer_than_its_line(seed: int) -> None:
    pytest.importorskip("onnxruntime")
    from tests.fuzz import onnx

    assert onnx.check(seed) == ""


def test_a_result_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    from tests.fuzz import onnx

    def other(*given: Any) -> list[list[np.ndarray]]:
        return [[a + a.dtype.type(1) for a in answers or ()] for answers in by_runtime(*given)]

    by_runtime = onnx.by_runtime
    monkeypatch.setattr(onnx, "by_runtime", other)
    assert onnx.check(2) == ""  # the reference evaluator has the same numbers
    monkeypatch.setattr(onnx, "by_reference", other)
    assert "differs" in onnx.check(2)


def test_a_document_that_means_something_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    document = documents("row_softmax")["region"]
    assert document_worker.attempt("region", document, "")["kind"] == "obeyed"

    def other(*given: Any) -> Any:
        outputs, signature = meaning(*given)
        return {name: array + 1 for name, array in outputs.items()}, signature

    meaning = document_worker.meaning
    monkeypatch.setattr(document_worker, "meaning", other)
    assert document_worker.attempt("region", document, "")["kind"] == "differs"
