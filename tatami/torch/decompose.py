"""Operators that PyTorch decomposes before an import: its core decompositions, except for operators that the table has
whole, and more of PyTorch's own for operators that the core list leaves and the table lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload

from tatami.torch.table import HANDLERS


@lru_cache(maxsize=1)
def decompositions() -> dict[OpOverload, Callable[..., object]]:
    """PyTorch's decompositions for every overload the table lacks: the core list, then its whole table."""
    aten = torch.ops.aten
    kept = {str(op): fn for op, fn in core_aten_decompositions().items()}
    out: dict[OpOverload, Callable[..., object]] = {}
    for op, fn in {**decomposition_table, **core_aten_decompositions()}.items():
        if isinstance(op, OpOverload) and str(op) not in HANDLERS and (str(op) in kept or op.namespace == "aten"):
            out[op] = fn
    out.pop(aten.lift_fresh_copy.default, None)
    out.pop(aten.complex.default, None)  # it writes into views, which the cut between forward and backward does not allow
    return out
