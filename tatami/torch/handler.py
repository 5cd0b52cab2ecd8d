"""The type of a row of the operator table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Handler: TypeAlias = Callable[..., object]
"""Function of (importer, *the operator's arguments) that returns the result, or a tuple of them. Raises Refusal or
TatamiError."""
