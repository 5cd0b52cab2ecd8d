"""A request on its way through the engine."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tatami.generation.sampling import Sampling
from tatami.generation.text import TextStream

Reason: TypeAlias = Literal["stop", "length", "cancelled", "fault"]
"""Why a sequence ended: an end token or a stop string; as many tokens as asked for, or no room; its caller left; a step failed."""


class Result(NamedTuple):
    """The text and tokens that follow a prompt."""

    text: str
    tokens: tuple[int, ...]
    """The generated tokens, an end token not counted."""
    reason: Reason
    prompt_tokens: int


class Sequence:
    """A prompt and what follows it. `most`: number of tokens to generate."""

    def __init__(self, prompt: tuple[int, ...], most: int, how: Sampling, text: TextStream) -> None:
        self.prompt, self.most, self.how, self.text = prompt, most, how, text
        self.tokens: list[int] = list(prompt)
        self.written = 0
        """Number of tokens whose keys and values are in the caches."""
        self.reason: Reason | None = None
        self.fault: Exception | None = None
        """The error that ended it, for the reason "fault"."""
        self.random = np.random.default_rng(how.seed)

    @property
    def generated(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[len(self.prompt) :]

    @property
    def is_prompt_written(self) -> bool:
        """True if the next step takes one token: the last one."""
        return self.written >= len(self.prompt)

    def cancel(self) -> None:
        """End the sequence; its place is free at the next step."""
        self.reason = self.reason or "cancelled"

    def fail(self, error: Exception) -> None:
        """End the sequence by an error."""
        if self.reason is None:
            self.reason, self.fault = "fault", error

    def check(self) -> None:
        """Raise the error that ended the sequence, if one did."""
        if self.fault is not None:
            raise self.fault

    def result(self) -> Result:
        """The text and tokens so far, and the reason of their end."""
        return Result(self.text.whole, tuple(self.generated), self.reason or "cancelled", len(self.prompt))
