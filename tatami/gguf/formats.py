"""Formats of tensors in a GGUF file: weights of a block, and its bytes."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """A format: its name, number of weights per block, and bytes per block."""

    name: str
    weights: int
    bytes: int


FORMATS: dict[int, Format] = {
    0: Format("F32", 1, 4),
    1: Format("F16", 1, 2),
    2: Format("Q4_0", 32, 18),
    3: Format("Q4_1", 32, 20),
    6: Format("Q5_0", 32, 22),
    7: Format("Q5_1", 32, 24),
    8: Format("Q8_0", 32, 34),
    12: Format("Q4_K", 256, 144),
    13: Format("Q5_K", 256, 176),
    14: Format("Q6_K", 256, 210),
    30: Format("BF16", 1, 2),
}
"""Code in the file -> format."""
