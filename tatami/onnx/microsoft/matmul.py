"""Matrix products with transposition, factor, bias and activation in one node."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.dtype import DType
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.activation import activate
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.contraction import gemm
from tatami.onnx.values import Value


def _parameters(n: OnnxNode) -> list[float]:
    """The given ones of alpha, beta and gamma of the activation."""
    return [float(n.attr(f"activation_{p}")) for p in ("alpha", "beta", "gamma") if f"activation_{p}" in n.attrs]


def _fused_gemm(m: Importer, n: OnnxNode) -> list[Value]:
    return [m.result(activate(m, gemm(m, n), n.attr("activation", ""), _parameters(n)))]


def _oriented(m: Importer, x: str, transposed: bool, batch_transposed: bool) -> str:
    """An operand in the order that matmul reads. `batch_transposed`: its first axis is the row, followed by the batch axes."""
    rank = len(m.shape(x))
    if rank < 2 or not (transposed or batch_transposed):
        return x
    order = list(range(rank))
    if batch_transposed:
        order = [*order[1:-1], 0, rank - 1]
    if transposed:
        order[-2:] = reversed(order[-2:])
    return m.one("permute", [x], {"perm": order}) if order != list(range(rank)) else x


def _fused_matmul(m: Importer, n: OnnxNode) -> list[Value]:
    a, b = (
        _oriented(m, m.operand(n, i), bool(n.attr(f"trans{side}", 0)), bool(n.attr(f"transBatch{side}", 0)))
        for i, side in enumerate("AB")
    )
    out = m.one("matmul", [a, b])
    alpha = float(n.attr("alpha", 1.0))
    if alpha != 1.0:
        out = m.one("mul", [out, m.number(alpha, m.dtype(out))])
    return [m.result(activate(m, out, n.attr("activation", ""), _parameters(n)))]


def _gemm_fast_gelu(m: Importer, n: OnnxNode) -> list[Value]:
    """GemmFastGelu: gelu(x @ w + bias) in the tanh form."""
    out = m.one("matmul", [m.operand(n, 0), m.operand(n, 1)])
    if n.has(2):
        out = m.joined("add", out, m.operand(n, 2))
    return [m.result(m.one("gelu", [out], {"approximate": "tanh"}))]


def _matmul_integer_16(m: Importer, n: OnnxNode) -> list[Value]:
    """Sums of i32 (or u32) of products of 16-bit integers."""
    a, b = m.operand(n, 0), m.operand(n, 1)
    to = DType.u32 if m.dtype(a) == m.dtype(b) == DType.u16 else DType.i32
    return [m.result(m.one("matmul", [m.cast(a, to), m.cast(b, to)], {"acc_dtype": to, "out_dtype": to}))]


MATMUL: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "FusedMatMul": _fused_matmul,
    "FusedMatMulActivation": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "FusedGemm": _fused_gemm,
    "GemmFastGelu": _gemm_fast_gelu,
    "MatMulInteger16": _matmul_integer_16,
}
"""Handlers of this file by operator."""
