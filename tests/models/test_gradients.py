"""Derivatives of three models by all their parameters against PyTorch's; `tests.models.gradients` has the whole zoo."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.models.gradients import compared


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "parameters"), [("unet", 46), ("gpt2", 52), ("mamba", 22)])
def test_derivatives_by_all_parameters_are_those_of_pytorch(name: str, parameters: int) -> None:
    found = compared(name)
    assert found.parameters == parameters and found.error < 1e-5
