"""Mutants that no test notices, each with its reason."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[tuple[str, str, str], str]] = {}
"""Per file, function and change."""
