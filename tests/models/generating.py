"""Small models of `transformers` with random weights that generate tokens, by `model.generate` alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers

PROMPT = [[5, 9, 33, 17, 80, 3, 44]]
FIRST = {"whisper": 1, "t5": 1}
"""Number of tokens that a model begins with by itself."""
_DECODER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_BY_KIND: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _DECODER),
    "qwen2": ("Qwen2Config", _DECODER),
    "mistral": ("MistralConfig", {**_DECODER, "sliding_window": 8}),
    "gemma": ("GemmaConfig", {**_DECODER, "head_dim": 16}),
    "phi": ("PhiConfig", _DECODER),
    "gpt2": (
        "GPT2Config",
        {
            "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 128, "n_positions": 128, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 0,
        },
    ),
    "t5": (
        "T5Config",
        {
            "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 1, "num_heads": 4, "vocab_size": 128,
            "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
        },
    ),
    "whisper": (
        "WhisperConfig",
        {
            "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 128, "num_mel_bins": 16, "max_source_positions": 32,
            "max_target_positions": 64, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "suppress_tokens": None, "begin_suppress_tokens": None,
        },
    ),
}  # fmt: skip
KINDS = tuple(_BY_KIND)


def model_of(kind: str) -> Any:
    """The model, the same each time."""
    torch.manual_seed(0)
    name, numbers = _BY_KIND[kind]
    config = getattr(transformers, name)(**numbers)
    loader = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "whisper": transformers.AutoModelForSpeechSeq2Seq,
    }.get(kind, transformers.AutoModelForCausalLM)
    return spread(loader.from_config(config).eval())


def spread(model: Any) -> Any:
    """The model with weights that are larger than usual at the start of training, and an output projection of its own. With
    the usual ones a model repeats its last token for ever, whatever its caches hold."""
    torch.manual_seed(0)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                weight.normal_(0, 0.3)
        for part in model.modules():
            if isinstance(part, torch.nn.Embedding):
                part.weight.normal_(0, 1)
    return model


def generated(model: Any, kind: str, cache: str, count: int) -> Any:
    """The tokens that the most likely choice gives, `count` of them. `cache`: dynamic or static."""
    options: dict[str, Any] = {"max_new_tokens": count, "do_sample": False, "disable_compile": True}
    if cache == "static":
        options["cache_implementation"] = "static"
    if kind == "whisper":
        sound = torch.randn(1, 16, 64, generator=torch.Generator().manual_seed(1))
        return model.generate(input_features=sound, **options)
    return model.generate(input_ids=torch.tensor(PROMPT), min_new_tokens=count, **options)
