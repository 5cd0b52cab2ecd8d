"""When a difference of times counts, on a machine whose times scatter.

Two programs run in turns, so that drift of the machine meets both, and each turn gives one ratio of their times. The candidate
is faster if the median of the ratios is below 1 by at least `GAIN`, and a coin would win as many turns with a probability of
`CHANCE` at most (a sign test: no assumption about the distribution of times, and single disturbed turns do not
matter). The turns of this test are not those by which the candidate was selected among others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median, quantiles

GAIN = 0.02
"""Minimum gain: less is not worth a decision that somebody has to keep."""
CHANCE = 0.0016
"""Maximum probability that a candidate that is not faster passes at one look. A test has three looks at most, and a search three
tests, so that a false winner has a probability of 0.015 at most."""


def ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """The other's time over the own one's, turn by turn."""
    return [b / a for a, b in zip(own, other, strict=True)]


def is_faster(found: Sequence[float]) -> bool:
    """True if the ratios say that the candidate is faster, beyond noise."""
    return bool(found) and median(found) <= 1 - GAIN and tail(sum(r < 1 for r in found), len(found)) <= CHANCE


def is_slower(found: Sequence[float]) -> bool:
    """True if the ratios say that the candidate is slower, beyond noise: by any amount, for a program must not lose."""
    return bool(found) and median(found) > 1 and tail(sum(r > 1 for r in found), len(found)) <= CHANCE


def tail(wins: int, turns: int) -> float:
    """The probability of at least so many heads in throws of a coin.

    >>> tail(10, 10) == 1 / 1024, tail(0, 4)
    (True, 1.0)
    """
    return float(sum(comb(turns, k) for k in range(wins, turns + 1)) / 2**turns)


def spread(times: Sequence[float]) -> float:
    """The middle half of the times over their median: 0.02 on a quiet machine."""
    if len(times) < 2:
        return 0.0
    low, middle, high = quantiles(times, n=4)
    return (high - low) / middle if middle else 0.0
