"""The rank correlation of two series: 1 where they order things alike, which is what a choice among candidates needs."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than 3 pairs, or where all of a side are equal.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    a, b = _ranks(one), _ranks(other)
    middle = (len(a) - 1) / 2
    across = sum((x - middle) * (y - middle) for x, y in zip(a, b))
    return round(across / math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)), 12)


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first : last + 1]:
            out[i] = (first + last) / 2
        first = last + 1
    return out
