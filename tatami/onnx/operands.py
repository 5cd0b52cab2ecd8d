"""Operands and attributes that must be known while importing: axes, shapes, counts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tatami.core.codec import dump_text
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.onnx.data_sizes import data_numbers, read_sizes
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode


def integers(m: Importer, n: OnnxNode, position: int, attribute: str) -> tuple[Expr, ...] | None:
    """A list of sizes from an attribute (old opsets) or an operand, which may be data; None if absent."""
    if attribute in n.attrs:
        given = n.attrs[attribute]
        return tuple(expr(int(v)) for v in (given if isinstance(given, list) else [given]))
    if not n.has(position):
        return None
    sizes = m.sizes(m.value(n.inputs[position]))
    if sizes is not None:
        return sizes
    counts = data_numbers(m, n, position)
    if counts is None:
        raise data_dependent(m, n, attribute, position)
    return read_sizes(m, counts)


def numbers(m: Importer, n: OnnxNode, position: int, attribute: str) -> list[int] | None:
    """Constant integers from an attribute or an operand; None if absent. Raises UnsupportedModel if they are data."""
    if attribute not in n.attrs:
        if not n.has(position):
            return None
        if m.known(m.value(n.inputs[position])) is None:
            raise data_dependent(m, n, attribute, position)
    out = [s.as_int() for s in integers(m, n, position, attribute) or ()]
    return [v for v in out if v is not None]


def known(m: Importer, n: OnnxNode, position: int, what: str, default: Any = None) -> Any:
    """A constant operand as an array, or the default if it is absent. Raises UnsupportedModel if it is data."""
    if not n.has(position):
        return default
    array = m.known(m.value(n.inputs[position]))
    if array is None:
        raise data_dependent(m, n, what, position)
    return array


def known_number(m: Importer, n: OnnxNode, position: int, what: str, default: Any = None) -> Any:
    """A constant operand of one number, or the default if it is absent. Raises UnsupportedModel if it is data."""
    array = known(m, n, position, what)
    return default if array is None or array.size == 0 else np.asarray(array).reshape(-1)[0].item()


def data_dependent(m: Importer, n: OnnxNode, what: str, position: int | None = None) -> TatamiError:
    """The error for an operand that decides sizes or axes and depends on data; its `inputs` names the small graph inputs
    that decide it."""
    ports = sorted(m.value(n.inputs[position]).ports) if position is not None and n.has(position) else []
    why = f"{n.op}: {what} depends on the values of a tensor"
    how = "make it a constant or a function of input shapes (for example by constant folding at export)"
    if not ports:
        return fail("UnsupportedModel", m.site, why, how)
    how += f", or give {', '.join(map(repr, ports))} in example_inputs"
    return fail("UnsupportedModel", m.site, why, how, inputs=dump_text(ports).strip())


def choice(m: Importer, n: OnnxNode, name: str, default: Any, values: Collection[Any]) -> Any:
    """An attribute with a list of legal values. Raises InvalidAttribute for any other value."""
    given = n.attr(name, default)
    if given not in values:
        listed = ", ".join(map(str, values))
        raise fail("InvalidAttribute", m.site, f"{n.op}: {name} is {given!r}", f"use one of {listed}")
    return given


def computable(m: Importer, tensor: str) -> str:
    """The tensor in a dtype that operations compute in; converting back to a small dtype is exact."""
    dtype = m.dtype(tensor)
    if not dtype.is_small:
        return tensor
    return m.cast(tensor, DType.i8 if dtype.is_small_int else DType.fp32)


def unsupported(m: Importer, why: str, suggestion: str) -> TatamiError:
    """The error UnsupportedModel at the node being imported."""
    return fail("UnsupportedModel", m.site, why, suggestion)
