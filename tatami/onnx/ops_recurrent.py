"""RNN, GRU and LSTM: the frontend's layers have ONNX's layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

_ACTIVATIONS = {
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu", "Softsign": "softsign", "Softplus": "softplus",
    "HardSigmoid": "hard_sigmoid", "LeakyRelu": "leaky_relu", "Elu": "elu",
}  # fmt: skip


def _layer(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        tensors = m.operands(n)
        batch_first = bool(n.attr("layout", 0))
        if batch_first:
            for i in (0, 5, 6):
                if i < len(tensors) and tensors[i]:
                    tensors[i] = m.one("permute", [tensors[i]], {"perm": (1, 0, 2)})
        attrs: dict[str, Any] = {"direction": n.attr("direction", "forward"), "activations": _names(m, n)}
        if "clip" in n.attrs:
            attrs["clip"] = float(n.attr("clip"))
        if op == "gru":
            attrs["linear_before_reset"] = bool(n.attr("linear_before_reset", 0))
        if op == "lstm":
            attrs["input_forget"] = bool(n.attr("input_forget", 0))
        y, *last = m.emit(op, tensors, attrs)
        if batch_first:
            y = m.one("permute", [y], {"perm": (2, 0, 1, 3)})
            last = [m.one("permute", [t], {"perm": (1, 0, 2)}) for t in last]
        return [m.result(t) for t in (y, *last)]

    return handler


def _names(m: Importer, n: OnnxNode) -> list[str]:
    given = n.attr("activations", [])
    if any(n.attr(a) for a in ("activation_alpha", "activation_beta")):
        raise unsupported(m, f"{n.op} with parameters of its activations", "use the activations' default parameters")
    unknown = [a for a in given if a not in _ACTIVATIONS]
    if unknown:
        raise unsupported(m, f"{n.op} with the activation {unknown[0]}", f"use one of {', '.join(_ACTIVATIONS)}")
    return [_ACTIVATIONS[a] for a in given]


RECURRENT: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "RNN": _layer("rnn"),
    "GRU": _layer("gru"),
    "LSTM": _layer("lstm"),
}
