"""The choice of a token from logits.

    repetition penalty -> temperature -> top-k -> top-p -> min-p -> a draw

The order is that of `transformers`, so that the same options mean the same. Temperature 0 takes the largest logit after the
penalty, the first of equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tatami.core.diagnostic import fail

SMALLEST = 5e-324
"""The least number above 0 of 64 bits."""


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
        rules: tuple[tuple[str, type, float, float, str], ...] = (
            ("temperature", float, 0, 1e3, "from 0 to 1000"),
            ("top_k", int, 0, 1 << 31, "from 0 to 2^31"),
            ("top_p", float, SMALLEST, 1, "above 0, at most 1"),
            ("min_p", float, 0, 1, "from 0 to 1"),
            ("repetition_penalty", float, 1e-3, 1e3, "from 0.001 to 1000"),
            ("seed", int, 0, (1 << 64) - 1, "from 0 to 2^64 - 1"),
        )
        for name, kind, least, most, wanted in rules:
            value = getattr(self, name)
            if name == "seed" and value is None:
                continue
            is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
            if not is_number or not least <= value <= most:
                whole = "a whole number" if kind is int else "a number"
                raise fail("InvalidAttribute", name, f"{name} is {ascii(value)[:40]}", f"give {whole} {wanted}")


def choose(logits: np.ndarray, seen: Sequence[int], how: Sampling, random: np.random.Generator) -> int:
    """A token for the logits [V]; `seen`: the tokens so far, the prompt's too. Raises HostFault for logits that are
    not numbers."""
    values = logits.astype(np.float64)
    if not np.isfinite(values.max()):
        raise fail(
            "HostFault", "logits", "no token: the largest logit is not a finite number", "check the weights of the model"
        )
    if how.repetition_penalty != 1 and len(seen):
        tokens = np.unique(np.asarray(seen))
        some = values[tokens]
        values[tokens] = np.where(some < 0, some * how.repetition_penalty, some / how.repetition_penalty)
    if how.temperature == 0:
        return int(values.argmax())
    return int(random.choice(len(values), p=probabilities(values, how)))


def probabilities(values: np.ndarray, how: Sampling) -> np.ndarray:
    """Probabilities [V] of a draw from penalised logits in float64."""
    with np.errstate(over="ignore"):  # 0 and less: the least temperatures make them -inf
        values = (values - values.max()) / how.temperature
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
