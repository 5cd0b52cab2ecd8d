"""Operators that PyTorch decomposes before an import: its core decompositions, except for operators that the table has
whole, and more of PyTorch's own for operators that the core list leaves and the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import RLock

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._ops import OpOverload, OpOverloadPacket

from tatami.torch.aten.resize import LINEAR
from tatami.torch.table import HANDLERS

_TRACING = RLock()
"""Held while PyTorch's kernels in Python are others than its own."""


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
    for op in (aten.complex.default, aten.polar.default):
        out.pop(op, None)  # they write into views, which the cut between forward and backward does not allow
    return out


@contextmanager
def whole_interpolation() -> Iterator[None]:
    """Linear interpolation between sizes that are numbers stays one operator in graphs that are traced inside, and so does its
    gradient. PyTorch's own kernels in Python take it apart before derivatives are followed, into gathers whose gradients are scatters;
    they stay for open sizes, for which PyTorch does not know the gradient's shape."""
    packets = [getattr(torch.ops.aten, f"upsample_{name}") for name in LINEAR]
    with _TRACING:
        own = {p.vec: dict(p.vec.py_kernels) for p in packets}
        try:
            for p in packets:
                for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
                    p.vec.py_kernels[key] = partial(_interpolated, p, own[p.vec][key])
                p.vec._dispatch_cache.clear()
            yield
        finally:
            for op, kernels in own.items():
                op.py_kernels.clear()
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()


def _interpolated(of: OpOverloadPacket, apart: Callable[..., object], x: Tensor, *how: object) -> object:
    """The interpolation as one operator with the size of its result, or taken `apart`. `how`: size or None, whether corners are
    aligned, factors or None."""
    size, align_corners, factors = how
    to = upsample_compute_output_size(x.size(), size, factors)
    if any(isinstance(s, torch.SymInt) for s in (*x.size(), *to)):
        return apart(x, *how)
    op = of.default
    kernel = op.py_kernels.pop(DispatchKey.Autograd, None)
    op._dispatch_cache.clear()
    try:
        return op(x, to, align_corners, *(factors if isinstance(factors, list | tuple) and factors else [None] * len(to)))
    finally:
        if kernel is not None:
            op.py_kernels[DispatchKey.Autograd] = kernel
        op._dispatch_cache.clear()
