"""The sizes of a call that a program's assumptions do not fit.

a[batch, n, 256], b[batch, n, w] with 256 and w named alike, called with w = 8     axis 2 of a, axis 2 of b
x[batch, t] where a batch of at least 2 is assumed, called with 1                  axis 0 of x
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.signature import Signature
from tatami.core.sizes.binding import equation_symbols, solve_sizes

Axes = frozenset[tuple[str, int]]
"""Axes of inputs, each as (input, number of the axis)."""


def broken_axes(signature: Signature, shapes: Mapping[str, tuple[int, ...]]) -> Axes:
    """The axes of inputs whose sizes take part in an assumption that the call breaks: two axes of one name have different sizes,
    or an equation does not hold. Empty if these are all axes that are open, or if none is found."""
    found: dict[str, set[int]] = {}
    axes: dict[tuple[str, int], frozenset[str]] = {}
    for port in signature.inputs:
        actual = shapes.get(port.tensor)
        if actual is None or len(actual) != len(port.shape):
            continue
        for axis, (size, value) in enumerate(zip(port.shape, actual, strict=True)):
            if size.as_int() is None:
                axes[port.tensor, axis] = frozenset(free_vars(size))
            if (name := size.as_name()) is not None:
                found.setdefault(name, set()).add(value)
    sizes = solve_sizes(signature, shapes)
    broken = {name for name, values in found.items() if len(values) > 1}
    for equation in signature.assumptions:
        of = equation_symbols(equation)
        if of <= sizes.keys() and evaluate(equation.lhs, sizes) != evaluate(equation.rhs, sizes):
            broken |= of
    wanted = frozenset(place for place, of in axes.items() if of & broken)
    return frozenset() if len(wanted) == len(axes) else wanted
