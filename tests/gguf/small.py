"""A model of two layers with random weights and the vocabulary of `tests/generation/vocabularies.py`, in Q8_0."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

from tests.generation.vocabularies import pieces_with_scores, write_llama

WIDTH, INNER, HEADS, KEY_HEADS, LAYERS = 64, 128, 4, 2, 2


def small_model(path: Path, form: str = "Q8_0") -> Path:
    """The file of the model, with weights in a format of GGUF."""
    kind = gguf.GGMLQuantizationType[form]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    write_llama(writer)
    rng = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        raw = quantize(rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(0.2), kind)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", len(pieces_with_scores()[0]), WIDTH)
    ones("output_norm")
    for i in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH // 2, WIDTH), ("attn_v", WIDTH // 2, WIDTH), ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER),
        ):  # fmt: skip
            matrix(f"blk.{i}.{name}", rows, columns)
        ones(f"blk.{i}.attn_norm")
        ones(f"blk.{i}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
