"""Models from GGUF files against the models of `transformers` with the same numbers, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.runtime.machine.host import detect_host
from tests.gguf.small import small_model
from tests.gguf.steps import caches_of, logits_after_each
from tests.gguf.written import KINDS, QUANTS, VOCABULARY, Written, written

TOKENS = np.random.default_rng(0).integers(3, VOCABULARY, 24)
COUNTS = (9, 1, 1, 4, 1)
"""Lengths of chunks: a prompt, single tokens, a later chunk."""


def worst(made: Written, counts: tuple[int, ...] = COUNTS) -> float:
    """Largest difference of logits, relative to the largest logit."""
    tokens = TOKENS[: sum(counts)]
    want = made.logits(tokens)
    ends = np.cumsum(counts) - 1
    found = logits_after_each(tt.compile(made.path), tokens, counts)
    return float(max(np.abs(got - want[at]).max() for got, at in zip(found, ends, strict=True)) / np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_prompt_chunks_and_single_tokens(kind: str, tmp_path: Path) -> None:
    assert worst(written(tmp_path, kind)) < 2e-6


@pytest.mark.parametrize("form", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_weights_of_every_format(form: str, tmp_path: Path) -> None:
    assert worst(written(tmp_path, "llama", getattr(QUANTS, form))) < 1e-5


@pytest.mark.skipif("vnni" not in detect_host().features, reason="rows are rounded where bytes are multiplied in fours")
@pytest.mark.parametrize("form", ["Q8_0", "Q4_0"])
def test_rounded_rows_are_near_the_exact_ones(form: str, tmp_path: Path) -> None:
    made = written(tmp_path, "llama", getattr(QUANTS, form))
    tokens = np.random.default_rng(6).integers(0, VOCABULARY, 12)
    f = tt.compile(made.path, precision="int8")
    for row, want in zip(logits_after_each(f, tokens, (6, 5, 1)), made.logits(tokens)[[5, 10, 11]], strict=True):
        assert 1e-4 < np.linalg.norm(row - want) / np.linalg.norm(want) < 4e-2


def test_one_format_does_not_pass_for_another(tmp_path: Path) -> None:
    """The tolerance tells formats apart: the same weights in 8 bits are further from those in 4 than it allows."""
    four, eight = (written(tmp_path, "llama", getattr(QUANTS, form)) for form in ("Q4_0", "Q8_0"))
    assert np.abs(four.logits(TOKENS) - eight.logits(TOKENS)).max() > 1e-2


def test_a_window_hides_older_keys(tmp_path: Path) -> None:
    made = written(tmp_path, "phi3", sliding_window=5)
    assert worst(made, (3, 1, 9, 1)) < 2e-6


def test_factors_of_frequencies(tmp_path: Path) -> None:
    """Llama 3.1 divides its low frequencies; converters write the factors as a tensor."""
    scaled = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip

    def describe(writer: Any) -> None:
        plain = 10000.0 ** -(np.arange(16) / 16)
        low, high = 64 / 1.0, 64 / 4.0
        wave = 2 * np.pi / plain
        smooth = (64 / wave - 1.0) / (4.0 - 1.0)
        factors = np.where(wave > low, 8.0, np.where(wave < high, 1.0, 1 / ((1 - smooth) / 8 + smooth)))
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))

    assert worst(written(tmp_path, "llama", describe=describe, rope_parameters=scaled)) < 3e-6


def test_sequences_of_other_lengths_share_a_step(tmp_path: Path) -> None:
    """Each row of a step sees its own positions only, whatever lies behind them in the cache."""
    made = written(tmp_path, "qwen2")
    program = tt.compile(made.path)
    lengths = (7, 2, 12)
    sequences = [TOKENS[i : i + n + 1] for i, n in enumerate(lengths)]
    caches = caches_of(program, len(lengths), 32)
    for slot, (n, tokens) in enumerate(zip(lengths, sequences, strict=True)):
        own = {name: cache[slot : slot + 1] for name, cache in caches.items()}
        program(tokens=tokens[None, :n], positions=np.arange(n)[None], span=np.zeros(n, np.uint8), **own)
    step = np.array([[t[-1]] for t in sequences])
    positions = np.array([[n] for n in lengths])
    logits = program(tokens=step, positions=positions, span=np.zeros(max(lengths) + 1, np.uint8), **caches)["logits"]
    for row, tokens in zip(logits, sequences, strict=True):
        assert np.abs(row - made.logits(tokens)[-1]).max() < 1e-5


def test_no_program_is_compiled_while_the_context_grows(tmp_path: Path) -> None:
    program = tt.compile(written(tmp_path, "qwen3").path)
    assert type(program).__name__ == "CompiledFunction"
    counts = (1, 2, 3, 14, 1, 1, 1, 1)
    found = logits_after_each(program, TOKENS, counts)
    assert all(np.isfinite(row).all() for row in found)


def test_caches_are_written_in_place(tmp_path: Path) -> None:
    program = tt.compile(written(tmp_path, "llama").path)
    caches = caches_of(program, 1, 16)
    program(tokens=TOKENS[None, :3], positions=np.arange(3)[None], span=np.zeros(3, np.uint8), **caches)
    for cache in caches.values():
        assert (np.abs(cache[0, :, :3]) < 100).all()
        assert (cache[0, :, 3:] == 1e4).all()


def test_a_tensor_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    def describe(writer: Any) -> None:
        writer.add_tensor("blk.0.ffn_gate_inp.weight", np.zeros((4, 256), np.float32))

    with pytest.raises(TatamiError, match=r"E1606 .*no use for the tensors 'blk.0.ffn_gate_inp.weight'"):
        tt.compile(written(tmp_path, "llama", describe=describe).path)


def test_products_are_named_by_the_tensors_of_the_file(tmp_path: Path) -> None:
    told = str(tt.compile(small_model(tmp_path / "model.gguf")).explain())
    assert "blk.0.attn_q.weight, blk.0.attn_k.weight, blk.0.attn_v.weight  one product" in told
    assert "blk.1.ffn_down.weight" in told and "blocks.py:" not in told
