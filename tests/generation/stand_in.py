"""A decoder's program in numpy, small enough to know its tokens by heart: the next token is a sum over all tokens before it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.core.signature import Input, Output, Signature

VOCABULARY = 97


def next_token(tokens: tuple[int, ...]) -> int:
    """The token that follows: each position has its own factor."""
    return sum((i + 3) * t for i, t in enumerate(tokens)) % VOCABULARY


def after(prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The `count` tokens that follow a prompt."""
    tokens = prompt
    for _ in range(count):
        tokens = (*tokens, next_token(tokens))
    return tokens[len(prompt) :]


class StandIn:
    """The program. Its cache holds the tokens themselves; `steps` has the shape of each call."""

    def __init__(self) -> None:
        i64, open_ = DType.i64, (var("B"), var("S"))
        cache = (var("B"), expr(1), var("T") + var("R"), expr(1))
        self.signature = Signature(
            (
                Input("tokens", i64, open_),
                Input("positions", i64, open_),
                Input("span", DType.u8, (var("T"),)),
                Input("keys.0", DType.fp32, cache, "state", "mutable"),
            ),
            (Output("logits", DType.fp32, (var("B"), expr(VOCABULARY))),),
        )
        self.steps: list[tuple[int, ...]] = []

    def __call__(self, arrays: Mapping[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        tokens, positions, cache = arrays["tokens"], arrays["positions"], arrays["keys.0"]
        self.steps.append(tokens.shape)
        assert cache.base is not None, "the caches are views of the engine's"
        assert positions.max() < len(arrays["span"]) <= cache.shape[2]
        logits = np.zeros((len(tokens), VOCABULARY), np.float32)
        for row in range(len(tokens)):
            cache[row, 0, positions[row], 0] = tokens[row]
            seen = tuple(int(t) for t in cache[row, 0, : positions[row, -1] + 1, 0])
            logits[row, next_token(seen)] = 1
        return {"logits": logits}
