"""Strings of a program as numbers, one code per word (decision 0040).

A program has no strings. Every word is a code: the model's own words (keys, labels, categories) get theirs when the model
is imported; other words of a call get the next ones, for this call alone, so that they can pass through to an output. A
function of a word's letters (its case, its parts, the number that it spells) is a table over the words of the call, made
before the program runs; the program reads it with a gather.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.onnx.strings.word_functions import FUNCTIONS, joined


@dataclass(frozen=True)
class Table:
    """A function of single words, as arrays of the program with a row for every word."""

    ports: tuple[str, ...]
    function: str
    """Name in `word_functions.FUNCTIONS`."""
    attrs: tuple[Any, ...]
    sources: frozenset[str]
    """The inputs and tables whose words may be looked up; "" stands for the model's own words."""


@dataclass(frozen=True)
class Joined:
    """Two texts of the caller's arrays, joined word by word; both broadcast."""

    port: str
    left: str
    right: str
    """Names of inputs or other joined texts; "" stands for `constant`."""
    constant: np.ndarray | None = None


@dataclass
class Words:
    """The words of one call. `known`: the model's own, shared by all calls and never changed."""

    known: Mapping[str, int]
    fresh: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """The text inputs in their given shapes, by port."""
    live: dict[str, set[int]] = field(default_factory=dict)
    """The codes that may come from an input or a table, by its name."""

    def code(self, word: str) -> int:
        """The code of a word, a new one if it is unknown."""
        found = self.known.get(word)
        return self.fresh.setdefault(word, len(self.known) + len(self.fresh)) if found is None else found

    def codes(self, words: Iterable[str]) -> np.ndarray:
        """Codes of words, as an array of i64."""
        return np.fromiter((self.code(w) for w in words), np.int64)

    def encode(self, port: str, value: Any) -> np.ndarray:
        """The codes of an array of words. Raises InputMismatch for elements that are not strings."""
        array = np.asarray(value, object) if not isinstance(value, np.ndarray) else value
        if array.dtype.kind not in "OSU" or not all(isinstance(w, str | bytes) for w in array.flat):
            kind = array.dtype if array.dtype.kind not in "OSU" else "objects that are not strings"
            raise fail("InputMismatch", port, f"an array of {kind} for an input of strings", "give strings")
        words = [w.decode("utf-8", "replace") if isinstance(w, bytes) else str(w) for w in array.flat]
        codes = self.codes(words).reshape(array.shape)
        self.arrays[port] = np.array(words, object).reshape(array.shape)
        self.live[port] = set(codes.flat)
        return codes

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The words of an array of codes."""
        every = self.every()
        return np.array([every[c] for c in codes.flat], object).reshape(codes.shape)

    def every(self) -> list[str]:
        """All words, in the order of their codes."""
        return [*self.known, *self.fresh]

    def make(self, steps: Sequence[Table | Joined], into: MutableMapping[str, Any]) -> None:
        """Put the arrays of joined texts and tables into `into`, in the model's order."""
        for step in steps:
            if isinstance(step, Joined):
                left = self.arrays[step.left] if step.left else step.constant
                right = self.arrays[step.right] if step.right else step.constant
                into[step.port] = self.encode(step.port, joined(left, right))
            else:
                self._tabulate(step, into)

    def _tabulate(self, table: Table, into: MutableMapping[str, Any]) -> None:
        every = self.every()
        live = {c for s in table.sources if s for c in self.live[s]}
        codes = sorted(live.union(range(len(self.known))) if "" in table.sources else live)
        columns = FUNCTIONS[table.function]([every[c] for c in codes], *table.attrs)
        made: set[int] = set()
        entries: list[np.ndarray] = []
        for column in columns:
            if column.dtype.kind in "OSU":
                column = self.codes(column.flat).reshape(column.shape)
                made.update(column.flat)
            entries.append(column)
        count = len(self.known) + len(self.fresh)
        for port, column in zip(table.ports, entries, strict=True):
            array = np.zeros((count, *column.shape[1:]), column.dtype)
            array[codes] = column
            into[port] = array
            self.live[port] = made


def number_text(v: Any) -> str:
    """A number as ONNX Runtime prints it: floats with 8 digits, NaN, INF and -INF."""
    if v.dtype.kind not in "f":
        return str(int(v))
    if np.isnan(v):
        return "NaN"
    if np.isinf(v):
        return "INF" if v > 0 else "-INF"
    return f"{float(v):.8g}"
