"""Greedy tokens and probabilities as those of `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.generation import logits_process

import tatami as tt
from tatami.generation.generator import Generator
from tatami.generation.sampling import Sampling, probabilities
from tests.gguf.written import QUANTS, written


@pytest.mark.parametrize(
    "how",
    [Sampling(temperature=0.7), Sampling(temperature=1.3, top_k=7), Sampling(temperature=0.9, top_p=0.8), Sampling(temperature=1.1, min_p=0.05), Sampling(temperature=0.6, top_k=20, top_p=0.95, min_p=0.02)],
)  # fmt: skip
def test_probabilities(how: Sampling) -> None:
    logits = np.random.default_rng(2).standard_normal((8, 60)) * 4
    steps: list[logits_process.LogitsProcessor] = [logits_process.TemperatureLogitsWarper(how.temperature)]
    steps += [logits_process.TopKLogitsWarper(how.top_k)] if how.top_k else []
    steps += [logits_process.TopPLogitsWarper(how.top_p)] if how.top_p < 1 else []
    steps += [logits_process.MinPLogitsWarper(how.min_p)] if how.min_p else []
    for row in logits:
        scores = torch.from_numpy(row)[None]
        for step in steps:
            scores = step(torch.zeros((1, 1), dtype=torch.int64), scores)
        want = scores.softmax(-1)[0].numpy()
        np.testing.assert_allclose(probabilities(row, how), want, atol=1e-12)


@pytest.mark.parametrize(("kind", "form"), [("llama", "F32"), ("qwen3", "Q8_0"), ("gemma", "Q4_0")])
def test_200_greedy_tokens(kind: str, form: str, tmp_path: Path) -> None:
    made = written(tmp_path, kind, getattr(QUANTS, form))
    prompt = np.random.default_rng(1).integers(3, 300, 17)
    made.model.generation_config.eos_token_id = None
    with torch.no_grad():
        want = made.model.generate(torch.from_numpy(prompt)[None], max_new_tokens=200, do_sample=False)[0, 17:].tolist()
    found = Generator(tt.compile(made.path), context=256, chunk=5).generate(prompt.tolist(), most=200)
    assert list(found.tokens) == want


def test_a_penalty_over_many_tokens(tmp_path: Path) -> None:
    made = written(tmp_path, "llama")
    prompt = [5, 6, 7]
    made.model.generation_config.eos_token_id = None
    with torch.no_grad():
        want = made.model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, repetition_penalty=1.3)[
            0, 3:
        ].tolist()
    found = Generator(tt.compile(made.path), context=256).generate(prompt, 40, Sampling(repetition_penalty=1.3))
    assert list(found.tokens) == want
