"""Why an operator cannot be imported."""

from __future__ import annotations


class Refusal(Exception):
    """An operator, or an argument of it, that the frontend cannot express. Becomes part of one diagnostic, or the
    operator stays in PyTorch."""
