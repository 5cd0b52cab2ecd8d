"""Fourier transforms of real signals along the last axis, and products of complex numbers stored as pairs."""

from __future__ import annotations

from collections.abc import Callable

from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.operators.signal import transform
from tatami.onnx.values import Value


def _refuse_others(m: Importer, n: OnnxNode) -> None:
    if n.attr("normalized", 0) or not n.attr("onesided", 1) or n.attr("signal_ndim", 1) != 1:
        raise unsupported(m, f"{n.op} that is normalised, two-sided or of several axes", "transform one axis, one-sided")


def _rfft(m: Importer, n: OnnxNode) -> list[Value]:
    """Rfft: [.., N] to [.., N / 2 + 1, 2]."""
    _refuse_others(m, n)
    x = Num(m, m.operand(n, 0))
    return [m.result(transform(m, x.unsqueeze(len(x.shape)).tensor, x.shape[-1], False, True))]


def _irfft(m: Importer, n: OnnxNode) -> list[Value]:
    """Irfft: [.., N / 2 + 1, 2] to [.., N]."""
    _refuse_others(m, n)
    x = Num(m, m.operand(n, 0))
    out = Num(m, transform(m, x.tensor, 2 * (x.shape[-2] - 1), True, True))
    return [m.result(out.fn("squeeze", axes=(len(out.shape) - 1,)).tensor)]


def _complex_mul(conjugate: bool) -> Callable[[Importer, OnnxNode], list[Value]]:
    """Handler of (a + bi)(c + di) on pairs along the last axis; with c - di if `conjugate`."""

    def handler(m: Importer, n: OnnxNode) -> list[Value]:
        x, y = Num(m, m.operand(n, 0)), Num(m, m.operand(n, 1))
        (a, b), (c, d) = ([t.at(len(t.shape) - 1, i) for i in range(2)] for t in (x, y))
        if conjugate:
            d = d.fn("neg")
        real, imaginary = a * c - b * d, a * d + b * c
        return [m.result(m.one("stack", [real.tensor, imaginary.tensor], {"axis": len(real.shape)}))]

    return handler


SPECTRUM: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Rfft": _rfft,
    "Irfft": _irfft,
    "ComplexMul": _complex_mul(False),
    "ComplexMulConj": _complex_mul(True),
}
"""Handlers of this file by operator."""
