"""Scalar constants in nodes. JSON has no infinities, so a node holds them as the words INF, -INF and NAN."""

from __future__ import annotations

import json
import math
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str

_WORDS = {"INF": math.inf, "-INF": -math.inf, "NAN": math.nan}


def scalar(value: bool | int | float | str) -> Scalar:
    """`value` as nodes hold it: a finite number or one of the three words. Raises ValueError for other text."""
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(f"{value!r} is not a number; the words are {', '.join(_WORDS)}")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return value


def number(value: Scalar) -> bool | int | float:
    """The Python number a node's scalar stands for."""
    return _WORDS[value] if isinstance(value, str) else value


def one_line(value: object) -> str:
    """An attribute as dumps print it: text in JSON's quotes unless it is one plain line."""
    return json.dumps(value) if isinstance(value, str) and not value.isprintable() else str(value)
