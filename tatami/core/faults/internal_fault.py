"""A fault that no check foresaw, in the words of a diagnostic (E1900)."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb

from tatami.core.diagnostic import Diagnostic, diagnostic

ADVICE = "this is a fault of Tatami: run again with TATAMI_LOG=debug and report what it prints"
"""Suggestion of every E1900."""


def described(error: Exception) -> str:
    """The error's first line, with the place in Tatami that raised it."""
    frame = next((f for f in reversed(extract_tb(error.__traceback__)) if "tatami" in f.filename), None)
    place = f" ({Path(frame.filename).parent.name}/{Path(frame.filename).name}:{frame.lineno})" if frame else ""
    return f"{type(error).__name__}: {error}".split("\n")[0][:200] + place


def internal_fault(at: str, error: Exception) -> Diagnostic:
    """The diagnostic for a fault of Tatami itself: its place, and how to see more."""
    return diagnostic("InternalError", at, described(error), ADVICE)
