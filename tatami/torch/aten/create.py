"""Tensors from numbers and sizes."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal


def full(m: Importer, size: object, value: Number, **_: object) -> Tensor:
    """full: every element is the value."""
    return _filled(m, value)


def full_like(m: Importer, x: Tensor, value: Number, **_: object) -> Tensor:
    """full_like: every element is the value, in the operand's shape."""
    return _filled(m, value)


def fill(m: Importer, x: Tensor, value: Tensor | Number) -> Tensor:
    """fill: every element is the value, a number or a rank-0 tensor."""
    return _filled(m, value)


def _filled(m: Importer, value: Tensor | Number) -> Tensor:
    return m.filled(m.tensor(value, m.dtype), m.shape)


def constant(value: int) -> Handler:
    """Handler of zeros, ones and empty: every element is `value`, also for `empty`, whose content PyTorch leaves open."""

    def handler(m: Importer, *_: object, **__: object) -> Tensor:
        return _filled(m, value)

    return handler


def scalar_tensor(m: Importer, value: Number, **_: object) -> Tensor:
    """scalar_tensor: a rank-0 tensor."""
    return m.tensor(value, m.dtype)


def arange(m: Importer, start: Number, end: Number, step: Number = 1, **_: object) -> Tensor:
    """arange: start + k * step; fractions are multiplied in fp64 and rounded once, as in PyTorch."""
    whole = [v for v in (start, step) if isinstance(v, int | Expr) and not isinstance(v, bool)]
    if len(whole) == 2 and m.dtype.is_int:
        return m.graph.arange(m.shape[0], m.dtype, start=whole[0], step=whole[1])
    wide = DType.i64 if m.dtype.is_int and len(whole) == 2 else DType.fp64
    if m.dtype.is_int and wide == DType.fp64:
        start, step = _whole(start), _whole(step)
        return m.graph.arange(m.shape[0], m.dtype, start=start, step=step)
    at = m.graph.arange(m.shape[0]).cast(wide)
    return (at * m.tensor(step, wide) + m.tensor(start, wide)).cast(m.dtype)


def _whole(value: Number) -> int:
    if isinstance(value, bool | int | float):
        return int(value)
    raise Refusal("a fraction of sizes as the start or step of an integer range")


def iota(m: Importer, length: object, *, start: IntoExpr | float, step: IntoExpr | float, **_: object) -> Tensor:
    """prims.iota: start + k * step in integers."""
    return m.graph.arange(m.shape[0], m.dtype, start=start, step=step)


def eye(m: Importer, *_: object, **__: object) -> Tensor:
    """eye: 1 on the diagonal, else 0."""
    row, column = (m.graph.iota(m.shape, axis) for axis in (0, 1))
    return row.one("eq", column).cast(m.dtype)


CREATE: dict[str, Handler] = {
    "aten.full.default": full,
    "aten.full_like.default": full_like,
    "aten.fill.Scalar": fill,
    "aten.fill.Tensor": fill,
    "aten.scalar_tensor.default": scalar_tensor,
    "aten.arange.start_step": arange,
    "aten.arange.start": arange,
    "aten.arange.default": lambda m, end, **kw: arange(m, 0, end, **kw),
    "prims.iota.default": iota,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    **{f"aten.{name}.default": constant(value)
       for name, value in (("zeros", 0), ("ones", 1), ("zeros_like", 0), ("ones_like", 1), ("new_zeros", 0), ("new_ones", 1))},
    **{f"aten.{name}": constant(0)
       for name in ("empty.memory_format", "empty_strided.default", "empty_like.default", "new_empty.default", "new_empty_strided.default", "empty_permuted.default")},
    "aten.new_full.default": lambda m, x, size, value, **_: _filled(m, value),
}  # fmt: skip
"""Handlers of this file by overload."""
