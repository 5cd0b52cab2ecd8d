"""Every family of operations, compiled for this CPU and run by the reference, against numpy and PyTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.frontend import (  # noqa: F401
    oracle_elementwise,
    oracle_indexing,
    oracle_layers,
    oracle_movement,
    oracle_operators,
    oracle_random,
    oracle_reduction,
    oracle_windows,
)
from tests.frontend.oracle import ORACLES, Oracle


@pytest.mark.parametrize("name", ORACLES)
def test_reference_and_kernels_agree_with_the_oracle(name: str) -> None:
    o = Oracle()
    ORACLES[name](o)
    o.check()
