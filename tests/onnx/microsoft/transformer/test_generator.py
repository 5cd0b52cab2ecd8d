"""A small language model in the form that ONNX Runtime's generator tools write, 4-bit weights and all: a prompt and then
tokens one by one, by one program, as ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import tatami as tt
from tests.onnx.microsoft.against_onnxruntime import model_of, node, run_onnxruntime

RNG = np.random.default_rng(20)
LAYERS, HEADS, GROUPS, D, WIDE, HIDDEN, WORDS, MOST = 2, 4, 2, 16, 64, 96, 50, 32
QKV = (HEADS + 2 * GROUPS) * D


def product(name: str, x: str, y: str, rows: int, depth: int, weights: dict[str, np.ndarray]) -> onnx.NodeProto:
    """y = x times weights of 4 bits in blocks of 32."""
    blocks = -(-depth // 32)
    weights[f"{name}.w"] = RNG.integers(0, 256, (rows, blocks, 16)).astype("u1")
    weights[f"{name}.s"] = RNG.uniform(0.01, 0.02, (rows, blocks)).astype("f4")
    return node("MatMulNBits", [x, f"{name}.w", f"{name}.s"], [y], N=rows, K=depth, bits=4, block_size=32)


def model() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    angle = np.arange(MOST)[:, None] / 100.0 ** (np.arange(D // 2) / (D // 2))
    weights = {
        "table": RNG.integers(0, 256, (WORDS, WIDE // 2)).astype("u1"), "table.s": RNG.uniform(0.1, 0.2, (WORDS, 2)).astype("f4"),
        "cos": np.cos(angle).astype("f4"), "sin": np.sin(angle).astype("f4"), "axis": np.array([1]), "one": np.array([1]), "at": np.array(1),
    }  # fmt: skip
    nodes = [
        helper.make_node("ReduceSum", ["mask", "axis"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["long"], axis=0),
        helper.make_node("Cast", ["long"], ["total"], to=TensorProto.INT32),
        node("GatherBlockQuantized", ["table", "ids", "table.s"], ["x0"], block_size=32),
    ]
    stream, skip = "x0", ""
    for i in range(LAYERS):
        for part in ("a", "m"):
            weights[f"{i}{part}.g"] = RNG.uniform(0.5, 1.5, WIDE).astype("f4")
        if skip:
            nodes.append(
                node("SkipSimplifiedLayerNormalization", [stream, skip, f"{i}a.g"], [f"n{i}", "", "", f"s{i}"], epsilon=1e-5)
            )
            stream = f"s{i}"
        else:
            nodes.append(
                helper.make_node("SimplifiedLayerNormalization", [stream, f"{i}a.g"], [f"n{i}"], epsilon=1e-5, axis=-1)
            )
        nodes += [
            product(f"{i}qkv", f"n{i}", f"q{i}", QKV, WIDE, weights),
            node(
                "GroupQueryAttention",
                [f"q{i}", "", "", f"past{i}k", f"past{i}v", "lengths", "total", "cos", "sin"],
                [f"a{i}", f"new{i}k", f"new{i}v"],
                num_heads=HEADS,
                kv_num_heads=GROUPS,
                do_rotary=1,
            ),
            product(f"{i}o", f"a{i}", f"o{i}", WIDE, HEADS * D, weights),
            node("SkipSimplifiedLayerNormalization", [stream, f"o{i}", f"{i}m.g"], [f"h{i}", "", "", f"t{i}"], epsilon=1e-5),
            product(f"{i}gate", f"h{i}", f"g{i}", HIDDEN, WIDE, weights),
            product(f"{i}up", f"h{i}", f"u{i}", HIDDEN, WIDE, weights),
            node("QuickGelu", [f"g{i}"], [f"z{i}"], alpha=1.0),
            helper.make_node("Mul", [f"z{i}", f"u{i}"], [f"p{i}"]),
            product(f"{i}down", f"p{i}", f"d{i}", WIDE, HIDDEN, weights),
        ]
        stream, skip = f"t{i}", f"d{i}"
    weights["f.g"] = RNG.uniform(0.5, 1.5, WIDE).astype("f4")
    nodes.append(node("SkipSimplifiedLayerNormalization", [stream, skip, "f.g"], ["n"], epsilon=1e-5))
    nodes.append(product("head", "n", "logits", WORDS, WIDE, weights))
    return nodes, weights


def test_a_prompt_and_tokens_one_by_one() -> None:
    nodes, weights = model()
    caches = [f"{i}{kind}" for i in range(LAYERS) for kind in "kv"]
    outputs = {"logits": (1, ["B", "S", WORDS]), **{f"new{c}": (1, ["B", GROUPS, "T", D]) for c in caches}}
    shapes = {"ids": ("B", "S"), "mask": ("B", "T"), **{f"past{c}": ("B", GROUPS, "P", D) for c in caches}}
    feed = {"ids": RNG.integers(0, WORDS, (2, 6)), "mask": np.ones((2, 6), "i8")}
    feed |= {f"past{c}": np.zeros((2, GROUPS, 0, D), "f4") for c in caches}
    made = model_of(nodes, feed, outputs, weights, shapes, opset=21)
    program = tt.compile(made, threads=1)
    for _ in range(6):
        wanted = dict(zip(outputs, run_onnxruntime(made, feed), strict=True))
        got = program(dict(feed))
        for name, result in wanted.items():
            np.testing.assert_allclose(np.asarray(got[name]), result, 2e-3, 2e-3, err_msg=name)
        feed = {f"past{c}": wanted[f"new{c}"] for c in caches}
        length = feed[f"past{caches[0]}"].shape[2] + 1
        feed |= {"ids": wanted["logits"][:, -1:].argmax(-1), "mask": np.ones((2, length), "i8")}
