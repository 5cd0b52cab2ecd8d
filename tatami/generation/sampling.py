"""The choice of a token from logits.

    repetition penalty -> temperature -> top-k -> top-p -> min-p -> a draw

The order is that of `transformers`, so that the same options mean the same. Temperature 0 takes the largest logit after the
penalty, the first of equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec
import numpy as np

from tatami.core.diagnostic import fail


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are chosen. Raises InvalidAttribute for a value out of range."""

    temperature: float = 0.0
    """Divisor of the logits; 0: the most likely token."""
    top_k: int = 0
    """Number of most likely tokens that are drawn from; 0: all."""
    top_p: float = 1.0
    """Least probability that the most likely tokens have together; 1: all tokens."""
    min_p: float = 0.0
    """Least probability of a token, relative to the most likely one; 0: all."""
    repetition_penalty: float = 1.0
    """Divisor of positive logits, and factor of negative ones, of tokens that occurred; 1: none."""
    seed: int | None = None
    """Seed of the draws; None: other tokens in each call."""

    def __post_init__(self) -> None:
        rules = (
            ("temperature", 0 <= self.temperature <= 1e3, "from 0 to 1000"),
            ("top_k", 0 <= self.top_k <= 1 << 31, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty <= 1e3, "above 0, at most 1000"),
            ("seed", self.seed is None or 0 <= self.seed < 1 << 64, "from 0 to 2^64 - 1"),
        )
        for name, holds, wanted in rules:
            value = getattr(self, name)
            if not holds or (isinstance(value, float) and not isfinite(value)):
                raise fail("InvalidAttribute", name, f"{name} is {str(value)[:40]}", f"give a number {wanted}")


def choose(logits: np.ndarray, seen: Sequence[int], how: Sampling, random: np.random.Generator) -> int:
    """A token for the logits [V]; `seen`: the tokens so far, the prompt's too."""
    values = logits.astype(np.float64)
    if how.repetition_penalty != 1 and len(seen):
        tokens = np.unique(np.asarray(seen))
        some = values[tokens]
        values[tokens] = np.where(some < 0, some * how.repetition_penalty, some / how.repetition_penalty)
    if how.temperature == 0:
        return int(values.argmax())
    return int(random.choice(len(values), p=probabilities(values, how)))


def probabilities(values: np.ndarray, how: Sampling) -> np.ndarray:
    """Probabilities [V] of a draw from penalised logits in float64."""
    values = values / how.temperature
    if 0 < how.top_k < len(values):
        least = np.partition(values, -how.top_k)[-how.top_k]
        values = np.where(values < least, -np.inf, values)
    if how.top_p < 1:
        order = np.argsort(-values, kind="stable")
        sums = np.cumsum(_softmax(values[order]))
        values[order[1:]] = np.where(sums[:-1] >= how.top_p, -np.inf, values[order[1:]])
    found = _softmax(values)
    if how.min_p > 0:
        found = np.where(found < how.min_p * found.max(), 0.0, found)
        found /= found.sum()
    return found


def _softmax(values: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(values - values.max())
    return weights / weights.sum()
