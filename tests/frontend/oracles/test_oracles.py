"""Every family of operations, compiled for this CPU and run by the reference, against numpy and PyTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.frontend.oracles import (  # noqa: F401
    elementwise,
    indexing,
    layers,
    movement,
    operators,
    random_numbers,
    reduction,
    windows,
)
from tests.frontend.oracles.oracle import ORACLES, Oracle


@pytest.mark.parametrize("name", ORACLES)
def test_reference_and_kernels_agree_with_the_oracle(name: str) -> None:
    o = Oracle()
    ORACLES[name](o)
    o.check()
