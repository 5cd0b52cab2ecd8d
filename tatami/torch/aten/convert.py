"""Operators that change no value: other dtypes, the same bits under another dtype, copies and aliases."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.elementwise import overloads
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal


def convert(m: Importer, x: Tensor, *_: object, **__: object) -> Tensor:
    """_to_copy and the like: the operand in the result's dtype; layout and device stay."""
    return m.cast(x, m.dtype)


def identity(m: Importer, x: Tensor, *_: object, **__: object) -> Tensor:
    """clone, alias, detach and the like: the operand itself."""
    return x


def view_dtype(m: Importer, x: Tensor, dtype: object) -> Tensor:
    """view.dtype: the same bits under another dtype of the same size."""
    if x.dtype.itemsize != m.dtype.itemsize:
        raise Refusal(f"the bits of {x.dtype} seen as {m.dtype}, which has another size")
    if DType.bool in (x.dtype, m.dtype):
        return m.cast(x, m.dtype) if x.dtype == m.dtype else _bool_bits(m, x)
    return x.one("bitcast", to=m.dtype)


def _bool_bits(m: Importer, x: Tensor) -> Tensor:
    if m.dtype == DType.bool:
        raise Refusal("bytes seen as bool")
    return x.cast(m.dtype)


def copy(m: Importer, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """copy: the source in the result's dtype, repeated to its shape."""
    return m.filled(m.cast(source, m.dtype), m.shape)


CONVERT: dict[str, Handler] = {
    **overloads("_to_copy", convert),
    **overloads("clone", identity),
    **overloads("alias", identity),
    **overloads("detach", identity),
    **overloads("contiguous", identity),
    **overloads("lift_fresh_copy", identity),
    **overloads("lift_fresh", identity),
    **overloads("copy", copy),
    **overloads("view", view_dtype, "dtype"),
    "prims.convert_element_type.default": convert,
    "prims.device_put.default": identity,
}
"""Handlers of this file by overload."""
