"""Vocabularies of both kinds, small, with a file that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TEXT = """The miller's daughter counted 1234 sacks, 56 of them wet; "we'll grind them all," she said. Der Müller schlief.
Nobody knew what 7 x 8 was, but they'd have it written down: 五十六. Then the rain began again, and it didn't stop.
    def f(x):\n        return x + 1\n\n\n"""
MARKS = ("<|begin|>", "<|end|>", "<|user|>")
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|user|>{{ m['role'] }}: {{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|user|>assistant: {% endif %}"
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def by_merges(pattern: str) -> tuple[Any, list[str], list[str]]:
    """A tokenizer trained on TEXT with words cut by `pattern`; its tokens and its merges."""
    work = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    work.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    work.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    work.train_from_iterator([TEXT] * 3, trainer)
    import json

    model = json.loads(work.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    return work, [*pieces, *MARKS], merges


def pieces_with_scores() -> tuple[list[str], list[float], list[int]]:
    """Pieces of a llama vocabulary: marks, bytes, words of TEXT and their parts; long words have better scores."""
    words = sorted({SPACE + w for w in TEXT.split()} | {w[:n] for w in TEXT.split() for n in range(2, len(w) + 1)})
    letters = sorted({*TEXT.replace(" ", SPACE)} - {"\n"})
    parts = sorted({SPACE + w[:n] for w in TEXT.split() for n in range(1, 4)} - set(words) - set(letters))
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    pieces = ["<unk>", *MARKS, *bytes_, *dict.fromkeys([*letters, *parts, *words])]
    scores = [0.0] * 260 + [-float((i * 7919) % 1009) for i in range(len(pieces) - 260)]
    types = [2, 3, 3, 3, *[6] * 256, *[1] * (len(pieces) - 260)]
    return pieces, scores, types


def write_llama(writer: Any, template: str | None = TEMPLATE) -> None:
    pieces, scores, types = pieces_with_scores()
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template is not None:
        writer.add_chat_template(template)


def write_merges(writer: Any, pieces: list[str], merges: list[str], pattern: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pattern)
    writer.add_token_list(pieces)
    writer.add_token_merges(merges)
    writer.add_token_types([1] * (len(pieces) - len(MARKS)) + [3] * len(MARKS))
    writer.add_bos_token_id(len(pieces) - 3)
    writer.add_eos_token_id(len(pieces) - 2)


def vocabulary_file(path: Path, write: Any) -> Path:
    """A file with metadata that `write` adds, and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    write(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
