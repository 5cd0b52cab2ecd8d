"""GPT-2 and Llama of `transformers`, small and with random weights, exported with past keys and values.

Inputs: input_ids and position_ids [batch, tokens], attention_mask [batch, past + tokens], past_K.key and past_K.value
[batch, heads, past, size]; outputs: logits, present_K.key and present_K.value. The prefill has a past of size 0.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

LAYERS, HEADS, WIDTH, VOCABULARY = 3, 4, 64, 400
PAST, TOKENS = 5, 3
"""Sizes that the exporters see: neither 0 nor 1, which they take for numbers, and no two alike."""


class WithPast(nn.Module):
    """A decoder whose cache is a flat list of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache([(past[k], past[k + 1]) for k in range(0, len(past), 2)])
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        output = self.model(**given, past_key_values=cache, use_cache=True)
        present = [t for layer in output.past_key_values.layers for t in (layer.keys, layer.values)]
        return (output.logits, *present)


def decoder(name: str) -> nn.Module:
    """`gpt2` or `llama` with random weights; Llama has fewer heads for keys than for queries."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if name == "gpt2":
        shape = GPT2Config(n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY, n_positions=128)
        shape._attn_implementation = "eager"
        return WithPast(GPT2LMHeadModel(shape)).eval()
    config = LlamaConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=2 * WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
    )
    config._attn_implementation = "eager"
    return WithPast(LlamaForCausalLM(config)).eval()


def key_heads(name: str) -> int:
    return HEADS if name == "gpt2" else HEADS // 2


def past_names() -> list[str]:
    return [f"past_{k}.{part}" for k in range(LAYERS) for part in ("key", "value")]


def export_decoder(name: str, dynamo: bool, path: Path) -> None:
    """The decoder as an .onnx file, by the exporter of torch.export or by the older one."""
    model = decoder(name)
    shape = (2, key_heads(name), PAST, WIDTH // HEADS)
    past = [torch.randn(shape) for _ in past_names()]
    ids = torch.randint(0, VOCABULARY, (2, TOKENS))
    mask = torch.ones(2, PAST + TOKENS, dtype=torch.int64)
    positions = torch.arange(PAST, PAST + TOKENS).expand(2, TOKENS).contiguous()
    inputs = ["input_ids", "attention_mask", "position_ids", *past_names()]
    outputs = ["logits", *(n.replace("past", "present") for n in past_names())]
    axes: dict[str, dict[int, str]] = {
        "input_ids": {0: "batch", 1: "tokens"},
        "attention_mask": {0: "batch", 1: "total"},
        "position_ids": {0: "batch", 1: "tokens"},
        **{n: {0: "batch", 2: "past"} for n in past_names()},
    }
    arguments = (ids, mask, positions, *past)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            _by_torch_export(model, arguments, axes, inputs, outputs, path)
        else:
            later = {n: {2: "total"} for n in outputs[1:]}
            torch.onnx.export(
                model, arguments, path, input_names=inputs, output_names=outputs, dynamo=False, opset_version=17,
                dynamic_axes=axes | later,
            )  # fmt: skip


def _by_torch_export(
    model: nn.Module,
    arguments: tuple[Any, ...],
    axes: dict[str, dict[int, str]],
    inputs: list[str],
    outputs: list[str],
    path: Path,
) -> None:
    dynamic = torch.export.Dim.DYNAMIC
    first = tuple(dict.fromkeys(axes[n], dynamic) for n in inputs[:3])
    rest = tuple(dict.fromkeys(axes[n], dynamic) for n in inputs[3:])
    torch.onnx.export(
        model, arguments, path, input_names=inputs, output_names=outputs, dynamo=True, dynamic_shapes=(*first, rest), verbose=False,
        external_data=False,
    )  # fmt: skip
