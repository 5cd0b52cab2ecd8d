"""Steps of a decoder's program over caches that a test holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def caches_of(program: Any, batch: int, room: int) -> dict[str, np.ndarray]:
    """Caches for `room` tokens of each sequence, filled with numbers that no step should read."""
    made: dict[str, np.ndarray] = {}
    for port in program.signature.inputs:
        if port.tensor.startswith(("keys.", "values.")):
            heads, head = (n.as_int() for n in (port.shape[1], port.shape[3]))
            made[port.tensor] = np.full((batch, heads, room, head), 1e4, np.float32)
    return made


def chunks_of(tokens: np.ndarray, counts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(position of the first token, tokens) of chunks of these lengths."""
    first = 0
    for count in counts:
        yield first, tokens[first : first + count]
        first += count


def logits_after_each(program: Any, tokens: np.ndarray, counts: Sequence[int], room: int = 64) -> list[np.ndarray]:
    """Logits [V] of the last token of each chunk of one sequence."""
    caches = caches_of(program, 1, room)
    out = []
    for first, chunk in chunks_of(tokens, counts):
        positions = np.arange(first, first + len(chunk))[None]
        span = np.zeros(first + len(chunk), np.uint8)
        out.append(program(tokens=chunk[None], positions=positions, span=span, **caches)["logits"][0])
    return out
