"""A server in a thread, of a program in numpy and a vocabulary of numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import uvicorn

from tatami.generation.generator import Generator
from tatami.serve.app import Server
from tests.generation.stand_in import VOCABULARY, StandIn

MODEL = "sums"


class Numbers:
    """A vocabulary in which a token is its number and a space; a conversation is the numbers of its messages."""

    ends = frozenset[int]()

    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(int(w) % VOCABULARY for w in text.split() if w.isdigit())

    def text(self, tokens: Iterable[int]) -> str:
        return "".join(f"{t} " for t in tokens)

    def conversation(self, messages: Sequence[Mapping[str, object]]) -> tuple[int, ...]:
        return self.tokens(" ".join(str(m["content"]) for m in messages))


class Slow(StandIn):
    """The program, a little slower, so that clients can leave in the middle; `fails`: how many calls fail; `poison`:
    a token with which every call fails."""

    seconds = 0.0
    fails = 0
    poison = -1

    def __call__(self, arrays: Mapping[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        time.sleep(self.seconds)
        if (arrays["tokens"] == self.poison).any():
            raise RuntimeError("a planted fault")
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a planted fault")
        return super().__call__(arrays)


def text_of(tokens: Iterable[int]) -> str:
    """The text of some tokens."""
    return "".join(f"{t} " for t in tokens)


class Running:
    """A server that runs, with its address."""

    def __init__(self, server: Server, program: Slow, port: int) -> None:
        self.server, self.program, self.port = server, program, port
        self.url = f"http://127.0.0.1:{port}"

    def is_idle_within(self, seconds: float) -> bool:
        """True if all places are free soon."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.server.worker.engine.is_idle and not self.server.worker._open:
                return True
            time.sleep(0.01)
        return False


@contextmanager
def serving(*, slots: int = 4, places: int = 32, key: str | None = None, context: int = 256) -> Iterator[Running]:
    program = Slow()
    generator = Generator(program, Numbers(), context=context, slots=slots, chunk=16)  # type: ignore[arg-type]
    server = Server(generator, MODEL, key=key, places=places)
    web = uvicorn.Server(uvicorn.Config(server.app(), port=0, log_level="error"))
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    while not web.started:
        time.sleep(0.01)
    (port,) = [s.getsockname()[1] for u in web.servers for s in u.sockets]
    try:
        yield Running(server, program, port)
    finally:
        web.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
        assert not server.worker.is_alive
