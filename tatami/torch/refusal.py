"""The exception for operators that cannot be imported."""

from __future__ import annotations


class Refusal(Exception):
    """The reason why the frontend cannot express an operator, or an argument of it. It becomes part of one diagnostic, or
    the operator stays in PyTorch."""
