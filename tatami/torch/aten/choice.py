"""Operators that choose between elements: bounds, larger and smaller, by a condition or a mask."""

from __future__ import annotations

import math

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.importer import Importer, Operand


def where(m: Importer, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """where: x where the condition is true, else y."""
    a, b = m.joined(x, y)
    to = m.shape
    return m.graph.where(m.filled(m.cast(condition, DType.bool), to) if to else condition.cast(DType.bool), a, b)


def clamp(m: Importer, x: Tensor, lo: Operand | None = None, hi: Operand | None = None) -> Tensor:
    """clamp: limited to lo … hi, numbers or tensors, either of which may be absent."""
    bounds = [b for b in (lo, hi) if b is not None]
    values = m.joined(x, *bounds)
    out, rest = m.filled(values[0], m.shape), values[1:]
    if lo is not None:
        out = out.maximum(rest[0])
    return out.minimum(rest[-1]) if hi is not None else out


def maximum(m: Importer, x: Operand, y: Operand) -> Tensor:
    """maximum: the larger; NaN wins."""
    a, b = m.joined(x, y)
    return m.graph.one("or" if a.dtype == DType.bool else "max", a, b)


def minimum(m: Importer, x: Operand, y: Operand) -> Tensor:
    """minimum: the smaller; NaN wins."""
    a, b = m.joined(x, y)
    return m.graph.one("and" if a.dtype == DType.bool else "min", a, b)


def fmax(m: Importer, x: Operand, y: Operand) -> Tensor:
    """fmax: the larger; a number wins over NaN."""
    a, b = (m.filled(t, m.shape) for t in m.joined(x, y))
    if not a.dtype.is_float:
        return maximum(m, a, b)
    return m.graph.where(a.one("isnan"), b, m.graph.where(b.one("isnan"), a, a.maximum(b)))


def fmin(m: Importer, x: Operand, y: Operand) -> Tensor:
    """fmin: the smaller; a number wins over NaN."""
    a, b = (m.filled(t, m.shape) for t in m.joined(x, y))
    if not a.dtype.is_float:
        return minimum(m, a, b)
    return m.graph.where(a.one("isnan"), b, m.graph.where(b.one("isnan"), a, a.minimum(b)))


def masked_fill(m: Importer, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """masked_fill: the value where the mask is true."""
    return m.graph.where(m.filled(mask, m.shape), m.tensor(value, x.dtype), m.filled(x, m.shape))


def nan_to_num(
    m: Importer, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """nan_to_num: NaN and infinities replaced, by 0 and the dtype's limits if not given."""
    if not x.dtype.is_float:
        return x
    import torch

    from tatami.torch.dtypes import TO_TORCH

    limits = torch.finfo(TO_TORCH[x.dtype])
    at = m.graph.where(x.one("isnan"), 0.0 if nan is None else nan, x)
    at = m.graph.where(x.one("eq", math.inf), limits.max if posinf is None else posinf, at)
    return m.graph.where(x.one("eq", -math.inf), limits.min if neginf is None else neginf, at)
