"""Text and tokens, by the vocabulary that a GGUF file holds; the work is that of the package `tokenizers`.

llama    pieces with scores: the pair whose piece has the best score is merged first; other bytes are pieces of their own
gpt2     bytes as letters, and a list of merges; words are cut by a pattern that the file names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

from tatami.core.diagnostic import TatamiError, fail
from tatami.generation.templates import render
from tatami.gguf.file import GgufFile, Metadata, read_header

if TYPE_CHECKING:
    import tokenizers

CONTROL, USER, BYTE = 3, 4, 6
"""Types of tokens: marks that no text contains, words that are never cut, single bytes."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_OF_THREE_DIGITS = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_OF_SINGLE_DIGITS = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
_OF_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS: dict[str, str] = {
    "gpt-2": _OF_GPT2,
    "gpt2": _OF_GPT2,
    "default": _OF_GPT2,
    "llama3": _OF_THREE_DIGITS,
    "llama-v3": _OF_THREE_DIGITS,
    "llama-bpe": _OF_THREE_DIGITS,
    "qwen2": _OF_SINGLE_DIGITS,
}
"""Value of tokenizer.ggml.pre -> pattern of the words that merges stay within."""
LLAMA3 = frozenset(["llama3", "llama-v3", "llama-bpe"])
"""Values of tokenizer.ggml.pre for Llama 3: a word that is a token is not cut, and texts begin with a mark unless the file says
otherwise."""


