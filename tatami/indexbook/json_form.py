"""The exchange form of an IndexBook: plain fields, and the check that no index expression keeps % (spec 3 §14 E1203)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import fail
from tatami.indexbook.ir import IndexBook

_NOT_POSITIVE = re.compile(r"//\s*(-|\(\s*-\s*\d+\s*\)|0\b)")


def encode(book: IndexBook) -> Any:
    """The book as plain JSON values."""
    return to_builtins(book)


def decode(value: Any, at: str = "indexbook", *, trust: bool = False) -> IndexBook:
    """The book. Raises TatamiError: MissingDivGuard for % and for divisors that are not positive."""
    for place, text in _texts(value, at):
        if "%" in text:
            raise fail(
                "MissingDivGuard",
                place,
                f"the index expression {text!r} keeps %",
                "linearise and re-split: write E % q as E - q*(E//q), with a guard where E may leave its range",
            )
        if _NOT_POSITIVE.search(text):
            raise fail(
                "MissingDivGuard",
                place,
                f"the index expression {text!r} divides by a number that is not positive",
                "write the denominator positive: E//-q is (-E)//q",
            )
    return from_builtins(value, IndexBook, at, trust=trust)


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every string below `value` with its path; iterative, since documents may be large."""
    stack: list[tuple[str, Any]] = [(at, value)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, dict):
            stack.extend((f"{place}.{k}", v) for k, v in reversed(item.items()))
        elif isinstance(item, list | tuple):
            stack.extend((f"{place}[{k}]", v) for k, v in reversed(list(enumerate(item))))
