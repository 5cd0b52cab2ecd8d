"""A share of each campaign: seeds that a test run has time for."""

from __future__ import annotations

import pytest

from tests.fuzz import views


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
