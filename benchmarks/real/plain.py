"""Operators that round activations to 8 bits, replaced by their plain form: what ONNX Runtime itself loses by rounding.

DynamicQuantizeLSTM rounds the input and the hidden state before each product. Its plain form is an LSTM of the dequantised
weights; a compiler that leaves activations in fp32 computes that, and is as far from ONNX Runtime as the plain form is.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

ROUNDED = frozenset(["DynamicQuantizeLSTM"])


def plain_form(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with every such operator in its plain form; None where it has none, or where its weights are computed."""
    if not any(n.op_type in ROUNDED for n in model.graph.node):
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    weights = {i.name: numpy_helper.to_array(i) for i in made.graph.initializer}
    for node in made.graph.node:
        if node.op_type not in ROUNDED:
            continue
        if any(name not in weights for name in (*node.input[1:3], *node.input[8:12])):
            return None
        w, r = (_dequantised(node, at, scale, weights) for at, scale in ((1, 8), (2, 10)))
        for array, part in ((w, "w"), (r, "r")):
            made.graph.initializer.append(numpy_helper.from_array(array, f"{node.output[0]} or {node.name} plain {part}"))
        names = [f"{node.output[0]} or {node.name} plain {part}" for part in "wr"]
        node.op_type, node.domain = "LSTM", ""
        kept = [node.input[0], *names, *node.input[3:8]]
        del node.input[:]
        node.input.extend(kept)
    return made


def _dequantised(node: onnx.NodeProto, at: int, scale: int, weights: dict[str, np.ndarray]) -> np.ndarray:
    """[directions, 4 * hidden, inputs] in fp32, from [directions, inputs, 4 * hidden] in 8 bits."""
    values, factor, zero = (weights[node.input[k]] for k in (at, scale, scale + 1))
    shape = values.shape[0], 1, -1  # one scale for a direction, or one for each of its columns
    real = (values.astype(np.float32) - zero.reshape(shape).astype(np.float32)) * factor.reshape(shape)
    return np.ascontiguousarray(real.transpose(0, 2, 1), dtype=np.float32)
