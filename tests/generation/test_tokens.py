"""Tokens by the vocabulary of a file, against the tokenizer that it was written from, and against the rule of scores."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tatami.core.diagnostic import TatamiError
from tatami.generation import templates
from tatami.generation.tokens import WORDS, Tokenizer
from tests.generation.vocabularies import (
    MARKS,
    SPACE,
    TEXT,
    by_merges,
    pieces_with_scores,
    vocabulary_file,
    write_llama,
    write_merges,
)

SAMPLES = (
    "",
    " ",
    "a",
    TEXT,
    "x" * 50,
    "The rain  began\n\n again 12345",
    "日本 é 🙂",
    "\t\r\n mixed  ",
    "it's THEY'LL 'S",
    "12,345.67",
)


def by_rule(text: str) -> list[int]:
    """The rule of scores, word for word: of all neighbours whose join is a piece, the first with the best score are joined."""
    pieces, scores, types = pieces_with_scores()
    number = {p: i for i, p in enumerate(pieces)}
    parts = list((SPACE + text).replace(" ", SPACE)) if text else []
    while True:
        joins = [(scores[number[a + b]], -i) for i, (a, b) in enumerate(pairwise(parts)) if types[number.get(a + b, 0)] == 1]
        if not joins:
            break
        _, at = max(joins)
        parts[-at : 2 - at] = ["".join(parts[-at : 2 - at])]
    out: list[int] = []
    for part in parts:
        out += [number[part]] if part in number else [number[f"<0x{b:02X}>"] for b in part.encode()]
    return out


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.of_file(vocabulary_file(tmp_path_factory.mktemp("llama") / "v.gguf", write_llama))


@pytest.mark.parametrize("text", SAMPLES)
def test_pieces_are_joined_by_their_scores(llama: Tokenizer, text: str) -> None:
    assert list(llama.tokens(text)) == [1, *by_rule(text)]
    assert llama.text(llama.tokens(text)) == text


@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(st.text(max_size=24) | st.text("The milr'sdaugt 1234,", max_size=40))
def test_every_text_comes_back(llama: Tokenizer, text: str) -> None:
    tokens = llama.tokens(text)
    if not any(mark in text for mark in MARKS):
        assert list(tokens) == [1, *by_rule(text)]
        assert llama.text(tokens) == text


@pytest.mark.parametrize("pattern", ["gpt-2", "llama-bpe", "qwen2"])
def test_merges_are_those_of_the_file(pattern: str, tmp_path: Path) -> None:
    work, pieces, merges = by_merges(WORDS[pattern])
    path = vocabulary_file(tmp_path / "v.gguf", lambda w: write_merges(w, pieces, merges, pattern))
    found = Tokenizer.of_file(path)
    assert found.begin == (len(pieces) - 3 if pattern == "llama-bpe" else None)
    assert found.ends == {len(pieces) - 2}
    for text in SAMPLES:
        assert list(found.tokens(text, begins=False)) == work.encode(text).ids
        assert found.text(found.tokens(text)) == text


def test_marks_are_tokens_and_no_text(llama: Tokenizer) -> None:
    tokens = llama.tokens("<|user|>a<|end|>")
    assert tokens[0] == 1
    assert tokens[1] == 3
    assert tokens[-1] == 2
    assert llama.text(tokens).strip() == "a"


def test_a_conversation_is_written_by_the_template(llama: Tokenizer) -> None:
    tokens = llama.conversation([{"role": "user", "content": "the rain"}])
    assert tokens == llama.tokens("<|begin|><|user|>user: the rain<|user|>assistant: ")
    assert tokens.count(1) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{% for",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('id') }}",
        "{{ missing.attribute }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ '%1000000000d' % 1 }}",
        "{% for a in range(9999) %}{{ 'a' * 100000 }}{% endfor %}",
    ],
)
def test_a_hostile_template_is_one_diagnostic(template: str, tmp_path: Path) -> None:
    path = vocabulary_file(tmp_path / "v.gguf", lambda w: write_llama(w, template))
    with pytest.raises(TatamiError, match=r"E1009 .*the model's template"):
        Tokenizer.of_file(path).conversation([{"role": "user", "content": "x"}])


def test_a_template_that_does_not_end_is_one_diagnostic(llama: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SECONDS", 1)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    monkeypatch.setattr(llama, "chat_template", loop)
    with pytest.raises(TatamiError, match=r"E1009 .*the model's template: it needs more than 1 s"):
        llama.conversation([{"role": "user", "content": "x"}])


def test_a_template_gets_the_end_that_the_file_names(tmp_path: Path) -> None:
    """Not another mark that ends a turn and has a smaller number."""
    pieces, scores, types = pieces_with_scores()
    end = 3

    def write(w: Any) -> None:
        w.add_tokenizer_model("llama")
        w.add_token_list(pieces)
        w.add_token_scores(scores)
        w.add_token_types(types)
        w.add_eos_token_id(end)
        w.add_chat_template("{{ eos_token }}")

    found = Tokenizer.of_file(vocabulary_file(tmp_path / "v.gguf", write))
    assert found.ends == {2, end}
    assert found.conversation([]) == (end,)


def test_a_template_may_write_the_begin_of_a_model_that_wants_none(tmp_path: Path) -> None:
    _, pieces, merges = by_merges(WORDS["qwen2"])

    def write(w: Any) -> None:
        write_merges(w, pieces, merges, "qwen2")
        w.add_chat_template("{{ bos_token }}a{{ eos_token }}")

    found = Tokenizer.of_file(vocabulary_file(tmp_path / "v.gguf", write))
    assert found.begin is None
    begin, *middle, end = found.conversation([])
    assert (begin, end) == (len(pieces) - 3, len(pieces) - 2)
    assert tuple(middle) == found.tokens("a")


@pytest.mark.parametrize(("pattern", "is_whole"), [("llama-bpe", True), ("gpt-2", False)])
def test_a_word_of_llama_3_that_is_a_token_is_not_cut(pattern: str, is_whole: bool, tmp_path: Path) -> None:
    """No merges lead to "abc" here."""
    path = vocabulary_file(tmp_path / "v.gguf", _merges(["a", "b", "c", "ab", "abc"], ["a b"], pattern))
    assert Tokenizer.of_file(path).tokens("abc", begins=False) == ((4,) if is_whole else (3, 2))


def test_messages_that_are_not_data_and_halves_of_characters_are_refused(llama: Tokenizer) -> None:
    with pytest.raises(TatamiError, match="E1009 InvalidAttribute at messages"):
        llama.conversation([{"role": "user", "content": object()}])
    for text in ("\ud800", "a\udfff"):
        with pytest.raises(TatamiError, match=r"E1009 InvalidAttribute at .*surrogate"):
            llama.tokens(text)
        with pytest.raises(TatamiError, match="E1009 InvalidAttribute"):
            llama.conversation([{"role": "user", "content": text}])


def test_a_conversation_without_a_template_is_refused(tmp_path: Path) -> None:
    path = vocabulary_file(tmp_path / "v.gguf", lambda w: write_llama(w, None))
    with pytest.raises(TatamiError, match="the model has no chat template"):
        Tokenizer.of_file(path).conversation([])


def _merges(pieces: list[str], merges: list[str], pattern: str = "gpt-2") -> Any:
    return lambda w: write_merges(w, [*pieces, *MARKS], merges, pattern)


def _kind(w: Any) -> None:
    w.add_tokenizer_model("bert")
    w.add_token_list(["a"])


def _scores(w: Any) -> None:
    w.add_tokenizer_model("llama")
    w.add_token_list(["a", "b"])
    w.add_token_scores([1.0])


def _mark(w: Any) -> None:
    write_llama(w)
    w.add_eot_token_id(1 << 20)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda w: None, "tokens are missing"),
        (_kind, "the tokenizer 'bert' is not supported"),
        (_scores, "another number of scores"),
        (_mark, "eot is not a token"),
        (_merges(["a", "b"], ["ab"]), "a merge of 'ab'"),
        (_merges(["a", "b"], ["a b"]), "not a vocabulary"),
        (_merges(["a", "a"], []), "stand twice"),
        (_merges(["a"], [], "mystery"), "words cut by 'mystery'"),
    ],
)
def test_a_hostile_vocabulary_is_one_diagnostic(write: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(TatamiError, match=words) as raised:
        Tokenizer.of_file(vocabulary_file(tmp_path / "v.gguf", write))
    assert len(raised.value.diagnostics) == 1
