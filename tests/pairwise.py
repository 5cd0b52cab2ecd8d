"""Few rows of choices that hold every pair of them: a pairwise covering set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import combinations
from typing import Any, TypeVar

Pair = frozenset[tuple[str, Any]]
Row = TypeVar("Row")


def pairs_of(choices: dict[str, Any]) -> set[Pair]:
    """Every two choices of a row that gives each factor a value."""
    return set(map(frozenset, combinations(choices.items(), 2)))


def covering(
    pairs: Iterable[Pair],
    candidates: Callable[[Pair, Collection[Pair]], list[Row]],
    choices: Callable[[Row], dict[str, Any]],
    is_legal: Callable[[Row], bool] = lambda row: True,
) -> tuple[list[Row], set[Pair]]:
    """Rows that hold all `pairs`, and the pairs that no legal row was found for. `candidates`: rows with a pair, while
    these pairs are open; of the legal ones that with most open pairs is taken."""
    open_ = dict.fromkeys(pairs)
    rows: list[Row] = []
    impossible: set[Pair] = set()
    while open_:
        pair = next(iter(open_))
        found = sorted(candidates(pair, open_), key=lambda row: -len(pairs_of(choices(row)) & open_.keys()))
        best = next(filter(is_legal, found), None)
        if best is None:
            impossible.add(pair)
            del open_[pair]
            continue
        rows.append(best)
        for p in pairs_of(choices(best)):
            open_.pop(p, None)
    return _needed(rows, choices), impossible


def _needed(rows: list[Row], choices: Callable[[Row], dict[str, Any]]) -> list[Row]:
    """`rows` without those whose pairs all occur in others: the first rows, taken while most pairs were open, may be such."""
    held = Counter(p for row in rows for p in pairs_of(choices(row)))
    kept: list[Row] = []
    for row in rows:
        pairs = pairs_of(choices(row))
        if all(held[p] > 1 for p in pairs):
            held.subtract(pairs)
        else:
            kept.append(row)
    return kept
