"""Tokens to text as they come. A character may be several tokens, and a stop string may begin in one token and end in another:
both are held back until it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""Last character of a text that ends within a character."""


class TextStream:
    """The text of one sequence. `decode`: tokens to text, None for no text. `stops`: strings at whose begin the text ends."""

    def __init__(self, decode: Callable[[Sequence[int]], str] | None, stops: tuple[str, ...] = ()) -> None:
        self.decode, self.stops = decode, stops
        self.whole = ""
        """All text that was given out."""
        self.is_stopped = False
        self._held = ""
        self._tokens: list[int] = []
        self._begin = self._read = 0
        """First token of the context that `decode` needs, and first token that is not text yet."""

    def add(self, token: int) -> str:
        """The text that is certain after this token."""
        self._tokens.append(token)
        if self.decode is None:
            return ""
        before = self.decode(self._tokens[self._begin : self._read])
        after = self.decode(self._tokens[self._begin :])
        if after.endswith(UNFINISHED) and len(self._tokens) - self._read < 8:
            return ""
        self._begin, self._read = self._read, len(self._tokens)
        return self._given(after[len(before) :])

    def finish(self) -> str:
        """The text that was held back, at the end of a sequence."""
        if self.decode is None or self.is_stopped:
            return ""
        before = self.decode(self._tokens[self._begin : self._read])
        last = self.decode(self._tokens[self._begin :])[len(before) :]
        self._read = len(self._tokens)
        found = self._given(last)
        held, self._held = self._held, ""  # empty if `last` holds a stop string
        self.whole += held
        return found + held

    def _given(self, text: str) -> str:
        """`text` and what was held back, up to a stop string or the begin of one."""
        text = self._held + text
        ends = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if ends:
            self.is_stopped = True
            text, self._held = text[: min(ends)], ""
        else:
            keep = max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.whole += text
        return text
