"""The JSON of requests. A field that is not known, or that asks for what is not done, is an error: an answer that ignores what
was asked for looks like one that obeys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from tatami.core.diagnostic import TatamiError
from tatami.generation.sampling import Sampling

MOST_CHOICES = 64
"""Maximum number of answers to one request."""
Count = Annotated[int, Meta(ge=1, le=1 << 24)]
Stop = Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=16)]
Zero = Annotated[float, Meta(ge=0, le=0)]
"""A penalty that is not supported, and may be 0."""


class BadRequest(Exception):
    """A request that is answered with an error. `param`: the field at fault."""

    def __init__(self, why: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(why)
        self.why, self.param, self.status, self.code = why, param, status, code


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields of both kinds of requests. `top_k`, `min_p` and `repetition_penalty` are not
    OpenAI's; the penalties and biases after them are accepted if they change nothing."""

    model: str
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Annotated[str, Meta(min_length=1, max_length=256)] | Stop | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    user: str | None = None
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, float], Meta(max_length=0)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings before which an answer ends."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self, choice: int) -> Sampling:
        """The options of one of the answers, whose seeds differ. Raises BadRequest."""
        given = {"temperature": 1.0, **{f: getattr(self, f) for f in SAMPLED if getattr(self, f) is not None}}
        seed = None if self.seed is None else (self.seed + choice) % (1 << 63)
        try:
            return Sampling(**given, seed=seed)
        except TatamiError as error:
            (found,) = error.diagnostics
            raise BadRequest(f"{found.why}: {found.suggestion}", param=found.at) from None


SAMPLED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that say how tokens are chosen."""


class Completion(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of /v1/completions."""

    prompt: str | list[str | int | list[int]]
    max_tokens: Count | None = None
    echo: Literal[False] | None = None
    best_of: Annotated[int, Meta(ge=1, le=1)] | None = None
    logprobs: None = None
    suffix: None = None

    @property
    def most(self) -> int:
        """Number of tokens to generate."""
        return self.max_tokens or 16

    def prompts(self) -> list[str | list[int]]:
        """The prompts, as texts or tokens. Raises BadRequest."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and all(isinstance(p, int) for p in self.prompt):
            return [[p for p in self.prompt if isinstance(p, int)]]
        texts = [p for p in self.prompt if not isinstance(p, int)]
        if not texts or len(texts) != len(self.prompt):
            raise BadRequest("a prompt is a text, a list of tokens, or a list of either", param="prompt")
        return texts


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a message; only text is."""

    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a conversation."""

    role: Annotated[str, Meta(min_length=1, max_length=32)]
    content: str | list[Part]
    name: str | None = None

    def plain(self) -> dict[str, object]:
        """The message as templates read it."""
        content = self.content if isinstance(self.content, str) else "".join(p.text for p in self.content)
        name: dict[str, object] = {} if self.name is None else {"name": self.name}
        return {"role": self.role, "content": content, **name}


class Chat(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=4096)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: None = None
    tools: Annotated[list[object], Meta(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | None = None

    @property
    def most(self) -> int | None:
        """Number of tokens to generate; None: what the context has room for."""
        return self.max_completion_tokens or self.max_tokens


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A format of answers; only plain text is."""

    type: Literal["text"]


Body = TypeVar("Body", Completion, Chat)


def read_body(data: bytes, kind: type[Body], model: str) -> Body:
    """The body of a request. Raises BadRequest."""
    try:
        body = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise BadRequest(why, param=at.strip("`.") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"not JSON: {str(error)[:200]}") from None
    if body.model != model:
        raise BadRequest(f"the model {body.model[:80]!a} is not served", param="model", status=404, code="model_not_found")
    return body


def error_body(error: BadRequest) -> Mapping[str, object]:
    """The JSON of an error, in OpenAI's form."""
    kinds = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
    kind = kinds.get(error.status, "invalid_request_error")
    return {"error": {"message": error.why, "type": kind, "param": error.param, "code": error.code}}
