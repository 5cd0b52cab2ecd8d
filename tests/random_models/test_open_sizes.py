"""Generated image graphs of open height and width: planned for every size at once, right at each."""

from __future__ import annotations

import pytest

from tests.random_models.open_size_graphs import difference, planned

REFUSED_ONCE = (36, 144, 204, 205, 216, 247, 320, 1341, 1420)
"""Axes that run backwards, borders of axes that could be empty, crops of a whole axis whose size is a minimum."""


@pytest.mark.parametrize("seed", [*range(24), *REFUSED_ONCE])
def test_graphs_of_open_sizes_are_planned(seed: int) -> None:
    assert planned(seed)["c"]


@pytest.mark.parametrize("seed", [3, 11, *REFUSED_ONCE])
def test_graphs_of_open_sizes_agree_with_the_reference(seed: int) -> None:
    assert difference(seed) == ""


@pytest.mark.parametrize("seed", [5, 16, 3042, 3045, 3116])
def test_graphs_of_open_sizes_are_planned_for_a_gpu(seed: int) -> None:
    """A place that an image is read at may name sizes in addition to axes."""
    assert planned(seed, "sm80")
