"""What a row of the operator table is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[..., Any]
"""(importer, *the operator's arguments) -> the result, or a tuple of them. Raises Refusal or TatamiError."""
