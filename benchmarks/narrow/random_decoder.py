"""A GGUF file of the Llama shape with random weights, in any format that the package `gguf` writes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

WIDTH, INNER, HEADS, KEY_HEADS, HEAD, TOKENS = 1024, 2816, 16, 4, 64, 32000
"""Sizes of the model of 303 million weights that a token reads, with 24 layers."""


def written(path: Path, form: str, layers: int = 24) -> Path:
    """The file, written to `path`. `form`: F32, F16, BF16, Q8_0, Q4_0 and others. The embedding is a matrix of its own."""
    kind = gguf.GGMLQuantizationType[form]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{i}>" for i in range(TOKENS)])
    writer.add_token_scores([-float(i) for i in range(TOKENS)])
    writer.add_token_types([2, 3, 3] + [1] * (TOKENS - 3))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        w = rng.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)
        writer.add_tensor(f"{name}.weight", quantize(w, kind), raw_dtype=kind)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", TOKENS, WIDTH)
    matrix("output", TOKENS, WIDTH)
    ones("output_norm")
    for i in range(layers):
        ones(f"blk.{i}.attn_norm")
        ones(f"blk.{i}.ffn_norm")
        for name, rows, columns in (
            ("attn_q", HEADS * HEAD, WIDTH), ("attn_k", KEY_HEADS * HEAD, WIDTH), ("attn_v", KEY_HEADS * HEAD, WIDTH),
            ("attn_output", WIDTH, HEADS * HEAD), ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER),
        ):  # fmt: skip
            matrix(f"blk.{i}.{name}", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