class Tokenizer:
    """Text to tokens and back. `begin`: the token before each text, if the model wants one; `ends`: tokens that end a text;
    `chat_template`: how a conversation is written, or None; `marks`: texts of the file's marks, by their names in templates."""

    def __init__(
        self,
        work: tokenizers.Tokenizer,
        *,
        begin: int | None,
        ends: frozenset[int],
        chat_template: str | None = None,
        marks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.work, self.begin, self.ends, self.chat_template, self.marks = work, begin, ends, chat_template, marks

    @classmethod
    def of_file(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a GGUF file. Raises ParseError for a vocabulary that is not whole, UnsupportedModel for a kind that
        is not known, MissingPackage."""
        return _Vocabulary(read_header(Path(path))).tokenizer()

    def tokens(self, text: str, *, begins: bool = True) -> tuple[int, ...]:
        """The tokens of a text. `begins`: after the token that begins a text, if the model has one. Raises InvalidAttribute for
        halves of surrogate pairs, which no encoding has."""
        try:
            text.encode()
        except UnicodeEncodeError:
            why = "a text with half of a surrogate pair"
            raise fail("InvalidAttribute", "prompt", why, "give whole characters") from None
        found = tuple(self.work.encode(text, add_special_tokens=False).ids)
        return (self.begin, *found) if begins and self.begin is not None and found[:1] != (self.begin,) else found

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without marks."""
        found: str = self.work.decode(list(tokens), skip_special_tokens=True)
        return found

    def conversation(self, messages: Sequence[Mapping[str, object]]) -> tuple[int, ...]:
        """The tokens of a conversation up to the place of the next answer, as the model's template writes it. Raises
        InvalidAttribute without a template, or if it refuses the messages; MissingPackage."""
        if self.chat_template is None:
            raise fail("InvalidAttribute", "messages", "the model has no chat template", "give a prompt instead")
        text = render(self.chat_template, {"messages": messages, **self.marks, "add_generation_prompt": True})
        return self.tokens(text)


def _needed(module: str, package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise fail(
            "MissingPackage", package, f"the package {package!r} is not installed", 'pip install "tatami[llm]"'
        ) from None


class _Vocabulary:
    """The vocabulary of a file, checked."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.pieces = self.texts("tokens")
        if len(set(self.pieces)) != len(self.pieces) or not self.pieces:
            raise self.broken("tokens are missing, or stand twice")
        types = self.value("token_type", (1,) * len(self.pieces))
        if not isinstance(types, tuple) or len(types) != len(self.pieces):
            raise self.broken("it has another number of types than of tokens")
        self.types = types

    def broken(self, why: str) -> TatamiError:
        return fail("ParseError", self.file.path.name, f"not a vocabulary: {why}", "convert the model again")

    def value(self, key: str, default: Metadata | None = None) -> Metadata | None:
        return self.file.metadata.get(f"tokenizer.ggml.{key}", default)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value(key, ())
        if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
            raise self.broken(f"{key} are not texts")
        return tuple(map(str, value))

    def mark(self, key: str) -> int | None:
        """The number of a token, if the file names it."""
        value = self.value(f"{key}_token_id")
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(self.pieces):
            raise self.broken(f"{key} is not a token")
        return value

    def tokenizer(self) -> Tokenizer:
        lib = _needed("tokenizers", "tokenizers")
        kind = self.value("model")
        if kind not in ("llama", "gpt2"):
            why = f"the tokenizer {str(kind)[:40]!a} is not supported"
            raise fail("UnsupportedModel", self.file.path.name, why, "the kinds are llama and gpt2")
        try:
            work = self.by_scores(lib) if kind == "llama" else self.by_merges(lib)
            marks = [(p, t == CONTROL) for p, t in zip(self.pieces, self.types) if t in (CONTROL, USER)]
            work.add_special_tokens([lib.AddedToken(p, special=True, normalized=False) for p, is_mark in marks if is_mark])
            work.add_tokens([lib.AddedToken(p, special=False, normalized=False) for p, is_mark in marks if not is_mark])
        except TatamiError:
            raise
        except Exception as error:  # the package's own error type is Exception
            raise self.broken(str(error)[:200]) from None
        ends = {self.mark(k) for k in ("eos", "eot", "eom")} - {None}
        ends |= {i for i, p in enumerate(self.pieces) if self.types[i] == CONTROL and p in TURN_ENDS}
        begins = self.value("add_bos_token", kind == "llama" or self.value("pre") in LLAMA3)
        numbers = {f"{name}_token": self.mark(name) for name in ("bos", "eos")}
        template = self.file.metadata.get("tokenizer.chat_template")
        return Tokenizer(
            work,
            begin=self.mark("bos") if begins else None,
            ends=frozenset(e for e in ends if e is not None),
            chat_template=template if isinstance(template, str) else None,
            marks={name: "" if number is None else self.pieces[number] for name, number in numbers.items()},
        )

    def by_scores(self, lib: ModuleType) -> tokenizers.Tokenizer:
        """Every cut of a piece into two others is a merge, the best score first. Letters that are not pieces themselves are never
        merged, since `tokenizers` merges pieces only; vocabularies have all letters of their pieces."""
        scores = self.value("scores", ())
        if not isinstance(scores, tuple) or len(scores) != len(self.pieces) or any(isinstance(s, str) for s in scores):
            raise self.broken("it has another number of scores than of tokens")
        number = {p: i for i, p in enumerate(self.pieces)}
        merges: list[tuple[float, int, str, str]] = []
        for i, piece in enumerate(self.pieces):
            if self.types[i] in (CONTROL, USER, BYTE) or len(piece) > 64:
                continue
            merges += [
                (-float(scores[i]), i, piece[:cut], piece[cut:])
                for cut in range(1, len(piece))
                if piece[:cut] in number and piece[cut:] in number
            ]
        merges.sort()
        unknown = self.mark("unknown")
        work = lib.Tokenizer(
            lib.models.BPE(
                vocab=number,
                merges=[(a, b) for _, _, a, b in merges],
                unk_token=self.pieces[0 if unknown is None else unknown],
                fuse_unk=True,
                byte_fallback=True,
            )
        )
        leads = bool(self.value("add_space_prefix", True))
        replace = lib.normalizers.Replace(" ", _SPACE)
        work.normalizer = lib.normalizers.Sequence([lib.normalizers.Prepend(_SPACE), replace]) if leads else replace
        spaces = [lib.decoders.Replace(_SPACE, " "), lib.decoders.ByteFallback(), lib.decoders.Fuse()]
        work.decoder = lib.decoders.Sequence([*spaces, lib.decoders.Strip(" ", 1, 0)] if leads else spaces)
        return work

    def by_merges(self, lib: ModuleType) -> tokenizers.Tokenizer:
        pattern = self.value("pre", "default")
        if pattern not in WORDS:
            why = f"words cut by {str(pattern)[:40]!a} are not supported"
            raise fail("UnsupportedModel", self.file.path.name, why, f"known are {', '.join(WORDS)}")
        merges = []
        for text in self.texts("merges"):
            first, space, second = text.partition(" ")
            if not (first and space and second) or " " in second:
                raise self.broken(f"a merge of {text[:40]!a}")
            merges.append((first, second))
        vocabulary = {p: i for i, p in enumerate(self.pieces)}
        work = lib.Tokenizer(lib.models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pattern in LLAMA3))
        split = lib.pre_tokenizers.Split(lib.Regex(WORDS[str(pattern)]), "isolated")
        letters = lib.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        work.pre_tokenizer = lib.pre_tokenizers.Sequence([split, letters])
        work.decoder = lib.decoders.ByteLevel()
        return work


TURN_ENDS = frozenset(["<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"])
"""Marks that end an answer in the templates of the architectures, whether or not the file names them as ends."""
