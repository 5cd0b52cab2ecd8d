"""Small tiny programs for tests, built node by node."""

from __future__ import annotations

from typing import Any, Literal

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr, expr
from tatami.core.module import Module
from tatami.core.ops import OPS, result_dtype
from tatami.core.scalar import Scalar
from tatami.core.signature import Input, Output, Signature
from tatami.tiny.ir import (
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    GatherOp,
    InputOp,
    IotaOp,
    Node,
    Op,
    PadOp,
    PermuteOp,
    Program,
    ReduceOp,
    ReshapeOp,
    ScanOp,
    ScatterOp,
    ShrinkOp,
    ViewOp,
)


class Builder:
    """Nodes in a table; every method returns an id."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.results: list[str] = []

    def __getitem__(self, v: str) -> Node:
        return self.nodes[int(v[1:])]

    def add(self, op: Op, src: tuple[str, ...], dtype: DType, shape: tuple) -> str:
        self.nodes.append(Node(f"n{len(self.nodes)}", op, src, dtype, tuple(expr(s) for s in shape)))
        return self.nodes[-1].id

    def input(self, name: str, shape: tuple, dtype: DType = DType.fp32, **more: Any) -> str:
        self.inputs.append(Input(name, dtype, tuple(expr(s) for s in shape), **more))
        return self.add(InputOp(name), (), dtype, shape)

    def const(self, value: Scalar, dtype: DType = DType.fp32) -> str:
        return self.add(ConstOp(value), (), dtype, ())

    def iota(self, shape: tuple, axis: int) -> str:
        return self.add(IotaOp(axis), (), DType.i64, shape)

    def reshape(self, v: str, *shape: IntoExpr) -> str:
        return self.add(ReshapeOp(tuple(expr(s) for s in shape)), (v,), self[v].dtype, shape)

    def permute(self, v: str, *perm: int) -> str:
        return self.add(PermuteOp(perm), (v,), self[v].dtype, tuple(self[v].shape[p] for p in perm))

    def expand(self, v: str, shape: tuple, dims: tuple[int, ...]) -> str:
        return self.add(ExpandOp(tuple(expr(s) for s in shape), dims), (v,), self[v].dtype, shape)

    def pad(self, v: str, *pairs: tuple, value: float = 0.0) -> str:
        amounts = tuple((expr(lo), expr(hi)) for lo, hi in pairs)
        shape = tuple(s + lo + hi for s, (lo, hi) in zip(self[v].shape, amounts))
        return self.add(PadOp(amounts, value), (v,), self[v].dtype, shape)

    def shrink(self, v: str, lo: tuple, hi: tuple) -> str:
        low, high = tuple(expr(x) for x in lo), tuple(expr(x) for x in hi)
        shape = tuple(h - low_ for low_, h in zip(low, high))
        return self.add(ShrinkOp(low, high, (1,) * len(lo)), (v,), self[v].dtype, shape)

    def view(self, v: str, shape: tuple, *index_map: IntoExpr) -> str:
        return self.add(ViewOp(tuple(expr(s) for s in shape), tuple(expr(e) for e in index_map)), (v,), self[v].dtype, shape)

    def op(self, fn: str, *args: str, dtype: DType | None = None) -> str:
        shape = next((self[a].shape for a in args if not isinstance(self[a].op, ConstOp)), self[args[0]].shape)
        args = tuple(self.expand(a, shape, ()) if self[a].shape == () and shape else a for a in args)
        made = dtype or result_dtype(OPS[fn], tuple(self[a].dtype for a in args))
        assert made is not None
        return self.add(Elementwise(fn), args, made, shape)

    def cast(self, v: str, to: DType) -> str:
        return self.add(CastOp(to), (v,), to, self[v].shape)

    def reduce(self, fn: str, v: str, *axes: int, dtype: DType | None = None) -> str:
        shape = tuple(s for k, s in enumerate(self[v].shape) if k not in axes)
        return self.add(ReduceOp(fn, axes, dtype or self[v].dtype), (v,), dtype or self[v].dtype, shape)

    def scan(self, fn: str, v: str, axis: int) -> str:
        return self.add(ScanOp(fn, axis, self[v].dtype), (v,), self[v].dtype, self[v].shape)

    def gather(self, data: str, shape: tuple, entries: tuple, *indices: str) -> str:
        made = tuple(None if e is None else expr(e) for e in entries)
        return self.add(GatherOp(tuple(expr(s) for s in shape), made), (data, *indices), self[data].dtype, shape)

    def scatter(
        self, op: Literal["set", "add", "mul", "max", "min"], target: str, updates: str, entries: tuple, *indices: str
    ) -> str:
        made = tuple(None if e is None else expr(e) for e in entries)
        return self.add(ScatterOp(op, made), (target, updates, *indices), self[target].dtype, self[target].shape)

    def output(self, name: str, v: str, updates: str | None = None) -> None:
        self.outputs.append(Output(name, self[v].dtype, self[v].shape, updates))
        self.results.append(v)

    def module(self) -> Module[Program]:
        signature = Signature(tuple(self.inputs), tuple(self.outputs))
        return Module({"main": Program(signature, tuple(self.nodes), tuple(self.results))})

    # -- compounds -------------------------------------------------------------------------------

    def matmul(self, a: str, b: str, acc: DType = DType.fp32) -> str:
        """[*batch, M, K] @ [*batch, K, N] by movement, mul, reduce."""
        *batch, m, k = self[a].shape
        n = self[b].shape[-1]
        r = len(batch)
        full = (*batch, m, n, k)
        at = self.permute(b, *range(r), r + 1, r)
        x = self.expand(self.reshape(a, *batch, m, 1, k), full, tuple(range(r + 3)))
        y = self.expand(self.reshape(at, *batch, 1, n, k), full, tuple(range(r + 3)))
        return self.reduce("sum", self.op("mul", x, y, dtype=acc), r + 2, dtype=acc)

    def along_rows(self, v: str, shape: tuple) -> str:
        """[..] -> [.., N], repeated along the last axis."""
        return self.expand(v, shape, tuple(range(len(shape) - 1)))

    def softmax(self, x: str) -> str:
        shape, last = self[x].shape, len(self[x].shape) - 1
        e = self.op("exp", self.op("sub", x, self.along_rows(self.reduce("max", x, last), shape)))
        return self.op("div", e, self.along_rows(self.reduce("sum", e, last), shape))


def gemm_bias_relu(dtype: DType = DType.fp16) -> Module[Program]:
    b = Builder()
    x, w, bias = b.input("A", ("M", "K"), dtype), b.input("B", ("K", "N"), dtype), b.input("bias", ("N",), dtype)
    acc = b.matmul(x, w)
    wide = b.cast(bias, DType.fp32)
    y = b.op("relu", b.op("add", acc, b.expand(wide, ("M", "N"), (1,))))
    b.output("C", b.cast(y, dtype) if dtype != DType.fp32 else y)
    return b.module()


def row_softmax() -> Module[Program]:
    b = Builder()
    b.output("y", b.softmax(b.input("x", ("M", "N"))))
    return b.module()


def conv_padded() -> Module[Program]:
    """3x3, stride 2, pad 1 over [N, Ci, 8, 8]."""
    b = Builder()
    x, w = b.input("X", ("N", "Ci", 8, 8)), b.input("W", ("Co", "Ci", 3, 3))
    padded = b.pad(x, (0, 0), (0, 0), (1, 1), (1, 1))
    full = ("N", "Co", 4, 4, "Ci", 3, 3)
    windows = b.view(padded, full, "i0", "i4", "2*i2 + i5", "2*i3 + i6")
    kernel = b.expand(w, full, (1, 4, 5, 6))
    b.output("Y", b.reduce("sum", b.op("mul", windows, kernel), 4, 5, 6))
    return b.module()


def layer_norm() -> Module[Program]:
    b = Builder()
    x, gamma, beta = b.input("x", ("B", "S", "D")), b.input("gamma", ("D",)), b.input("beta", ("D",))
    shape = ("B", "S", "D")
    count = b.const(1 / 64)
    mean = b.op("mul", b.reduce("sum", x, 2), count)
    d = b.op("sub", x, b.along_rows(mean, shape))
    variance = b.op("mul", b.reduce("sum", b.op("mul", d, d), 2), b.const(1 / 64))
    r = b.op("rsqrt", b.op("add", variance, b.const(1e-5)))
    y = b.op("mul", b.op("mul", d, b.along_rows(r, shape)), b.expand(gamma, shape, (2,)))
    b.output("y", b.op("add", y, b.expand(beta, shape, (2,))))
    return b.module()


def attention(causal: bool = True) -> Module[Program]:
    b = Builder()
    q, k, v = (b.input(name, ("B", "H", rows, 64)) for name, rows in (("Q", "M"), ("K", "N"), ("V", "N")))
    s = b.matmul(q, b.permute(k, 0, 1, 3, 2))
    s = b.op("mul", s, b.const(0.125))
    if causal:
        shape = b[s].shape
        mask = b.op("ge", b.iota(shape, 2), b.iota(shape, 3))
        s = b.op("where", mask, s, b.expand(b.const("-INF"), shape, ()), dtype=DType.fp32)
    b.output("O", b.matmul(b.softmax(s), v))
    return b.module()
