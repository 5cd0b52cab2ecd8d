"""Sequences that begin and end at any step, in slots that others used before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.generation.engine import Engine
from tatami.generation.generator import Generator
from tatami.generation.sampling import Sampling
from tatami.generation.sequences import Sequence
from tatami.generation.text import TextStream
from tests.generation.stand_in import VOCABULARY, StandIn, after


def prompts(count: int, longest: int = 40) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(count)
    return [tuple(map(int, rng.integers(0, VOCABULARY, rng.integers(1, longest)))) for _ in range(count)]


def sequence(prompt: tuple[int, ...], most: int) -> Sequence:
    return Sequence(prompt, most, Sampling(), TextStream(None))


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_each_of_many_sequences_has_its_own_tokens(slots: int, chunk: int) -> None:
    generator = Generator(StandIn(), context=64, slots=slots, chunk=chunk)
    asked = prompts(20)
    for prompt, result in zip(asked, generator.batch(asked, most=11), strict=True):
        assert result.tokens == after(prompt, 11)
        assert result.reason == "length"
        assert result.prompt_tokens == len(prompt)


def test_sequences_come_and_go_at_any_step() -> None:
    """Added while others run, cancelled at random: the rest have the tokens that they have alone."""
    program = StandIn()
    engine = Engine(program, context=64, slots=4, chunk=5)
    rng = np.random.default_rng(0)
    every: list[tuple[Sequence, tuple[int, ...]]] = []
    ended: list[Sequence] = []
    for prompt in prompts(200, 30):
        s = sequence(prompt, int(rng.integers(1, 20)))
        every.append((s, prompt))
        engine.add(s, lambda s, text: ended.append(s))
        for _ in range(rng.integers(0, 4)):
            engine.step()
        if rng.random() < 0.3:
            every[int(rng.integers(0, len(every)))][0].cancel()
    while not engine.is_idle:
        engine.step()
    assert len(ended) == len(every)
    assert {id(s) for s in ended} == {id(s) for s, _ in every}
    reasons = [s.reason for s, _ in every]
    assert reasons.count("cancelled") > 10
    assert reasons.count("length") > 100
    for s, prompt in every:
        assert tuple(s.generated) == after(prompt, len(s.generated))
        assert s.reason == "cancelled" or len(s.generated) == s.most


def test_one_step_serves_all_that_run() -> None:
    program = StandIn()
    Generator(program, context=64, slots=8).batch([(5,)] * 8, most=10)
    assert program.steps.count((8, 1)) >= 2
    assert len(program.steps) < 8 + 20


def test_prompts_go_in_chunks_between_the_tokens_of_others() -> None:
    """A long prompt does not keep a running sequence waiting: each step has a chunk of the one and a token of the other."""
    program = StandIn()
    engine = Engine(program, context=64, slots=2, chunk=4)
    engine.add(sequence((1, 2), 30), lambda *_: None)
    engine.step()
    engine.add(sequence(tuple(range(20)), 1), lambda *_: None)
    program.steps.clear()
    for _ in range(4):
        engine.step()
    assert program.steps == [(1, 4), (1, 1)] * 4


def test_a_sequence_ends_where_its_context_does() -> None:
    result = Generator(StandIn(), context=16).generate((1, 2, 3), most=100)
    assert result.reason == "length"
    assert len(result.tokens) == 13
    assert result.tokens == after((1, 2, 3), 13)


def test_an_end_token_ends_and_is_not_part_of_the_result() -> None:
    prompt = (4, 9, 2)
    tokens = after(prompt, 6)
    engine = Engine(StandIn(), 64, 1, frozenset({tokens[4]}))
    s = sequence(prompt, 50)
    engine.add(s, lambda *_: None)
    while not engine.is_idle:
        engine.step()
    first = tokens.index(tokens[4])
    assert s.reason == "stop"
    assert tuple(s.generated) == tokens[:first]


class Numbers:
    """A vocabulary in which a token is its number and a space."""

    ends = frozenset[int]()

    def tokens(self, text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split()))

    def text(self, tokens: Iterable[int]) -> str:
        return "".join(f"{t} " for t in tokens)


def test_a_stream_gives_its_text_and_frees_its_place_when_it_is_left() -> None:
    program = StandIn()
    generator = Generator(program, Numbers(), context=64)  # type: ignore[arg-type]
    want = [f"{t} " for t in after((1, 2, 3), 50)]
    assert list(generator.stream("1 2 3", most=50)) == want
    stream = generator.stream("1 2 3", most=50)
    assert [next(stream), next(stream)] == want[:2]
    stream.close()
    assert generator.engine.is_idle
    assert len(program.steps) < 55
    assert generator.generate("7", most=5).tokens == after((7,), 5)


def test_a_stop_string_is_no_part_of_the_text() -> None:
    generator = Generator(StandIn(), Numbers(), context=64)  # type: ignore[arg-type]
    tokens = after((1, 2, 3), 9)
    result = generator.generate("1 2 3", most=50, stops=[f"{tokens[4]} {tokens[5]}"])
    assert result.text == "".join(f"{t} " for t in tokens[:4])
    assert result.reason == "stop"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [((), "it has no tokens"), (tuple(range(64)), "64 tokens"), ((1, VOCABULARY), "outside the vocabulary"), ((-1,), "outside"), ((1.5,), "not an integer"), ((True,), "not an integer"), (None, "NoneType is not a list"), (3, "int is not a list"), ("text", "without a tokenizer")],
)  # fmt: skip
def test_a_prompt_that_cannot_be_served_is_one_diagnostic(prompt: object, words: str) -> None:
    generator = Generator(StandIn(), context=64)
    with pytest.raises(TatamiError, match=words) as raised:
        generator.generate(prompt)  # type: ignore[arg-type]
    assert len(raised.value.diagnostics) == 1
    assert generator.engine.is_idle


def test_tokens_of_numpy_are_tokens() -> None:
    generator = Generator(StandIn(), context=64)
    assert generator.generate(np.array([3, 1, 4]), most=5).tokens == after((3, 1, 4), 5)  # type: ignore[arg-type]
    with pytest.raises(TatamiError, match="E1009 InvalidAttribute at stops"):
        generator.generate((1,), stops=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["context", "slots", "chunk"])
@pytest.mark.parametrize("value", [0, -1, 1 << 40, 1.5, True, None])
def test_wrong_numbers_are_one_diagnostic(name: str, value: object) -> None:
    with pytest.raises(TatamiError, match=f"E1009 .*{name}"):
        Generator(StandIn(), **{name: value})  # type: ignore[arg-type]


def test_a_batch_that_is_refused_leaves_nothing_behind() -> None:
    program = StandIn()
    generator = Generator(program, context=64, slots=2)
    with pytest.raises(TatamiError, match="64 tokens"):
        generator.batch([(1, 2), (3,), tuple(range(64))], most=5)
    assert generator.engine.is_idle
    assert not program.steps
    assert generator.generate((1, 2), most=5).tokens == after((1, 2), 5)


def test_caches_beyond_all_memory_are_refused() -> None:
    with pytest.raises(TatamiError, match="E1803"):
        Generator(StandIn(), context=1 << 24, slots=1 << 24)


def test_another_program_is_refused() -> None:
    g = Graph("other")
    g.output("y", g.input("x", (3,), DType.fp32).relu())
    program = StandIn()
    program.signature = g.graph().signature
    with pytest.raises(TatamiError, match=r"not a decoder's program: its inputs are x"):
        Generator(program)


class Poisoned(StandIn):
    """A program that fails in every call with the token 13; `once`: in its next call."""

    once = False

    def __call__(self, arrays: Mapping[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        found = super().__call__(arrays)  # it fails after it has written, and writes the same again
        if self.once or (arrays["tokens"] == 13).any():
            self.once = False
            raise RuntimeError("a planted fault")
        return found


def test_a_fault_ends_its_own_sequence() -> None:
    program = Poisoned()
    engine = Engine(program, context=64, slots=4, chunk=5)
    asked = prompts(60, 20)
    every = [sequence(p, 11) for p in asked]
    told: list[Sequence] = []
    for s in every:
        engine.add(s, lambda s, text: None if text else told.append(s))
    while not engine.is_idle:
        engine.step()
    assert sorted(map(id, told)) == sorted(map(id, every))
    for prompt, s in zip(asked, every, strict=True):
        tokens = (*prompt, *after(prompt, 10))  # the last one is not computed with
        assert s.reason == ("fault" if 13 in tokens else "length")
        assert tuple(s.generated) == after(prompt, 11)[: len(s.generated)]
    assert {s.reason for s in every} == {"fault", "length"}


def test_a_step_that_fails_once_ends_nothing_among_several() -> None:
    program = Poisoned()
    engine = Engine(program, context=64, slots=3)
    asked = ((1, 2), (3, 4, 5), (7,))
    every = [sequence(p, 9) for p in asked]
    for s in every:
        engine.add(s, lambda *_: None)
    for _ in range(4):
        engine.step()
    program.once = True
    while not engine.is_idle:
        engine.step()
    assert [tuple(s.generated) for s in every] == [after(p, 9) for p in asked]


def test_a_caller_s_function_that_fails_ends_its_sequence() -> None:
    engine = Engine(StandIn(), context=64, slots=2)
    good, bad = sequence((1, 2), 9), sequence((3,), 9)

    def fails(_: Sequence, text: str) -> None:
        raise ValueError("a planted fault")

    bad.text = TextStream(lambda tokens: "".join(f"{t} " for t in tokens))
    engine.add(good, lambda *_: None)
    engine.add(bad, fails)
    while not engine.is_idle:
        engine.step()
    assert tuple(good.generated) == after((1, 2), 9)
    assert bad.reason == "fault"


def test_a_generator_raises_the_fault() -> None:
    generator = Generator(Poisoned(), context=64, slots=2)
    for ask in (lambda: generator.batch([(1, 2), (13,)]), lambda: list(generator.stream((13,)))):
        with pytest.raises(RuntimeError, match="a planted fault"):
            ask()
        assert generator.engine.is_idle
