"""Optimiser steps of `ai.onnx.preview.training`: new values of the tensors, then of the optimiser's state."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice
from tatami.onnx.values import Value

Step = Callable[[OnnxNode, Num, Num, list[Num]], list[Num]]


def _each(kept: int, step: Step) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of an optimiser. Operands: rate, count, then all tensors, all gradients, and `kept` lists of state tensors."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        rate, count, *rest = (Num(m, t) for t in m.operands(n))
        how_many = len(rest) // (2 + kept)
        columns = [rest[i : i + how_many] for i in range(0, len(rest), how_many)] if how_many else []
        made = [step(n, _scalar(rate), _scalar(count), list(group)) for group in zip(*columns, strict=True)]
        return [m.result(group[i].tensor) for i in range(1 + kept) for group in made]

    return handler


def _scalar(t: Num) -> Num:
    return t.reshape() if t.shape else t


def _regular(n: OnnxNode, x: Num, gradient: Num) -> Num:
    return x * float(n.attr("norm_coefficient", 0.0)) + gradient


def _adagrad(n: OnnxNode, rate: Num, count: Num, group: list[Num]) -> list[Num]:
    x, gradient, squares = group
    rate = rate.cast(x.dtype) / (count.cast(x.dtype) * float(n.attr("decay_factor", 0.0)) + 1.0)
    gradient = _regular(n, x, gradient)
    squares = squares + gradient * gradient
    return [x - gradient * rate / (squares.fn("sqrt") + float(n.attr("epsilon", 1e-6))), squares]


def _adam(n: OnnxNode, rate: Num, count: Num, group: list[Num]) -> list[Num]:
    x, gradient, mean, squares = group
    alpha, beta = float(n.attr("alpha", 0.9)), float(n.attr("beta", 0.999))
    gradient = _regular(n, x, gradient)
    mean = mean * alpha + gradient * (1.0 - alpha)
    squares = squares * beta + gradient * gradient * (1.0 - beta)
    steps = count.cast(DType.fp64)
    corrected = (_power(beta, steps) * -1.0 + 1.0).fn("sqrt") / (_power(alpha, steps) * -1.0 + 1.0)
    factor = count.fn("gt", 0).where(corrected, 1.0).cast(x.dtype)
    moved = x - mean * (rate.cast(x.dtype) * factor) / (squares.fn("sqrt") + float(n.attr("epsilon", 1e-6)))
    return [moved * (1.0 - float(n.attr("norm_coefficient_post", 0.0))), mean, squares]


def _power(base: float, exponent: Num) -> Num:
    return Num(exponent.m, exponent.m.number(base, exponent.dtype)).fn("pow", exponent)


def _momentum(n: OnnxNode, rate: Num, count: Num, group: list[Num]) -> list[Num]:
    x, gradient, momentum = group
    alpha, rate = float(n.attr("alpha")), rate.cast(x.dtype)
    gradient = _regular(n, x, gradient)
    first = Num(x.m, x.m.number(1.0, x.dtype))
    beta = count.fn("gt", 0).where(Num(x.m, x.m.number(float(n.attr("beta")), x.dtype)), first)
    momentum = momentum * alpha + gradient * beta
    nesterov = choice(x.m, n, "mode", None, ("nesterov", "standard")) == "nesterov"
    way = gradient + momentum * alpha if nesterov else momentum
    return [x - way * rate, momentum]


TRAINING: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Adagrad": _each(1, _adagrad),
    "Adam": _each(2, _adam),
    "Momentum": _each(1, _momentum),
}
"""Handlers of this file by operator."""
