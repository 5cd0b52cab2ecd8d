"""The face of generation: prompts in, text out."""

from __future__ import annotations

from collections.abc import Generator as Pieces
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path
from typing import TypeAlias, TypeVar

from tatami.core.diagnostic import Diagnostic, fail
from tatami.core.faults.arguments import path_argument
from tatami.generation.engine import CHUNK, Engine, Program
from tatami.generation.sampling import Sampling
from tatami.generation.sequences import Result
from tatami.generation.sequences import Sequence as Running
from tatami.generation.text import TextStream
from tatami.generation.tokens import Tokenizer

Prompt: TypeAlias = "str | Sequence[int]"
"""The beginning of a sequence: a text, or its tokens."""
Element = TypeVar("Element")
MOST = 1 << 24
"""The largest context, number of tokens or of slots that is accepted."""


class Generator:
    """Text from a decoder's program (`tt.compile("model.gguf")`). `tokenizer` None: prompts are tokens, and results have no
    text. `context`: most tokens of a sequence; `slots`: sequences that run together; `chunk`: tokens of a prompt per step.

        generator = Generator.open("model.gguf")
        for text in generator.stream("Once", most=20):
            print(text, end="")
    """

    def __init__(
        self, program: Program, tokenizer: Tokenizer | None = None, *, context: int = 2048, slots: int = 1, chunk: int = CHUNK
    ) -> None:
        for name, value in (("context", context), ("slots", slots), ("chunk", chunk)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
                raise fail("InvalidAttribute", name, f"{name} is {str(value)[:40]!a}", f"give a number from 1 to {MOST}")
        self.tokenizer = tokenizer
        self.warnings: tuple[Diagnostic, ...] = ()
        """Warnings of the compilation; empty for a program that was given."""
        ends = frozenset[int]() if tokenizer is None else tokenizer.ends
        self.engine = Engine(program, context, slots, ends, chunk)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        context: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        precision: str | None = None,
    ) -> Generator:
        """The generator of a GGUF file, compiled for this CPU. `context`: default 4096 or what the model was made for, the
        smaller; `precision`: that of `tt.compile`. Raises TatamiError."""
        from tatami.api import compile
        from tatami.gguf.architectures import sizes_of
        from tatami.gguf.file import read_header

        path = Path(path_argument(path, "path"))
        if path.suffix.lower() != ".gguf":
            raise fail("UnknownFormat", str(path)[:200], "only a .gguf file has a vocabulary", "convert the model to GGUF")
        if context is not None and (isinstance(context, bool) or not isinstance(context, int)):
            raise fail("InvalidAttribute", "context", f"context is {str(context)[:40]!a}", f"give a number from 1 to {MOST}")
        sizes = sizes_of(read_header(path))
        room = sizes.original_context or sizes.context
        if context is not None and context > room:
            raise fail(
                "InvalidAttribute", "context", f"{context} tokens; the model was made for {room}", f"give {room} or fewer"
            )
        tokenizer = Tokenizer.of_file(path)
        program = compile(path, threads=threads, precision=precision)
        made = cls(program, tokenizer, context=min(room, 4096) if context is None else context, slots=slots)
        made.warnings = tuple(program.compilation.warnings)
        return made

    def sequence(self, prompt: Prompt, most: int = 64, sampling: Sampling | None = None, stops: Sequence[str] = ()) -> Running:
        """A sequence for `engine.add`. Raises InvalidAttribute."""
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
            raise fail("InvalidAttribute", "most", f"{str(most)[:40]!a} tokens", f"give a number from 1 to {MOST}")
        stops = (stops,) if isinstance(stops, str) else _several(stops, "stops")
        if not all(isinstance(s, str) and s for s in stops):
            raise fail("InvalidAttribute", "stops", "a stop string is empty, or not a text", "give texts")
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise fail("InvalidAttribute", "prompt", "a text without a tokenizer", "give tokens, or a tokenizer")
            tokens = self.tokenizer.tokens(prompt)
        else:
            given = _several(prompt, "prompt")
            try:
                tokens = tuple(map(index, given))
            except TypeError:
                tokens = ()
            if len(tokens) != len(given) or any(isinstance(t, bool) for t in given):
                raise fail("InvalidAttribute", "prompt", "a token that is not an integer", "give a text, or integers")
        decode = None if self.tokenizer is None else self.tokenizer.text
        return Running(tokens, most, sampling or Sampling(), TextStream(decode, stops))

    def stream(
        self, prompt: Prompt, most: int = 64, sampling: Sampling | None = None, stops: Sequence[str] = ()
    ) -> Pieces[str, None, None]:
        """The text after `prompt`, piece by piece; it ends with at most `most` tokens, an end token, or before one of `stops`.
        Leaving the loop frees the sequence's place."""
        sequence = self.sequence(prompt, most, sampling, stops)
        told: list[str] = []
        self.engine.add(sequence, lambda _, text: told.append(text))
        try:
            while sequence.reason is None:
                self.engine.step()
                yield from filter(None, told)
                told.clear()
            sequence.check()
        finally:
            sequence.cancel()
            self.engine.drop_cancelled()

    def generate(self, prompt: Prompt, most: int = 64, sampling: Sampling | None = None, stops: Sequence[str] = ()) -> Result:
        """All of it at once, with its tokens and the reason of its end."""
        return self.batch([prompt], most, sampling, stops)[0]

    def batch(
        self, prompts: Sequence[Prompt], most: int = 64, sampling: Sampling | None = None, stops: Sequence[str] = ()
    ) -> list[Result]:
        """Results in the order of the prompts. Up to `slots` run together; one that ends makes room for the next."""
        sequences = [self.sequence(p, most, sampling, stops) for p in prompts]
        try:
            for sequence in sequences:
                self.engine.add(sequence, lambda *_: None)
            while any(s.reason is None for s in sequences):
                self.engine.step()
                for sequence in sequences:
                    sequence.check()
        finally:  # a prompt that is refused, or a step that fails, leaves no sequence behind
            for sequence in sequences:
                sequence.cancel()
            self.engine.drop_cancelled()
        return [s.result() for s in sequences]


def _several(value: Iterable[Element], name: str) -> tuple[Element, ...]:
    """The elements of an argument. Raises InvalidAttribute for what has none."""
    if not isinstance(value, Iterable):
        raise fail("InvalidAttribute", name, f"{type(value).__name__} is not a list", "give a text, or a list")
    return tuple(value)
