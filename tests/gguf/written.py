"""GGUF files of small random models of `transformers`, whose weights the file has in some format, and the models with the
numbers that the file holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize

QUANTS = gguf.GGMLQuantizationType
KINDS = {
    "llama": transformers.LlamaConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "gemma": transformers.GemmaConfig,
    "phi3": transformers.Phi3Config,
}
HIDDEN, INNER, VOCABULARY, HEADS, KEY_HEADS, LAYERS = 256, 512, 320, 8, 2, 2


@dataclass
class Written:
    """A file, and the model that computes what it should."""

    path: Path
    model: Any

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [S, V] at every position of one sequence, in float64."""
        with torch.no_grad():
            return self.model(torch.from_numpy(tokens)[None]).logits[0].numpy()


def config_of(kind: str, **changes: Any) -> Any:
    """A small model's numbers; head_dim 48 where the architecture names it."""
    sizes: dict[str, Any] = {
        "hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": VOCABULARY, "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS, "num_hidden_layers": LAYERS, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": kind in ("gemma", "qwen3"), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    if kind in ("qwen3", "gemma"):
        sizes["head_dim"] = 48
    if kind == "gemma":
        sizes["hidden_activation"] = "gelu_pytorch_tanh"
    return KINDS[kind](**sizes, attn_implementation="eager", **changes)


def interleaved(w: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a head in the order of llama's files: the halves of a rotation are neighbours."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def random_blocks(shape: tuple[int, ...], form: Any, rng: np.random.Generator) -> np.ndarray:
    """Random bytes of a K format, whose scales of 16 bits are small numbers."""
    weights, size = gguf.GGML_QUANT_SIZES[form]
    raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // weights, size), dtype=np.uint8)
    at = {QUANTS.Q4_K: (0, 2), QUANTS.Q5_K: (0, 2), QUANTS.Q6_K: (208,)}[form]
    for first in at:
        small = rng.uniform(0.5, 1.5, raw.shape[:-1]).astype(np.float16) * np.float16(0.0002)
        raw[..., first : first + 2] = small[..., None].view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


def stored(w: np.ndarray, form: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a matrix in a format, and the numbers that they stand for."""
    if form in (QUANTS.Q4_K, QUANTS.Q5_K, QUANTS.Q6_K):
        raw = random_blocks(w.shape, form, rng)
    else:
        raw = quantize(w.astype(np.float32), form)
    return raw, dequantize(raw, form).reshape(w.shape).astype(np.float32)


def names_of(kind: str) -> dict[str, str]:
    """Suffix of a parameter of a layer -> name in the file."""
    out = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    if kind == "phi3":
        return out | {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
    out |= {f"self_attn.{p}_proj": f"attn_{p}" for p in "qkv"} | {f"mlp.{p}_proj": f"ffn_{p}" for p in ("gate", "up")}
    return out | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def written(
    folder: Path, kind: str, form: Any = QUANTS.F32, describe: Callable[[Any], None] | None = None, **changes: Any
) -> Written:
    """A random model and its file. `describe`: called with the writer before it writes, for further metadata."""
    config = config_of(kind, **changes)
    torch.manual_seed(3)
    rng = np.random.default_rng(4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    path = folder / f"{kind}.gguf"
    writer = gguf.GGUFWriter(path, kind)
    _describe(writer, config)
    if describe is not None:
        describe(writer)
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    layer = names_of(kind)
    for name, parameter in model.named_parameters():
        stem, _, part = name.rpartition(".")
        if stem.startswith("model.layers."):
            _, _, index, rest = stem.split(".", 3)
            to = f"blk.{index}.{layer[rest]}.{part}"
        else:
            to = f"{ends[stem]}.{part}"
        value = parameter.detach().numpy()
        if "norm" in name:
            value = value + 1 if kind == "gemma" else rng.uniform(0.5, 1.5, value.shape).astype(np.float32)
        elif part == "bias":
            value = rng.standard_normal(value.shape).astype(np.float32) * np.float32(0.1)
        else:
            value = value * np.float32(3)
        heads = {"attn_q": HEADS, "attn_k": KEY_HEADS}.get(to.split(".")[-2], 0) if kind == "llama" else 0
        laid = interleaved(value, heads) if heads else value
        if value.ndim == 1:
            writer.add_tensor(to, laid.astype(np.float32))
        else:
            raw, laid = stored(laid, form, rng)
            writer.add_tensor(to, raw, raw_dtype=form)
            value = laid.reshape(heads, -1, 2, laid.shape[-1]).swapaxes(1, 2).reshape(laid.shape) if heads else laid
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value - 1 if kind == "gemma" and "norm" in name else value)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Written(path, model.double())


def _describe(writer: Any, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    parameters = getattr(config, "rope_parameters", None) or {}
    writer.add_rope_freq_base(parameters.get("rope_theta", 10000.0))
    window = getattr(config, "sliding_window", None)
    if window and writer.arch == "phi3":
        writer.add_sliding_window(window)
