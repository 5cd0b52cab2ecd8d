"""The meaning of collectives: an exchange with the other processes, waited for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tatami.core.numbers.collectives import COLLECTIVES, exchanged
from tatami.core.numbers.numerics import Array
from tatami.frontend.meaning.scope import Scope
from tatami.frontend.operation import attribute_values
from tatami.frontend.operations.collectives import Exchange


def _exchange(name: str, s: Scope, attrs: Exchange) -> Array:
    """The result of the exchange `name`."""
    return exchanged(name, attribute_values(attrs), s[0], s.at)


COLLECTIVE: dict[str, Callable[[Scope, Any], Array]] = {name: partial(_exchange, name) for name in sorted(COLLECTIVES)}
"""Operation -> numpy meaning."""
