"""Steps of a decoder's program for several sequences, each of which begins and ends at any step.

    caches   [slots, heads, context, head] per layer, written in place; a sequence has a slot until it ends
    a step   one chunk of one prompt, then one token of every sequence whose prompt is written

Sequences take the lowest free slot, and a step computes the slots up to the last one in use. A slot between them without a
token to compute takes a token at a position that is written again before it is read. One thread at a time calls the engine.

An error ends the sequence that it came from, with the reason "fault". A step of several sequences that fails is repeated for each
of them alone: it writes what it wrote before, and only those end that fail alone too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.signature import Signature
from tatami.generation.sampling import choose
from tatami.generation.sequences import Reason, Sequence

CHUNK = 256
"""Tokens of a prompt per step: more keep the sequences that are being generated waiting, fewer read the weights more often."""
SPAN = 64
"""Keys by which the span of a step grows, so that most steps have the sizes of the one before: memory of a call is laid out once
for each tuple of sizes."""
MOST_BYTES = 1 << 40
"""Maximum bytes of the caches; the system gives memory as they are written."""
Told: TypeAlias = Callable[[Sequence, str], object]
"""Called with a sequence and the text that it has more."""


class Program(Protocol):
    """A decoder's program: the interface that `gguf/decoder.py` describes."""

    @property
    def signature(self) -> Signature:
        """Names and shapes of its inputs."""

    def __call__(self, arrays: Mapping[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        """The results of a step, by name."""


class Engine:
    """The caches of a program and the sequences in them. `ends`: tokens that end a sequence. `context`: most tokens of a
    sequence, its prompt's too. Raises InvalidAttribute for a program of another interface."""

    def __init__(
        self, program: Program, context: int, slots: int = 1, ends: frozenset[int] = frozenset(), chunk: int = CHUNK
    ) -> None:
        self.program, self.context, self.slots, self.ends, self.chunk = program, context, slots, ends, chunk
        self.caches, self.vocabulary = caches_of(program.signature, slots, context)
        self.waiting: deque[tuple[Sequence, Told]] = deque()
        self.running: dict[int, tuple[Sequence, Told]] = {}
        """Slot -> the sequence in it."""
        self._span = np.zeros(context, np.uint8)

    def add(self, sequence: Sequence, told: Told) -> None:
        """Queue a sequence. `told`: called with its text as it comes, and once with "" when `reason` is set. Raises
        InputMismatch, as `check` does."""
        self.check(sequence.prompt)
        self.waiting.append((sequence, told))

    def check(self, prompt: tuple[int, ...]) -> None:
        """Raise InputMismatch for a prompt that is empty, does not fit, or has tokens outside the vocabulary."""
        if not prompt:
            raise fail("InputMismatch", "prompt", "it has no tokens", "give a text")
        if len(prompt) >= self.context:
            why = f"{len(prompt)} tokens; the context has room for {self.context}, one generated token included"
            raise fail("InputMismatch", "prompt", why, "give a shorter prompt, or a larger context")
        if not all(0 <= t < self.vocabulary for t in prompt):
            raise fail("InputMismatch", "prompt", "a token outside the vocabulary", f"tokens are 0 to {self.vocabulary - 1}")

    @property
    def is_idle(self) -> bool:
        """True if no sequence runs or waits."""
        return not self.running and not self.waiting

    def step(self) -> None:
        """One chunk of a prompt, and one token of each sequence that has its prompt in the caches."""
        self.drop_cancelled()
        self._admit()
        prompts = [slot for slot, (s, _) in self.running.items() if not s.is_prompt_written]
        if prompts:
            with self._ending(prompts[0]):
                self._write_chunk(prompts[0])
        if any(s.is_prompt_written for s, _ in self.running.values()):
            self._write_tokens(
                {slot for slot, (s, _) in self.running.items() if s.written < len(s.tokens) and s.is_prompt_written}
            )

    def drop_cancelled(self) -> None:
        """Free the places of cancelled sequences, and tell their callers."""
        for slot in [slot for slot, (s, _) in self.running.items() if s.reason is not None]:
            sequence, told = self.running.pop(slot)
            told(sequence, "")
        kept: deque[tuple[Sequence, Told]] = deque()
        for sequence, told in self.waiting:
            if sequence.reason is None:
                kept.append((sequence, told))
            else:
                told(sequence, "")
        self.waiting = kept

    def _admit(self) -> None:
        free = (slot for slot in range(self.slots) if slot not in self.running)
        while self.waiting and (slot := next(free, None)) is not None:
            self.running[slot] = self.waiting.popleft()

    def _write_chunk(self, slot: int) -> None:
        """The next tokens of a prompt; after the last of them, the first generated token."""
        sequence, _ = self.running[slot]
        first = sequence.written
        tokens = sequence.prompt[first : first + self.chunk]
        positions = np.arange(first, first + len(tokens), dtype=np.int64)
        own = {name: cache[slot : slot + 1] for name, cache in self.caches.items()}
        logits = self._run(np.array([tokens], np.int64), positions[None], own)
        sequence.written += len(tokens)
        if sequence.is_prompt_written:
            self._take(slot, logits[0])

    def _write_tokens(self, active: set[int]) -> None:
        """The last token of each active sequence, and the next one of each."""
        if not active:
            return
        count = max(active) + 1
        tokens, positions = np.zeros((count, 1), np.int64), np.zeros((count, 1), np.int64)
        for slot in range(count):
            if slot in self.running:
                sequence = self.running[slot][0]
                positions[slot] = min(sequence.written, self.context - 1)
                tokens[slot] = sequence.tokens[-1] if slot in active else 0
        try:
            logits = self._run(tokens, positions, {name: cache[:count] for name, cache in self.caches.items()})
        except Exception:  # each is computed alone, which shows the ones that fail
            for slot in sorted(active):
                with self._ending(slot):
                    own = {name: cache[slot : slot + 1] for name, cache in self.caches.items()}
                    found = self._run(tokens[slot : slot + 1], positions[slot : slot + 1], own)
                    self._go_on(slot, found[0])
            return
        for slot in sorted(active):
            with self._ending(slot):
                self._go_on(slot, logits[slot])

    def _go_on(self, slot: int, logits: np.ndarray) -> None:
        """Count the last token of a sequence as written, and add the one that follows."""
        self.running[slot][0].written += 1
        self._take(slot, logits)

    @contextmanager
    def _ending(self, slot: int) -> Iterator[None]:
        """Let an error inside end the sequence of this slot, and nothing else."""
        sequence, told = self.running[slot]
        try:
            yield
        except Exception as error:
            sequence.fail(error)
            self.running.pop(slot, None)
            with suppress(Exception):  # the caller's function may be what failed
                told(sequence, "")

    def _run(self, tokens: np.ndarray, positions: np.ndarray, caches: Mapping[str, np.ndarray]) -> np.ndarray:
        keys = int(positions.max()) + 1
        span = self._span[: -(-keys // SPAN) * SPAN]  # rows see their own positions only; numpy ends it with the context
        return self.program({"tokens": tokens, "positions": positions, "span": span, **caches})["logits"]

    def _take(self, slot: int, logits: np.ndarray) -> None:
        """Add the token that follows, tell its text, and free the slot if the sequence ends."""
        sequence, told = self.running[slot]
        token = choose(logits, sequence.tokens, sequence.how, sequence.random)
        reason: Reason | None = None
        text = ""
        if token in self.ends:
            reason = "stop"
        else:
            sequence.tokens.append(token)
            text = sequence.text.add(token)
            if sequence.text.is_stopped:
                reason = "stop"
            elif len(sequence.generated) >= sequence.most or len(sequence.tokens) >= self.context:
                reason = "length"
        if reason is not None:
            text += sequence.text.finish()
            sequence.reason = sequence.reason or reason
            del self.running[slot]
        if text:
            told(sequence, text)
        if reason is not None:
            told(sequence, "")


def caches_of(signature: Signature, slots: int, context: int) -> tuple[dict[str, np.ndarray], int]:
    """Empty caches by the name of their input, and the size of the vocabulary. Raises InvalidAttribute for a program that is not
    a decoder's, OutOfMemory."""
    ports = {p.tensor: p for p in signature.inputs if p.storage == "argument"}
    logits = next((o for o in signature.outputs if o.tensor == "logits"), None)
    caches = {name: p for name, p in ports.items() if name.startswith(("keys.", "values."))}
    vocabulary = logits.shape[-1].as_int() if logits is not None and logits.shape else None
    if ports.keys() - caches.keys() != {"tokens", "positions", "span"} or not caches or vocabulary is None:
        why = f"its inputs are {', '.join(list(ports)[:5])}"
        raise fail("InvalidAttribute", "program", f"not a decoder's program: {why}", "compile a .gguf file")
    out: dict[str, np.ndarray] = {}
    shapes = {name: (slots, p.shape[1].as_int() or 0, context, p.shape[3].as_int() or 0) for name, p in caches.items()}
    if sum(4 * int(np.prod(shape, dtype=object)) for shape in shapes.values()) > MOST_BYTES:
        raise fail("OutOfMemory", "caches", f"{slots} sequences of {context} tokens", "use a smaller context or fewer slots")
    for name, shape in shapes.items():
        try:
            out[name] = np.zeros(shape, np.float32)
        except MemoryError:
            raise fail("OutOfMemory", "caches", f"no room for {list(shape)}", "use a smaller context or fewer slots") from None
    return out, vocabulary
