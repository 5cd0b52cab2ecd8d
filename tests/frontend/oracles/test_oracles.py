"""Every family of operations, compiled for this CPU and run by the reference, against numpy and PyTorch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.frontend.oracles import elementwise as oracle_elementwise  # noqa: F401
from tests.frontend.oracles import indexing as oracle_indexing  # noqa: F401
from tests.frontend.oracles import layers as oracle_layers  # noqa: F401
from tests.frontend.oracles import movement as oracle_movement  # noqa: F401
from tests.frontend.oracles import operators as oracle_operators  # noqa: F401
from tests.frontend.oracles import random_numbers as oracle_random  # noqa: F401
from tests.frontend.oracles import reduction as oracle_reduction  # noqa: F401
from tests.frontend.oracles import windows as oracle_windows  # noqa: F401
from tests.frontend.oracles.oracle import ORACLES, Oracle


@pytest.mark.parametrize("name", ORACLES)
def test_reference_and_kernels_agree_with_the_oracle(name: str) -> None:
    o = Oracle()
    ORACLES[name](o)
    o.check()
