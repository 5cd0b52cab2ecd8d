"""Functions of single words, by name: each takes distinct words and returns arrays with one row for each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tatami.core.diagnostic import fail

Columns = tuple[np.ndarray, ...]


def as_number(words: Sequence[str], dtype: str) -> Columns:
    """The number that each word spells, in dtype `dtype`. Raises InputMismatch for a word that spells none."""
    kind = np.dtype(dtype)
    out = np.zeros(len(words), kind)
    for i, word in enumerate(words):
        try:
            out[i] = int(word) if kind.kind in "iu" else float(word)
        except (ValueError, OverflowError):
            raise fail("InputMismatch", "Cast", f"{word!r} is not a number of {kind}", "give numbers as words") from None
    return (out,)


def with_case(words: Sequence[str], change: str) -> Columns:
    """The words in lower or upper case, or unchanged."""
    return (_words(w.lower() if change == "LOWER" else w.upper() if change == "UPPER" else w for w in words),)


def matches(words: Sequence[str], pattern: str) -> Columns:
    """Bool: the whole word matches the pattern (RE2's and Python's common syntax)."""
    compiled = re.compile(pattern)
    return (np.array([compiled.fullmatch(w) is not None for w in words], bool),)


def parts(words: Sequence[str], delimiter: str, most: int | None) -> Columns:
    """The parts of each word, padded with "", and their number. Without a delimiter words are split at white space. `most`:
    maximum number of parts."""
    if delimiter:
        split = [w.split(delimiter, -1 if most is None else most) if w else [] for w in words]
    else:
        split = [w.strip().split(None, -1 if most is None else most) for w in words]
    return _filled(split, ""), np.array([len(s) for s in split], np.int64)


def tokens(words: Sequence[str], mark: bool, pad: str, separators: tuple[str, ...], expression: str, least: int) -> Columns:
    """The tokens of each word with at least `least` characters (com.microsoft.Tokenizer), between two marks if `mark`."""
    out: list[list[str]] = []
    for word in words:
        if expression:
            found = [t.group() for t in re.finditer(expression, word)]
        elif separators == ("",):
            found = list(word)
        else:
            found = [word]
            for separator in separators:
                found = [piece for f in found for piece in re.split(separator, f)]
        found = [t for t in found if t and len(t) >= least]
        out.append([START, *found, END] if mark else found)
    return (_filled(out, pad),)


START, END = "\x02", "\x03"
"""Marks before and after the tokens of a text."""


def followed_by(words: Sequence[str], tail: str) -> Columns:
    """The words with `tail` appended."""
    return (_words(w + tail for w in words),)


def preceded_by(words: Sequence[str], head: str) -> Columns:
    """The words with `head` prepended."""
    return (_words(head + w for w in words),)


def _words(words: Any) -> np.ndarray:
    listed = list(words)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out


def _filled(rows: Sequence[Sequence[str]], pad: str) -> np.ndarray:
    out = np.full((len(rows), max((len(r) for r in rows), default=0)), pad, object)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def joined(left: Any, right: Any) -> np.ndarray:
    """Pairs of words joined, with broadcasting."""
    return np.asarray(np.asarray(left, object) + np.asarray(right, object), object)


FUNCTIONS: dict[str, Callable[..., Columns]] = {
    "as_number": as_number,
    "with_case": with_case,
    "matches": matches,
    "parts": parts,
    "tokens": tokens,
    "followed_by": followed_by,
    "preceded_by": preceded_by,
}
"""The functions of single words by name."""
