"""The JSON of answers: whole, and in pieces as events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence as Several

import msgspec

from tatami.generation.sequences import Sequence


class Form:
    """The form of the answers to one request. `chat`: answers are messages; else texts."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.model, self.chat = model, chat
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def _around(self, choices: list[dict[str, object]], *, piece: bool) -> dict[str, object]:
        kind = f"chat.completion{'.chunk' if piece else ''}" if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def whole(self, sequences: Several[Sequence], prompts: int) -> bytes:
        """All answers. `prompts`: number of tokens of the prompts, each counted once."""
        choices = []
        for i, s in enumerate(sequences):
            text: dict[str, object] = {"text": s.text.whole}
            said: dict[str, object] = {"message": {"role": "assistant", "content": s.text.whole}}
            choices.append({"index": i, **(said if self.chat else text), "logprobs": None, "finish_reason": s.reason})
        return msgspec.json.encode(self._around(choices, piece=False) | {"usage": usage(sequences, prompts)})

    def begin(self, index: int) -> bytes:
        """The event that begins an answer of a conversation; nothing for a text."""
        return self._event(index, {"role": "assistant", "content": ""}, None) if self.chat else b""

    def piece(self, index: int, text: str) -> bytes:
        """The event of a piece of an answer."""
        return self._event(index, {"content": text}, None) if self.chat else self._text_event(index, text, None)

    def end(self, index: int, reason: str | None) -> bytes:
        """The event that ends an answer."""
        return self._event(index, {}, reason) if self.chat else self._text_event(index, "", reason)

    def _event(self, index: int, delta: dict[str, object], reason: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event(self._around([choice], piece=True))

    def _text_event(self, index: int, text: str, reason: str | None) -> bytes:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
        return event(self._around([choice], piece=True))

    def usage(self, sequences: Several[Sequence], prompts: int) -> bytes:
        """The event with the counts, which a client may ask for."""
        return event(self._around([], piece=True) | {"usage": usage(sequences, prompts)})


def usage(sequences: Several[Sequence], prompts: int) -> dict[str, int]:
    """The counts of tokens that an answer reports, by their names in OpenAI's interface."""
    generated = sum(len(s.generated) for s in sequences)
    return {"prompt_tokens": prompts, "completion_tokens": generated, "total_tokens": prompts + generated}


def event(value: object) -> bytes:
    """The bytes of a server-sent event that carries a value as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
