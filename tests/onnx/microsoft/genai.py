"""A decoder in the form that ONNX Runtime GenAI's model builder writes: lengths from the attention mask, one product for q, k and v
or three, rotation inside GroupQueryAttention or before it, weights in MatMulNBits, norms with the sum before them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, KEY_HEADS, HEAD, INNER, VOCABULARY, LAYERS = 64, 4, 2, 16, 96, 96, 2
MICROSOFT = "com.microsoft"


class Form(NamedTuple):
    """The choices of the builder."""

    bits: int = 4
    level: int = 0
    rotates_inside: bool = True
    is_packed: bool = True
    block: int = 32


def decoder(form: Form) -> onnx.ModelProto:
    """The model, with random weights."""
    return _Builder(form).built()


class _Builder:
    def __init__(self, form: Form) -> None:
        self.form = form
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, f"/{outputs[0]}/{op}", domain=domain, **attributes))
        return outputs[0]

    def product(self, name: str, x: str, depth: int, columns: int) -> str:
        f = self.form
        count = -(-depth // f.block)
        codes = self.rng.integers(0, 1 << f.bits, (columns, count, f.block)).astype(np.uint8)
        packed = codes[..., ::2] | codes[..., 1::2] << 4 if f.bits == 4 else codes
        scales = (self.rng.uniform(0.5, 1.5, columns * count) * 0.1 / (1 << (f.bits - 1))).astype(np.float32)
        operands = [x, self.constant(f"{name}.weight_Q", packed), self.constant(f"{name}.scales", scales)]
        numbers = {"K": depth, "N": columns, "bits": f.bits, "block_size": f.block, "accuracy_level": f.level}
        return self.node("MatMulNBits", operands, [name], MICROSOFT, **numbers)

    def ones(self, name: str) -> str:
        return self.constant(name, self.rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))

    def lengths(self) -> list[str]:
        """The numbers of keys that GroupQueryAttention takes."""
        self.node("ReduceSum", ["attention_mask", self.constant("last", np.array([1]))], ["seen"], keepdims=0)
        self.node("Sub", ["seen", self.constant("one", np.array(1))], ["before"])
        self.node("Cast", ["before"], ["seqlens_k"], to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], ["mask_shape"])
        self.node("Gather", ["mask_shape", self.constant("second", np.array(1))], ["total"], axis=0)
        self.node("Cast", ["total"], ["total_sequence_length"], to=TensorProto.INT32)
        return ["seqlens_k", "total_sequence_length"]

    def attention(self, i: int, x: str, lengths: list[str], tables: list[str]) -> str:
        p, f = f"layers.{i}.attn", self.form
        queries, keys = HEADS * HEAD, KEY_HEADS * HEAD
        if f.is_packed:
            operands = [self.product(f"{p}.qkv_proj", x, WIDTH, queries + 2 * keys), "", ""]
        else:
            sizes = (("q", queries), ("k", keys), ("v", keys))
            operands = [self.product(f"{p}.{name}_proj", x, WIDTH, size) for name, size in sizes]
        if not f.rotates_inside:
            for k, heads in ((0, HEADS), (1, KEY_HEADS)):
                rotated = [operands[k], "position_ids", *tables]
                operands[k] = self.node("RotaryEmbedding", rotated, [f"{operands[k]}.rotated"], MICROSOFT, num_heads=heads)
        past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
        present = [f"present.{i}.{n}" for n in ("key", "value")]
        numbers = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "scale": HEAD**-0.5, "do_rotary": int(f.rotates_inside)}
        inside = tables if f.rotates_inside else []
        out = self.node(
            "GroupQueryAttention",
            [*operands, *past, *lengths, *inside],
            [p, *present],
            MICROSOFT,
            local_window_size=-1,
            **numbers,
        )
        return self.product(f"{p}.o_proj", out, queries, WIDTH)

    def feed_forward(self, i: int, x: str) -> str:
        p = f"layers.{i}.mlp"
        gate, up = (self.product(f"{p}.{name}_proj", x, WIDTH, INNER) for name in ("gate", "up"))
        self.node("Sigmoid", [gate], [f"{p}.sigmoid"])
        self.node("Mul", [gate, f"{p}.sigmoid"], [f"{p}.act"])
        return self.product(f"{p}.down_proj", self.node("Mul", [f"{p}.act", up], [f"{p}.product"]), INNER, WIDTH)

    def built(self) -> onnx.ModelProto:
        table = self.constant("embed_tokens.weight", self.rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32))
        x = self.node("Gather", [table, "input_ids"], ["embeddings"])
        lengths = self.lengths()
        angle = np.arange(128)[:, None] / 10000 ** (np.arange(0, HEAD, 2) / HEAD)
        tables = [self.constant(n, of(angle).astype(np.float32)) for n, of in (("cos_cache", np.cos), ("sin_cache", np.sin))]
        y = self.node("SimplifiedLayerNormalization", [x, self.ones("norm")], ["normal"], epsilon=1e-5, axis=-1, stash_type=1)
        for i in range(LAYERS):
            for part, run in (("attn", lambda i, y: self.attention(i, y, lengths, tables)), ("mlp", self.feed_forward)):
                is_last = i == LAYERS - 1 and part == "mlp"
                name = f"layers.{i}.{part}.norm"
                outputs = [name] if is_last else [name, "", "", f"{name}.sum"]
                operands = [x, run(i, y), self.ones(f"{name}.weight")]
                y, x = self.node("SkipSimplifiedLayerNormalization", operands, outputs, MICROSOFT, epsilon=1e-5), f"{name}.sum"
        self.product("logits", y, WIDTH, VOCABULARY)
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs(), self.outputs(), self.held)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def inputs(self) -> list[onnx.ValueInfoProto]:
        named = ["input_ids", *([] if self.form.rotates_inside else ["position_ids"])]
        ports = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch_size", "sequence_length"]) for n in named]
        ports.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch_size", "total_length"]))
        return ports + self.caches("past_key_values", "past_length")

    def outputs(self) -> list[onnx.ValueInfoProto]:
        shape = ["batch_size", "sequence_length", VOCABULARY]
        return [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape), *self.caches("present", "total_length")]

    def caches(self, stem: str, length: str) -> list[onnx.ValueInfoProto]:
        names = [f"{stem}.{i}.{n}" for i in range(LAYERS) for n in ("key", "value")]
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch_size", KEY_HEADS, length, HEAD]) for n in names]
