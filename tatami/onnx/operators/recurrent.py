"""RNN, GRU and LSTM: the frontend's layers have the same layout as ONNX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.frontend.operations.recurrent import PARAMETERS, Activation
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

_ACTIVATIONS: dict[str, Activation] = {
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu", "Softsign": "softsign", "Softplus": "softplus",
    "HardSigmoid": "hard_sigmoid", "LeakyRelu": "leaky_relu", "Elu": "elu", "Affine": "affine", "ScaledTanh": "scaled_tanh",
    "ThresholdedRelu": "thresholded_relu",
}  # fmt: skip
_OF_CASE = {name.lower(): ours for name, ours in _ACTIVATIONS.items()}
"""Activations by name in lower case, since ONNX ignores case."""


def _layer(op: str) -> Callable[[Importer, OnnxNode], list[Value]]:
    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        tensors = m.operands(n)
        batch_first = bool(n.attr("layout", 0))
        if batch_first:
            for i in (0, 5, 6):
                if i < len(tensors) and tensors[i]:
                    tensors[i] = m.one("permute", [tensors[i]], {"perm": (1, 0, 2)})
        names, parameters = activation_functions(m, n)
        attrs: dict[str, Any] = {"direction": n.attr("direction", "forward"), "activations": names, "parameters": parameters}
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


def activation_functions(m: Importer, n: OnnxNode) -> tuple[list[Activation], list[tuple[float, ...]]]:
    """(the activations, alpha and beta of each). ONNX's lists hold a number for each activation that has one, in the order
    of the activations; missing numbers have defaults."""
    given = n.attr("activations", [])
    unknown = [a for a in given if a.lower() not in _OF_CASE]
    if unknown:
        raise unsupported(m, f"{n.op} with the activation {unknown[0]}", f"use one of {', '.join(_ACTIVATIONS)}")
    names = [_OF_CASE[a.lower()] for a in given]
    lists = [list(n.attr(a, [])) for a in ("activation_alpha", "activation_beta")]
    parameters = []
    for name in names:
        defaults = PARAMETERS.get(name, ())
        parameters.append(tuple(float(own.pop(0)) if own else default for own, default in zip(lists, defaults, strict=False)))
    if any(lists):
        raise unsupported(m, f"{n.op} with more parameters than its activations have", "give one for each that takes it")
    return names, parameters


RECURRENT: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "RNN": _layer("rnn"),
    "GRU": _layer("gru"),
    "LSTM": _layer("lstm"),
}
"""Handlers of this file by operator."""
