"""The work of `tatami generate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import click
import msgspec

from tatami.cli.terminal import show_diagnostics
from tatami.core.diagnostic import fail
from tatami.generation.generator import Generator
from tatami.generation.sampling import Sampling

MOST_PROMPT = 1 << 22
"""Maximum bytes of a prompt from standard input."""


class Options(msgspec.Struct, frozen=True):
    """The options of `tatami generate`, by their names there."""

    prompt: str | None
    most: int
    chat: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int | None
    stops: tuple[str, ...]
    context: int | None
    precision: str | None
    threads: int | None


def generate_command(model: str, given: Mapping[str, object]) -> None:
    """Print the text as it comes, and then, on standard error, how long it took."""
    options = msgspec.convert(given, Options)
    sampling = Sampling(**{f: getattr(options, f) for f in msgspec.structs.asdict(Sampling())})
    prompt = options.prompt
    if prompt is None or prompt == "-":
        data = sys.stdin.buffer.read(MOST_PROMPT + 1)
        if len(data) > MOST_PROMPT:
            raise fail("InputTooLarge", "prompt", f"more than {MOST_PROMPT} bytes", "give a shorter prompt")
        prompt = data.decode("utf-8", errors="replace")
    generator = Generator.open(model, context=options.context, threads=options.threads, precision=options.precision)
    show_diagnostics(generator.warnings)
    assert generator.tokenizer is not None
    if options.chat:
        tokens = generator.tokenizer.conversation([{"role": "user", "content": prompt}])
    else:
        tokens = generator.tokenizer.tokens(prompt)
    sequence = generator.sequence(tokens, options.most, sampling, options.stops)
    started = time.perf_counter()
    first = 0.0

    def told(_: object, text: str) -> None:
        nonlocal first
        first = first or time.perf_counter()
        sys.stdout.write(text)
        sys.stdout.flush()

    generator.engine.add(sequence, told)
    while sequence.reason is None:
        generator.engine.step()
    sequence.check()
    ended = time.perf_counter()
    sys.stdout.write("\n")
    count = len(sequence.generated)
    read = f"{len(tokens)} tokens read in {first - started:.2f} s"
    rate = (count - 1) / (ended - first) if count > 1 and ended > first else 0.0
    click.echo(f"{read}, {count} generated at {rate:.1f} tokens/s ({sequence.reason})", err=True)
