"""Collectives as host steps, which the execution plan begins as soon as their operand is ready (`execution/waves.py`)."""

from __future__ import annotations

from functools import partial

from tatami.core.numbers.collectives import COLLECTIVES
from tatami.core.scalar import Scalar
from tatami.frontend.operation import attribute_values
from tatami.frontend.operations.collectives import Exchange
from tatami.tiny.build import Value
from tatami.tiny.ir import CallOp, ResultType
from tatami.tiny.lowering.rule import Rule, Use


def _step(name: str, use: Use[Exchange]) -> tuple[Value, ...]:
    """The host step `name` with the attributes of the operation."""
    attrs: dict[str, Scalar | list[Scalar]] = {
        k: list(v) if isinstance(v, tuple) else v for k, v in attribute_values(use.attrs).items()
    }
    results = tuple(ResultType(t.dtype, t.shape) for t in use.types)
    return use.builder.call(CallOp("host", (name,), results, attrs=attrs), use.present)


COLLECTIVE: dict[str, Rule] = {name: partial(_step, name) for name in sorted(COLLECTIVES)}
"""Lowering rules of collectives."""
