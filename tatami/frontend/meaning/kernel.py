"""The numpy meaning of custom kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

import numpy as np

from tatami.core.custom.formula import Apply, Convert, Number, Placeholder
from tatami.core.diagnostic import fail
from tatami.core.expr import shape_text
from tatami.core.numbers.numerics import Array, apply, cast, constant
from tatami.frontend.meaning.reduction import REDUCTION
from tatami.frontend.meaning.scope import Scope
from tatami.frontend.operations.kernel import Kernel, KernelReduce, KernelScan, formula_terms
from tatami.frontend.operations.kernel_body import KernelBody, apply_meaning

Formulas: TypeAlias = Kernel | KernelReduce | KernelScan


def _values(s: Scope, attrs: Formulas) -> Scope:
    """The scope of the operation after the formula: its operand is the formula's values over the whole index space."""
    shape = np.broadcast_shapes(*(a.shape for a in s.present), s.shape(attrs.shape or ()))
    values: list[Array] = []
    terms = formula_terms(attrs, tuple(s.dtypes), len(shape), s.at)
    for t in terms:
        match t.term:
            case Number(value=value):
                values.append(constant(value, t.dtype, s.mode))
            case Placeholder(kind="input", index=k):
                values.append(s[k])
            case Placeholder(kind="ridx", index=k):
                along = [-1 if axis == k else 1 for axis in range(len(shape))]
                values.append(np.arange(shape[k], dtype=np.int64).reshape(along))
            case Placeholder(index=k):
                values.append(np.asarray(shape[k], np.int64))
            case Convert():
                values.append(cast(values[t.args[0]], t.dtype, s.mode))
            case Apply(fn=fn):
                values.append(apply(fn, [values[a] for a in t.args], t.dtype, s.mode))
            case _:
                assert_never(t.term)
    return replace(s, args=[np.broadcast_to(values[-1], shape)], dtypes=[terms[-1].dtype])


def kernel(s: Scope, attrs: Kernel) -> Array:
    """The values of the formula at every element."""
    return _values(s, attrs).args[0]  # type: ignore[return-value]


def kernel_reduce(s: Scope, attrs: KernelReduce) -> Array:
    """The values of the formula, reduced over axes."""
    return REDUCTION[f"reduce_{attrs.op}"](_values(s, attrs), attrs.reduction)


def kernel_scan(s: Scope, attrs: KernelScan) -> Array:
    """The values of the formula, accumulated along an axis."""
    return REDUCTION[f"cum{attrs.op}"](_values(s, attrs), attrs.scan)


def kernel_body(s: Scope, attrs: KernelBody) -> tuple[Array, ...]:
    """The arrays that the body's numpy meaning returns. Raises HostFault for another rank than declared."""
    made = apply_meaning({"meaning": attrs.meaning}, s.present, len(attrs.outputs), s.at)
    for array, type in zip(made, s.types, strict=True):
        if np.ndim(array) != len(type.shape):
            why = f"the numpy meaning gave an array of shape {list(np.shape(array))} for {shape_text(type.shape)}"
            raise fail("HostFault", s.at, why, "return arrays of the declared shapes")
    return tuple(np.asarray(array) for array in made)


KERNEL: dict[str, Callable[[Scope, Any], Array | tuple[Array, ...]]] = {
    "kernel": kernel,
    "kernel_reduce": kernel_reduce,
    "kernel_scan": kernel_scan,
    "kernel_body": kernel_body,
}
"""Operation -> numpy meaning."""
