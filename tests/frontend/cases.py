"""Small graphs, one for each way an operation can be used: (name, build, oracle or None).

`build(g)` adds inputs and returns results; arrays for the inputs are drawn by `draw`. The oracle takes the inputs by
name and gives the results; where torch has the operation it is the oracle.
"""

# ruff: noqa: E731
# fmt: off
from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.numbers.trees import node_table
from tatami.core.tensor import numpy_dtype
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

try:
    import torch
    import torch.nn.functional as F
except ModuleNotFoundError:

    class _Absent:
        """A stand-in for PyTorch where it is not installed: the test of the oracle is listed as skipped."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *args: Any, **named: Any) -> Any:
            pytest.skip("PyTorch is not installed")

    torch = F = _Absent()  # type: ignore[assignment]

Build = Callable[..., Any]
CASES: dict[str, tuple[Build, Callable[..., Any] | None, dict[str, int]]] = {}

f32, f16, bf16, f64 = DType.fp32, DType.fp16, DType.bf16, DType.fp64
i32, i64, u8, i8, b1, u64 = DType.i32, DType.i64, DType.u8, DType.i8, DType.bool, DType.u64


def case(name: str, build: Build, oracle: Callable[..., Any] | None = None, **sizes: int) -> None:
    assert name not in CASES, name
    CASES[name] = (build, oracle, sizes)


def draw(name: str, dtype: DType, shape: tuple[int, ...], case_name: str = "") -> np.ndarray:
    """Dyadic values: k/8 for floats, so that discontinuous operations decide alike everywhere."""
    rng = np.random.default_rng(zlib.crc32(f"{case_name}/{name}".encode()))
    if name.startswith("positive"):
        return (rng.integers(1, 32, shape) / 8).astype(numpy_dtype(dtype))
    if name.startswith("index"):
        return rng.integers(-2, 2, shape).astype(numpy_dtype(dtype))
    if dtype == DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_int:
        low = 0 if dtype.value.startswith("u") else -9
        return rng.integers(low, 10, shape).astype(numpy_dtype(dtype))
    return (rng.integers(-24, 25, shape) / 8).astype(numpy_dtype(dtype))


def t(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


# -- elementwise -----------------------------------------------------------------------------------
UNARY_ANY = "neg abs sign relu square"
UNARY = "exp exp2 sin cos tan atan sinh cosh tanh asinh erf sigmoid floor ceil round trunc tf32 silu softplus softsign mish gelu"
UNARY += " log_sigmoid elu celu selu leaky_relu thresholded_relu hard_sigmoid hard_swish shrink expm1"
UNARY_POSITIVE = "sqrt rsqrt log log2 log10 log1p recip"
TORCH = {
    "gelu": F.gelu, "silu": F.silu, "mish": F.mish, "softplus": F.softplus, "softsign": F.softsign, "elu": F.elu,
    "celu": F.celu, "selu": F.selu, "leaky_relu": F.leaky_relu, "hard_swish": F.hardswish, "log_sigmoid": F.logsigmoid,
    "expm1": torch.expm1, "log1p": torch.log1p, "log10": torch.log10, "erf": torch.erf, "exp2": torch.exp2, "sigmoid": torch.sigmoid,
    "shrink": lambda x: torch.where(x < -0.5, x, torch.where(x > 0.5, x, 0 * x)), "rsqrt": torch.rsqrt, "relu": F.relu,
}
for op in UNARY_ANY.split():
    case(f"{op}-i32", lambda g, op=op: g.input("x", (3, "N"), i32).op(op), N=4)
for op in (UNARY_ANY + " " + UNARY).split():
    fn = TORCH.get(op)
    case(f"{op}", lambda g, op=op: g.input("x", ("N", 5), f32).op(op), (lambda x, fn=fn: fn(t(x))) if fn else None, N=7)
    case(f"{op}-f16", lambda g, op=op: g.input("x", (6,), f16).op(op))
for op in UNARY_POSITIVE.split():
    fn = TORCH.get(op)
    case(op, lambda g, op=op: g.input("positive", ("N",), f32).op(op), (lambda positive, fn=fn: fn(t(positive))) if fn else None, N=9)
for op in ("acos", "asin", "atanh"):
    case(op, lambda g, op=op: (g.input("x", (9,), f32) * (1 / 4)).op(op))
case("acosh", lambda g: (g.input("positive", (9,), f32) + 1.0).op("acosh"))
for op in ["add", "sub", "mul", "div", "max", "min", "mod", "rem"]:
    case(op, lambda g, op=op: g.input("a", (3, "N"), f32).op(op, g.input("positive", (3, "N"), f32)), N=5)
    case(f"{op}-i32", lambda g, op=op: g.input("a", (4, 5), i32).op(op, g.input("b", (4, 5), i32)))
    case(f"{op}-number", lambda g, op=op: g.input("a", (5,), f32).op(op, 2))
for op in ["pow", "atan2"]:
    case(op, lambda g, op=op: g.input("positive", (3, 4), f32).op(op, g.input("b", (3, 4), f32)))
for op in ["eq", "ne", "lt", "le", "gt", "ge"]:
    case(op, lambda g, op=op: g.input("a", (6, 6), f32).op(op, g.input("b", (6, 6), f32)))
    case(f"{op}-i64", lambda g, op=op: g.input("a", (6,), i64).op(op, 3))
for op in ["and", "or", "xor"]:
    case(op, lambda g, op=op: g.input("a", (7,), b1).op(op, g.input("b", (7,), b1)))
for op in ["bitand", "bitor", "bitxor"]:
    case(op, lambda g, op=op: g.input("a", (7,), i32).op(op, g.input("b", (7,), i32)))
for op in ["shl", "shr", "idiv"]:
    case(op, lambda g, op=op: g.input("a", (9,), i32).op(op, g.input("b", (9,), i32)))
case("not", lambda g: g.input("a", (7,), b1).op("not"))
case("bitnot", lambda g: ~g.input("a", (7,), u8))
case("isnan", lambda g: g.input("a", (7,), f32).op("isnan"))
case("isinf", lambda g: g.input("a", (7,), f32).op("isinf"))
case("isfinite", lambda g: (g.input("a", (7,), f32) / 0.0).op("isfinite"))
case("where", lambda g: g.where(g.input("c", (3, 4), b1), g.input("a", (3, 4), f32), 2.0))
case("where-rank0", lambda g: g.where(g.input("c", (), b1), g.input("a", (3, 4), f32), g.input("b", (3, 4), f32)))
case("clamp", lambda g: g.input("a", (9,), f32).clamp(-1, 1.5))
case("clamp-i32", lambda g: g.input("a", (9,), i32).clamp(lo=-2))
case("powi", lambda g: (g.input("a", (9,), f32) ** 5, g.input("b", (9,), i32) ** 3, g.input("positive", (9,), f32) ** -2))
case("gelu-tanh", lambda g: g.input("x", (9,), f32).gelu("tanh"), lambda x: F.gelu(t(x), approximate="tanh"))
case("floordiv", lambda g: (g.input("a", (9,), f32) // g.input("positive", (9,), f32), g.input("b", (9,), i32) // g.input("c", (9,), i32)))
case("prelu", lambda g: g.input("a", (3, 4), f32).op("prelu", g.input("b", (3, 4), f32)))
case("cast", lambda g: tuple(x.cast(d) for x in [g.input("a", (9,), f32)] for d in (f16, bf16, i32, u8, b1, f64)))
case("bitcast", lambda g: g.input("a", (9,), f32).op("bitcast", to=i32))
case("quantize", lambda g: g.input("a", (2, 3, 4), f32).op("quantize", g.input("positive", (3,), f32), g.input("z", (3,), u8), to=u8, axis=1))
case("quantize-f16", lambda g: g.input("a", (2, 3), f32).op("quantize", g.input("positive", (), f32), to=i8))
case("dequantize", lambda g: g.input("a", (2, 3, 4), u8).op("dequantize", g.input("positive", (3,), f32), g.input("z", (3,), u8), to=f32))

# -- movement --------------------------------------------------------------------------------------
X = lambda g, *s, d=f32, n="x": g.input(n, s, d)
case("reshape", lambda g: X(g, "N", 6).reshape("N", 2, 3), N=4)
case("reshape-infer", lambda g: X(g, "N", 6).reshape(-1, 3), N=4)
case("reshape-unproved", lambda g: X(g, "N").reshape("N//4", 4), N=8)
case("permute", lambda g: X(g, 2, "N", 4).permute(2, 0, 1), N=3)
case("expand", lambda g: (X(g, 3, 1).expand(2, 3, "N"), X(g, 3, n="y").expand(3, 5, dims=(0,))), N=4)
case("unsqueeze", lambda g: X(g, 3, "N").unsqueeze(0, 2), N=4)
case("squeeze", lambda g: X(g, 1, "N", 1).squeeze(0, 2), N=4)
case("flatten", lambda g: (X(g, 2, "N", 4).flatten(1), X(g, 2, "N", 4, n="y").flatten(0, 1)), N=3)
case("flip", lambda g: X(g, 3, "N").flip(1), N=4)
case("repeat", lambda g: X(g, 3, 1).repeat(1, "N"), N=4)
case("tile", lambda g: X(g, 2, "N").tile((3, 2)), N=3)
case("pad", lambda g: (X(g, 3, "N").pad([(1, 2), (0, 3)], 1.5), X(g, 4, 5, n="y").pad([(-1, 2), (1, -2)])), N=4)
for mode in ("edge", "reflect", "wrap"):
    case(f"pad-{mode}", lambda g, mode=mode: X(g, 4, 5).pad([(1, 2), (0, 3)], mode=mode))
    case(f"pad-{mode}-symbolic", lambda g, mode=mode: X(g, "N").pad([(2, 1)], mode=mode), N=6)
    for n in (1, 2, 3, 9):
        case(f"pad-{mode}-wide-{n}", lambda g, mode=mode, n=n: X(g, n, 2).pad([(5, 7), (0, 0)], mode=mode), lambda x, mode=mode: np.pad(x, [(5, 7), (0, 0)], mode))
        case(f"pad-{mode}-wide-symbolic-{n}", lambda g, mode=mode: X(g, 2, "N").pad([(1, 1), (5, 7)], mode=mode), lambda x, mode=mode: np.pad(x, [(1, 1), (5, 7)], mode), N=n)
    case(f"pad-{mode}-crop-wide", lambda g, mode=mode: X(g, 5).pad([(-2, 8)], mode=mode), lambda x, mode=mode: np.pad(x[2:], [(0, 8)], mode))
    case(f"pad-{mode}-crop", lambda g, mode=mode: X(g, 6).pad([(-2, 1)], mode=mode))
case("slice", lambda g: (lambda x: (x[1:, ::2], x[-3:-1], x[..., -1], x[0], x[:, 1:4:2], x[None, 2:3, None]))(X(g, "N", 6)), N=7)
case("slice-reverse", lambda g: (lambda x: (x[::-1], x[:, ::-2], x[:, 4:1:-1], x[:, 3::-1], x[:, -2:0:-3]))(X(g, "N", 6)), N=5)
case("slice-fixed-of-symbolic", lambda g: (lambda x: (x[2], x.one("slice", starts=(1, 0), stops=(5, 6)), x.one("slice", starts=("N - 3", 1), stops=("N", 2))))(X(g, "N", 6)), lambda x: (x[2], x[1:5], x[-3:, 1:2]), N=5)
case("slice-symbolic", lambda g: (lambda x: (x[2:], x[:4], x[:"N - 1"], x[3:1], x[:, 7:]))(X(g, "N", 6)), N=3)
case("roll", lambda g: (X(g, 5, 6).roll(2, 1), X(g, "N", n="y").roll(-1, 0)), N=4)
case("unfold", lambda g: (X(g, 6).unfold([3]), X(g, 3, "H", 9, n="y").unfold([3, 2], [2, 1], [1, 2])), H=8)
case("unfold-groups", lambda g: X(g, 6, 8, 8).unfold([3, 3], groups=2))
case("fold", lambda g: X(g, 6).unfold([3], [2]).fold((6,), [3], [2]))
case("fold-2d", lambda g: X(g, 4, 2, 3, 4, 3).fold((4, 8, 7), [2, 3], [2, 2], [1, 1]))
case("fold-groups", lambda g: X(g, 2, 2, 3, 4).fold((4, 8), [3], [1], [2], groups=2))
case("concat", lambda g: g.concat([X(g, 2, "N"), X(g, 3, "N", n="y"), X(g, "M", "N", n="z")], 0), N=4, M=2)
case("concat-int", lambda g: g.concat([X(g, 2, 3, d=i64), X(g, 2, 1, d=i64, n="y")], -1))
case("concat-bool", lambda g: g.concat([X(g, 2, d=b1), X(g, 3, d=b1, n="y")]))
case("concat-one", lambda g: g.concat([X(g, 2, 3)], 1))
case("stack", lambda g: g.stack([X(g, 2, 3), X(g, 2, 3, n="y")], 1))
case("split", lambda g: X(g, 7, 2).split([3, 0, 4], 0))
case("view", lambda g: X(g, 10).view([10], linear="(i0 + 3) % 10"))
case("view-map", lambda g: X(g, 4, 5).view([2, 3], ["2*i0 + 1", "i1 + i0"]))
case("view-linear-2d", lambda g: X(g, 4, 6).view([6, 4], linear="4*i0 + i1"))
case("depth_to_space", lambda g: (X(g, 1, 8, 2, 3).op("depth_to_space", block=2), X(g, 1, 8, 2, 3, n="y").op("depth_to_space", block=2, mode="CRD")))
case("space_to_depth", lambda g: X(g, 1, 2, 4, 6).op("space_to_depth", block=2))
case("trilu", lambda g: (X(g, 4, 5).op("trilu", upper=True, k=1), X(g, 4, 5, n="y").op("trilu", upper=False, k=-1)))
case("diagonal", lambda g: X(g, 2, 4, 4).op("diagonal"))

# -- contraction -----------------------------------------------------------------------------------
mm = lambda a, b: t(a).double() @ t(b).double()
case("matmul", lambda g: X(g, "M", "K", n="a") @ X(g, "K", "N", n="b"), mm, M=5, K=7, N=3)
case("matmul-f16", lambda g: X(g, 5, 64, d=f16, n="a") @ X(g, 64, 3, d=f16, n="b"))
case("matmul-bf16", lambda g: X(g, 5, 64, d=bf16, n="a") @ X(g, 64, 3, d=bf16, n="b"))
case("matmul-out32", lambda g: X(g, 5, 64, d=f16, n="a").op("matmul", X(g, 64, 3, d=f16, n="b"), out_dtype=f32))
case("matmul-i32", lambda g: X(g, 5, 4, d=i32, n="a") @ X(g, 4, 3, d=i32, n="b"))
case("matmul-vector", lambda g: (X(g, 4, n="a") @ X(g, 4, 3, n="b"), X(g, 5, 4, n="c") @ X(g, 4, n="d"), X(g, 4, n="e") @ X(g, 4, n="f")))
case("matmul-batch", lambda g: X(g, 2, 1, 5, 4, n="a") @ X(g, 3, 4, 6, n="b"), mm)
case("matmul-size1", lambda g: X(g, 1, 1, n="a") @ X(g, 1, 1, n="b"), mm)
case("matmul-k0", lambda g: X(g, 3, "K", n="a") @ X(g, "K", 2, n="b"), mm, K=0)
case("matmul-m0", lambda g: X(g, "M", 4, n="a") @ X(g, 4, 2, n="b"), mm, M=0)
case("gemm", lambda g: X(g, 5, 4, n="a").gemm(X(g, 4, 3, n="b"), X(g, 3, n="c")), lambda a, b, c: t(a) @ t(b) + t(c))
case("gemm-trans", lambda g: X(g, "K", "M", n="a").gemm(X(g, "N", "K", n="b"), X(g, "M", "N", n="c"), trans_a=True, trans_b=True, alpha=0.5, beta=2.0), lambda a, b, c: 0.5 * t(a).T @ t(b).T + 2 * t(c), M=3, N=5, K=4)
case("gemm-column", lambda g: X(g, 5, 4, n="a").gemm(X(g, 4, 3, n="b"), X(g, 5, 1, n="c")))
case("linear", lambda g: X(g, "B", "T", 4, n="x").linear(X(g, 6, 4, n="w"), X(g, 6, n="b")), lambda x, w, b: F.linear(t(x), t(w), t(b)), B=2, T=3)
case("grouped-matmul", lambda g: X(g, "T", 4, n="x").grouped_matmul(X(g, 3, 4, 5, n="w"), g.constant(np.array([2, 2, 6]))), lambda x, w: torch.cat([t(x)[:2] @ t(w)[0], t(x)[2:6] @ t(w)[2], torch.zeros(1, 5)]), T=7)
case("conv1d", lambda g: X(g, 2, 3, "L").conv(X(g, 4, 3, 3, n="w"), stride=2, padding=1), lambda x, w: F.conv1d(t(x), t(w), stride=2, padding=1), L=9)
case("conv2d", lambda g: X(g, "N", 3, "H", "W").conv(X(g, 8, 3, 3, 3, n="w"), X(g, 8, n="b"), stride=2, padding=1), lambda x, w, b: F.conv2d(t(x), t(w), t(b), 2, 1), N=2, H=9, W=8)
case("conv2d-f16", lambda g: X(g, 1, 3, 6, 6, d=f16).conv(X(g, 8, 3, 3, 3, n="w", d=f16), X(g, 8, n="b", d=f16)))
case("conv2d-dilated", lambda g: X(g, 1, 2, 9, 9).conv(X(g, 4, 2, 3, 2, n="w"), dilation=(2, 3), padding=[(1, 0), (0, 2)]), lambda x, w: F.conv2d(F.pad(t(x), (0, 2, 1, 0)), t(w), dilation=(2, 3)))
case("conv2d-groups", lambda g: X(g, 2, 6, 5, 5).conv(X(g, 4, 3, 3, 3, n="w"), X(g, 4, n="b"), groups=2), lambda x, w, b: F.conv2d(t(x), t(w), t(b), groups=2))
case("conv2d-depthwise", lambda g: X(g, 2, 4, 5, 5).conv(X(g, 4, 1, 3, 3, n="w"), groups=4, padding=1), lambda x, w: F.conv2d(t(x), t(w), groups=4, padding=1))
case("conv2d-1x1", lambda g: X(g, 2, 4, 5, 5).conv(X(g, 3, 4, 1, 1, n="w")), lambda x, w: F.conv2d(t(x), t(w)))
case("conv3d", lambda g: X(g, 1, 2, 4, 5, 6).conv(X(g, 3, 2, 2, 3, 2, n="w"), padding=1), lambda x, w: F.conv3d(t(x), t(w), padding=1))
case("conv-unbatched", lambda g: X(g, 3, 8, 8).conv(X(g, 4, 3, 3, 3, n="w")), lambda x, w: F.conv2d(t(x), t(w)))
case("conv-batch0", lambda g: X(g, "N", 3, 8, 8).conv(X(g, 4, 3, 3, 3, n="w")), N=0)
case("conv_transpose1d", lambda g: X(g, 2, 3, "L").conv_transpose(X(g, 3, 4, 3, n="w"), X(g, 4, n="b"), stride=2), lambda x, w, b: F.conv_transpose1d(t(x), t(w), t(b), 2), L=8)
case("conv_transpose2d", lambda g: X(g, 2, 4, 5, 6).conv_transpose(X(g, 4, 3, 3, 2, n="w"), stride=(2, 3), padding=1, output_padding=1, dilation=(1, 2)), lambda x, w: F.conv_transpose2d(t(x), t(w), stride=(2, 3), padding=1, output_padding=1, dilation=(1, 2)))
case("conv_transpose2d-groups", lambda g: X(g, 2, 4, 5, 5).conv_transpose(X(g, 4, 3, 3, 3, n="w"), groups=2, padding=2), lambda x, w: F.conv_transpose2d(t(x), t(w), groups=2, padding=2))
case("conv_transpose2d-phases", lambda g: X(g, 2, 4, "H", 6).conv_transpose(X(g, 4, 3, 3, 4, n="w"), X(g, 3, n="b"), stride=(2, 3), padding=1, output_padding=1), lambda x, w, b: F.conv_transpose2d(t(x), t(w), t(b), stride=(2, 3), padding=1, output_padding=1), H=5)
case("conv_transpose2d-one-tap", lambda g: X(g, 2, 4, "H", 6).conv_transpose(X(g, 4, 3, 1, 3, n="w"), stride=2, padding=(1, 0)), lambda x, w: F.conv_transpose2d(t(x), t(w), stride=2, padding=(1, 0)), H=5)
case("conv_transpose2d-short", lambda g: X(g, 1, 2, 3, 3).conv_transpose(X(g, 2, 6, 2, 2, n="w"), X(g, 12, n="b"), stride=4, output_padding=3, groups=2), lambda x, w, b: F.conv_transpose2d(t(x), t(w), t(b), stride=4, output_padding=3, groups=2))
case("einsum", lambda g: (g.einsum("bij,bjk->bik", X(g, 2, 3, 4, n="a"), X(g, 2, 4, 5, n="b")), g.einsum("ii->i", X(g, 3, 3, n="c")), g.einsum("...ij,jk", X(g, 2, 1, 3, 4, n="d"), X(g, 4, 2, n="e"))))
case("einsum-sum", lambda g: g.einsum("ijk->", X(g, 2, 3, 4, n="a")))
case("einsum-three", lambda g: g.einsum("ab,bc,cd->ad", X(g, 2, 3, n="a"), X(g, 3, 4, n="b"), X(g, 4, 2, n="c")))


def qkv(g: Graph, d: DType = f32) -> Any:
    return g.input("q", ("B", "H", "M", 8), d), g.input("k", ("B", "H", "N", 8), d), g.input("v", ("B", "H", "N", 6), d)


sdpa = F.scaled_dot_product_attention
case("attention", lambda g: (lambda q, k, v: q.attention(k, v))(*qkv(g)), lambda q, k, v: sdpa(t(q), t(k), t(v)), B=2, H=3, M=5, N=7)
case("attention-causal", lambda g: (lambda q, k, v: q.attention(k, v, causal=True))(*qkv(g)), lambda q, k, v: sdpa(t(q), t(k), t(v), is_causal=True), B=1, H=2, M=6, N=6)
case("attention-f16", lambda g: (lambda q, k, v: q.attention(k, v, causal=True))(*qkv(g, f16)), B=1, H=2, M=6, N=6)
case("attention-mask", lambda g: (lambda q, k, v: q.attention(k, v, g.input("mask", ("M", "N"), f32), scale=0.5))(*qkv(g)), lambda q, k, v, mask: sdpa(t(q), t(k), t(v), t(mask), scale=0.5), B=1, H=2, M=4, N=5)
case("attention-offset", lambda g: (lambda q, k, v: q.attention(k, v, causal=True, causal_offset="N - M"))(*qkv(g)), B=1, H=2, M=3, N=8)
case("attention-window", lambda g: (lambda q, k, v: q.attention(k, v, causal=True, window=2, softcap=2.0))(*qkv(g)), B=1, H=2, M=5, N=5)
case("attention-gqa", lambda g: X(g, 2, 6, 3, 4, n="q").attention(X(g, 2, 2, 5, 4, n="k"), X(g, 2, 2, 5, 4, n="v")), lambda q, k, v: sdpa(t(q), t(k), t(v), enable_gqa=True))
case("attention-2d", lambda g: X(g, "M", "D", n="q").attention(X(g, "N", "D", n="k"), X(g, "N", 3, n="v")), M=3, N=4, D=5)
case("attention-bool", lambda g: X(g, 2, 3, 4, n="q").attention(X(g, 2, 3, 4, n="k"), X(g, 2, 3, 4, n="v"), g.constant(np.tri(3, dtype=np.bool_))))

# -- reductions ------------------------------------------------------------------------------------
for op in ["sum", "prod", "max", "min", "mean", "l1", "sum_square"]:
    case(f"reduce_{op}", lambda g, op=op: (lambda x: (x.op(f"reduce_{op}", axes=(1,)), x.op(f"reduce_{op}", keepdims=True), x.op(f"reduce_{op}", axes=(0, -1), keepdims=True)))(X(g, 3, "N", 4)), N=5)
    case(f"reduce_{op}-i32", lambda g, op=op: X(g, 3, 4, d=i32).op(f"reduce_{op}", axes=(1,)))
    case(f"reduce_{op}-f16", lambda g, op=op: X(g, 3, 40, d=f16).op(f"reduce_{op}", axes=(1,)))
    case(f"reduce_{op}-empty", lambda g, op=op: X(g, "N", 4).op(f"reduce_{op}", axes=(0,)), None, **({"N": 0} if op != "mean" else {"N": 1}))
for op in ["l2", "log_sum_exp"]:
    case(f"reduce_{op}", lambda g, op=op: X(g, 3, "N").op(f"reduce_{op}", axes=(1,)), N=5)
case("reduce_log_sum", lambda g: X(g, 3, 4, n="positive").op("reduce_log_sum", axes=(1,)))
case("reduce_none", lambda g: X(g, 3, 4).op("reduce_sum", axes=()))
case("reduce_and", lambda g: (X(g, 3, 4, d=b1).all(1), X(g, 3, 4, d=b1, n="y").any()))
case("variance", lambda g: (X(g, 3, "N").variance(1), X(g, 3, 7, n="y").op("variance", axes=(1,), correction=1)), lambda x, y: (t(x).var(1, correction=0), t(y).var(1)), N=6)
case("argmax", lambda g: (X(g, 3, "N").argmax(1), X(g, 3, 9, n="y").argmin(0, keepdims=True), X(g, 3, 9, n="z").op("argmax", axis=1, last=True)), N=9)
case("argmax-f16", lambda g: X(g, 3, 9, d=f16).argmax(1))
for op in ["cumsum", "cumprod", "cummax", "cummin"]:
    case(op, lambda g, op=op: (lambda x: (x.op(op, axis=1), x.op(op, axis=0, exclusive=True), x.op(op, axis=1, reverse=True), x.op(op, axis=1, reverse=True, exclusive=True)))(X(g, 3, "N")), N=5)
case("cumsum-i64", lambda g: X(g, 6, d=i64).cumsum(0))
case("cumsum-f16", lambda g: X(g, 6, d=f16).cumsum(0))
case("softmax", lambda g: (X(g, 3, "N").softmax(), X(g, 3, 4, 5, n="y").softmax(1)), lambda x, y: (F.softmax(t(x), -1), F.softmax(t(y), 1)), N=7)
case("softmax-f16", lambda g: X(g, 3, 7, d=f16).softmax())
case("softmax-size1", lambda g: X(g, 3, "N").softmax(), N=1)
case("softmax-rows0", lambda g: X(g, "M", 4).softmax(), M=0)
case("log_softmax", lambda g: X(g, 3, "N").log_softmax(), lambda x: F.log_softmax(t(x), -1), N=7)
case("hardmax", lambda g: X(g, 3, 7).op("hardmax"))
case("layer_norm", lambda g: X(g, "B", "T", 8).layer_norm(X(g, 8, n="s"), X(g, 8, n="b")), lambda x, s, b: F.layer_norm(t(x), (8,), t(s), t(b)), B=2, T=3)
case("layer_norm-2axes", lambda g: X(g, 3, 4, 5).layer_norm(X(g, 4, 5, n="s"), axis=1), lambda x, s: F.layer_norm(t(x), (4, 5), t(s)))
case("layer_norm-f16", lambda g: X(g, 3, 16, d=f16).layer_norm(X(g, 16, n="s", d=f16), X(g, 16, n="b", d=f16)))
case("layer_norm-symbolic", lambda g: X(g, 3, "N").layer_norm(), lambda x: F.layer_norm(t(x), x.shape[1:]), N=6)
case("rms_norm", lambda g: X(g, 3, 8).rms_norm(X(g, 8, n="s"), eps=1e-6), lambda x, s: F.rms_norm(t(x), (8,), t(s), 1e-6))
case("batch_norm", lambda g: X(g, "N", 3, 4, 4).batch_norm(X(g, 3, n="s"), X(g, 3, n="b"), X(g, 3, n="m"), X(g, 3, n="positive")), lambda x, s, b, m, positive: F.batch_norm(t(x), t(m), t(positive), t(s), t(b)), N=2)
case("instance_norm", lambda g: X(g, 2, 3, 4, 5).op("instance_norm", X(g, 3, n="s"), X(g, 3, n="b")), lambda x, s, b: F.instance_norm(t(x), weight=t(s), bias=t(b)))
case("group_norm", lambda g: X(g, 2, 6, 5).op("group_norm", X(g, 6, n="s"), X(g, 6, n="b"), groups=3), lambda x, s, b: F.group_norm(t(x), 3, t(s), t(b)))
case("lp_normalize", lambda g: (X(g, 3, 5).op("lp_normalize"), X(g, 3, 5, n="y").op("lp_normalize", p=1), X(g, 3, 5, n="z").op("lp_normalize", p=3, axis=0)))
case("lrn", lambda g: (X(g, 2, 7, 3).op("lrn", size=3), X(g, 2, 7, 3, n="y").op("lrn", size=4, alpha=0.5, bias=2.0)))
case("max_pool", lambda g: (X(g, 2, 3, "H", 8).max_pool(2), X(g, 2, 3, 7, 7, n="y").max_pool(3, 2, 1)), lambda x, y: (F.max_pool2d(t(x), 2), F.max_pool2d(t(y), 3, 2, 1)), H=6)
case("max_pool-ceil", lambda g: X(g, 1, 2, 7, 8).max_pool(3, 2, 1, ceil_mode=True, dilation=(1, 1)), lambda x: F.max_pool2d(t(x), 3, 2, 1, ceil_mode=True))
case("max_pool-dilated", lambda g: X(g, 1, 2, 9, 9).max_pool(2, 1, dilation=(2, 3)), lambda x: F.max_pool2d(t(x), 2, 1, 0, (2, 3)))
case("max_pool-1d-i32", lambda g: X(g, 1, 2, 9, d=i32).max_pool([2], 2, 1))
case("max_pool_indices", lambda g: X(g, 2, 3, 6, 7).op("max_pool_indices", kernel=(3, 2), stride=(2, 1), padding=((1, 1), (0, 0))))
case("avg_pool", lambda g: (X(g, 2, 3, 6, 8).avg_pool(2), X(g, 2, 3, 7, 7, n="y").avg_pool(3, 2, 1), X(g, 2, 3, 7, 7, n="z").avg_pool(3, 2, 1, count_include_pad=True)), lambda x, y, z: (F.avg_pool2d(t(x), 2), F.avg_pool2d(t(y), 3, 2, 1, count_include_pad=False), F.avg_pool2d(t(z), 3, 2, 1)))
case("avg_pool-ceil", lambda g: (X(g, 1, 1, 8, 8).avg_pool(3, 2, 1, ceil_mode=True, count_include_pad=True), X(g, 1, 1, 8, 8, n="y").avg_pool(3, 2, 0, ceil_mode=True)), lambda x, y: (F.avg_pool2d(t(x), 3, 2, 1, True, True), F.avg_pool2d(t(y), 3, 2, 0, True)))
case("adaptive_pool", lambda g: (X(g, 2, 3, "L").adaptive_avg_pool(4), X(g, 2, 3, 7, 10, n="y").adaptive_max_pool((3, 5))), lambda x, y: (F.adaptive_avg_pool1d(t(x), 4), F.adaptive_max_pool2d(t(y), (3, 5))), L=9)
case("global_pool", lambda g: (X(g, 2, 3, "L").global_avg_pool(), X(g, 2, 3, 4, 5, n="y").global_max_pool()), L=9)
case("lp_pool", lambda g: X(g, 1, 2, 6, 6).op("lp_pool", kernel=(2, 2), stride=(2, 2)))

# -- creation and indexing -------------------------------------------------------------------------
case("full", lambda g: (X(g, "N") + g.full(("N",), 1.5, f32)), N=3)
case("iota", lambda g: X(g, "N", 3, d=i64) + g.iota(("N", 3), 0), N=4)
case("arange", lambda g: g.arange(5, start=2, step=3) + X(g, 5, d=i64))
case("eye", lambda g: (g.eye("N") + X(g, "N", "N"), g.eye(3, 5, 1, i32) + X(g, 3, 5, d=i32, n="y")), N=4)
case("dropout", lambda g: X(g, 4, "N").dropout(g.input("key", (), u64), 0.25), N=7)
case("size", lambda g: X(g, "N", d=i64) + g.size_of("2*N + 1"), N=4)
case("rand_u32", lambda g: (g.rand_u32((3, "N"), g.input("key", (), u64)), X(g, "N")), N=5)
case("uniform", lambda g: tuple(g.uniform((4, 5), k, -1.0, 3.0, d) for k in [g.input("key", (), u64)] for d in (f32, f16, bf16, f64)))
case("normal", lambda g: g.normal((4, 5), g.input("key", (), u64), 1.0, 2.0))
case("gather", lambda g: X(g, 3, 4, 5).gather(1, g.input("index", (3, 2, 5), i64)))
case("gather-clamp", lambda g: X(g, 3).op("gather", g.input("i", (9,), i64), axis=0, bounds="clamp"))
case("gather-zero", lambda g: X(g, 3).op("gather", g.input("i", (9,), i64), axis=0, bounds="zero"))
case("take", lambda g: (X(g, "V", 8).take(g.input("index", ("B", "S"), i64)), X(g, 3, 4, 5, n="y").take(g.input("index2", (2,), i32), 1), X(g, 3, 4, n="z").take(g.input("index3", (), i64), 1)), V=10, B=2, S=3)
case("gather_nd", lambda g: (X(g, 3, 4, 5).op("gather_nd", g.input("index", (2, 6, 2), i64)), X(g, 2, 4, 5, n="y").op("gather_nd", g.input("index2", (2, 3, 1), i64), batch=1)))
for op in ["set", "add", "mul", "max", "min"]:
    case(f"scatter-{op}", lambda g, op=op: X(g, 3, 6).scatter(1, g.input("index", (3, 4), i64), X(g, 3, 4, n="u"), op))
    case(f"scatter_nd-{op}", lambda g, op=op: X(g, 4, 5).op("scatter_nd", g.input("index", (3, 1), i64), X(g, 3, 5, n="u"), op=op))
case("scatter-partial", lambda g: X(g, 5, 6).scatter(0, g.input("index", (2, 4), i64), X(g, 2, 4, n="u")))
case("one_hot", lambda g: (g.input("index", (3, 2), i64).op("one_hot", depth=5), g.input("index2", (4,), i64).op("one_hot", g.input("v", (2,), f32), depth=5, axis=0)))
case("sort", lambda g: (*X(g, 3, 7).op("sort"), *X(g, 3, 7, n="y").op("sort", axis=0, descending=True)))
case("argsort", lambda g: X(g, 3, 7).argsort(0, descending=True))
case("topk", lambda g: (*X(g, 3, 7).op("topk", k=3), *X(g, 7, n="y").op("topk", k=2, largest=False)), lambda x, y: None)
case("nonzero-rank0", lambda g: X(g, d=i32).op("nonzero", size="K"), lambda x: np.zeros((0, int(x != 0)), np.int64))
case("nonzero", lambda g: X(g, 4, 5, d=i32).op("nonzero", size=g.fresh_size("nz")))
case("extent", lambda g: (X(g, d=i32).op("extent", size="K"), g.size_of("K"), X(g, 5, n="y").op("take", g.op("iota", shape=("K",), axis=0), axis=0)), lambda x, y: None)
case("extents", lambda g: (g.op("extents", X(g, d=i32).abs(), X(g, n="y", d=i32).abs(), new=("K", "L")), g.size_of("K*L"))[1], lambda x, y: None)
case("unique", lambda g: (*X(g, 4, 5, d=i32).op("unique", size=g.fresh_size("u")), *X(g, 4, 2, d=b1, n="y").op("unique", size=g.fresh_size("u"), axis=0, sorted=False)))
case("unique-then", lambda g: X(g, 12, d=i32).op("unique", size="U")[0] * 2)
case("compress", lambda g: (X(g, 4, 5).op("compress", g.input("k", (5,), b1), size="K", axis=1), g.input("y", (4, 5), i32).op("compress", g.input("k2", (9,), b1), size="L")))
case("reverse_sequence", lambda g: X(g, 4, "B", 3).op("reverse_sequence", g.input("n", ("B",), i32).op("abs").clamp(hi=4), time_axis=0, batch_axis=1), B=5)
case("rotary_embedding", lambda g: (X(g, "B", 3, "T", 8).op("rotary_embedding", X(g, "T", 4, n="c"), X(g, "T", 4, n="s")), X(g, 2, 8, n="y").op("rotary_embedding", X(g, 2, 2, n="c2"), X(g, 2, 2, n="s2"), interleaved=True, width=4)), B=2, T=5)
case("resize-nearest", lambda g: X(g, 1, 1, 4, 4).op("resize", shape=(1, 1, 8, 6), scales=(1.0, 1.0, 2.0, 1.5)))
case("resize-linear", lambda g: X(g, 1, 2, 4, 4).op("resize", shape=(1, 2, 8, 6), scales=(1.0, 1.0, 2.0, 1.5), mode="linear"), lambda x: F.interpolate(t(x), size=(8, 6), mode="bilinear"))
case("resize-corners", lambda g: X(g, 1, 2, 4, 4).op("resize", shape=(1, 2, 7, 5), scales=(1.0, 1.0, 1.75, 1.25), mode="linear", coordinates="align_corners"), lambda x: F.interpolate(t(x), size=(7, 5), mode="bilinear", align_corners=True))
case("resize-cubic", lambda g: X(g, 1, 2, 4, 4).op("resize", shape=(1, 2, 8, 8), scales=(1.0, 1.0, 2.0, 2.0), mode="cubic"), lambda x: F.interpolate(t(x), size=(8, 8), mode="bicubic"))
case("nms", lambda g: X(g, 1, 6, 4, n="positive").op("non_max_suppression", X(g, 1, 2, 6, n="s"), size="K", max_per_class=3, iou_threshold=0.3))


def trees(g: Graph, d: DType, how: str) -> Any:
    """Two trees of one node: x0 <= 0.5 (NaN too) gives 1 to output 0, else 2 to output 1; x2 <= -1 gives 3 to 1, else 4 to 0."""
    leaf = np.array([-1, 0, 1, -1, 2, 3])
    splits, no, yes = np.array([0.5, 0, 0, -1, 0, 0], numpy_dtype(d)), np.array([2, 1, 2, 5, 4, 5]), np.array([1, 1, 2, 4, 4, 5])
    nodes = node_table(splits, np.array([0, 0, 0, 2, 0, 0]), np.array([True, *[False] * 5]), no, yes, leaf)
    tables = nodes, np.array([0, 3], np.int32), np.array([0, 1, 1, 0], np.int32), np.array([[1], [2], [3], [4]], splits.dtype)
    return X(g, "N", 3, d=d).op("tree_ensemble", *(g.constant(t) for t in tables), outputs=2, features=3, how=how)


def _of_two_stumps(x: np.ndarray) -> np.ndarray:
    first, second = ~(x[:, 0] > 0.5), x[:, 2] <= -1
    return np.stack([first * 1.0 + ~second * 4, ~first * 2 + second * 3.0], 1).astype(x.dtype)


case("collectives", lambda g: (X(g, 4, 5).all_reduce(1), g.op("all_gather", X(g, 4, 5, n="y", d=b1), group="g", ranks=1), X(g, 4, n="z", d=bf16).reduce_scatter(1, op="max"), X(g, 4, 2, n="u").all_to_all(1, [4], [4]), X(g, n="v", d=i32).broadcast(1)), lambda x, y, z, u, v: (x, y, z, u, v))
case("tree_ensemble", lambda g: trees(g, f32, "sum"), lambda x: torch.from_numpy(_of_two_stumps(x)), N=40)
case("tree_ensemble-fp64", lambda g: trees(g, f64, "sum"), lambda x: torch.from_numpy(_of_two_stumps(x)), N=3)
case("tree_ensemble-max", lambda g: trees(g, f32, "max"), N=20)


def recurrent(kind: str, gates: int, direction: str = "forward", extras: str = "", dtype: DType = f32, **attrs: Any) -> Build:
    d = 2 if direction == "bidirectional" else 1

    def build(g: Graph) -> Any:
        x = g.input("x", ("T", "B", 3), dtype) * 0.25
        w, r = (g.input(n, (d, gates * 4, k), dtype) * 0.25 for n, k in (("w", 3), ("r", 4)))
        b = g.input("b", (d, gates * 8), dtype) * 0.25 if "b" in extras else None
        n = g.input("lens", ("B",), i32).op("abs").clamp(hi=3) if "n" in extras else None
        h = g.input("h", (d, "B", 4), dtype) if "h" in extras else None
        more = (g.input("c", (d, "B", 4), dtype) if "h" in extras else None, g.input("p", (d, 12), dtype) if "p" in extras else None) if kind == "lstm" else ()
        return x.op(kind, w, r, b, n, h, *more, direction=direction, **attrs)

    return build


def torch_lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> Any:
    """torch stacks the gates i, f, g, o."""
    layer = torch.nn.LSTM(3, 4)
    order = np.concatenate([np.arange(4) + 4 * k for k in (0, 2, 3, 1)])
    with torch.no_grad():
        for name, value in (("weight_ih_l0", w[0][order]), ("weight_hh_l0", r[0][order]), ("bias_ih_l0", b[0][:16][order]), ("bias_hh_l0", b[0][16:][order])):
            getattr(layer, name).copy_(t(value * np.float32(0.25)))
        y, (h, c) = layer(t(x * np.float32(0.25)))
    return y[:, None], h, c


case("lstm", recurrent("lstm", 4, extras="b"), torch_lstm, T=5, B=2)
case("lstm-all", recurrent("lstm", 4, "bidirectional", "bnhp", clip=1.5), T=4, B=3)
case("lstm-f16", recurrent("lstm", 4, dtype=f16, input_forget=True), T=3, B=2)
case("gru", recurrent("gru", 3, "bidirectional", "bh"), T=4, B=2)
case("gru-after", recurrent("gru", 3, "reverse", "bn", linear_before_reset=True), T=4, B=3)
case("rnn", recurrent("rnn", 1, "reverse", "bh", activations=("relu",)), T=4, B=2)
case("rnn-activations", recurrent("rnn", 1, "bidirectional", activations=("softsign", "elu")), T=4, B=2)
case("rnn-no-steps", recurrent("rnn", 1), T=0, B=2)

# -- other graphs ----------------------------------------------------------------------------------
def calls(g: Graph) -> Any:
    f = g.subgraph("double")
    a = f.input("a", ("N", 2), f32)
    f.output("y", a * 2 + f.constant(np.ones((1, 2), np.float32)).expand("N", 2))
    f.output("z", a.sum(0))
    x = g.input("x", ("M", 2), f32)
    y, z = g.call(f, x)
    return y @ y.transpose(), z


def branches(g: Graph) -> Any:
    yes, no = g.subgraph("yes"), g.subgraph("no")
    a = yes.input("a", ("N",), f32)
    yes.output("y", a + yes.constant(np.arange(3, dtype=np.float32), "c").sum())
    b = no.input("b", ("N",), f32)
    no.output("y", -b)
    x = g.input("x", (4,), f32)
    return g.cond(x.sum() > 0, yes, no, x), g.cond(x.sum() <= 0, yes, no, x)


def unlike_branches(g: Graph) -> Any:
    yes, no = g.subgraph("yes"), g.subgraph("no")
    a, b = yes.input("a", ("N", "M"), f32), yes.input("b", ("M",), f32)
    yes.output("y", a.sum(0) + b)
    a, b = no.input("a", ("M", "N"), f32), no.input("b", ("N",), f32)
    no.output("y", a.max(0) - b)
    x, z = g.input("x", ("P", "Q"), f32), g.input("z", ("Q",), f32)
    return g.cond(z.sum() > 0, yes, no, x, z), g.cond(z.sum() <= 0, yes, no, x, z)


def x23(g: Graph) -> Tensor:
    return g.input("x", (2, 3), f32)


def two(g: Graph, dtype: DType) -> tuple[Tensor, Tensor]:
    return g.input("x", (2, 3), dtype), g.input("z", (2, 3), dtype)


def _kernel_by_torch(x: np.ndarray) -> Any:
    i, j = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    d = torch.from_numpy(x) * 2 + j
    return torch.where(d > 2, d / 3, -(d**2)) + 0.5 * i


def _sum_by_torch(x: np.ndarray, z: np.ndarray) -> Any:
    return (torch.from_numpy(x) * torch.from_numpy(z) + torch.arange(3)).sum(1)


def loops(g: Graph) -> Any:
    body = g.subgraph("body")
    i, c = body.input("i", (), i64), body.input("c", (), b1)
    s, w = body.input("s", ("N",), f32), body.input("w", ("N", "N"), f32)
    body.output("go", body.op("and", c, i < 100))
    new = (w @ s).tanh() + body.constant(np.ones(1, np.float32), "bias").expand("N")
    body.output("next", new)
    body.output("scan", new.sum())
    w = g.input("w", (3, 3), f32)
    return g.loop(body, [g.input("s", (3,), f32)], [w], trip=4)


def loop_until(g: Graph) -> Any:
    body = g.subgraph("body")
    body.input("i", (), i64)
    body.input("c", (), b1)
    s = body.input("s", (), f32)
    body.output("go", s < 20.0)
    body.output("next", s * 2.0)
    body.output("scan", s)
    return g.loop(body, [g.input("positive", (), f32)], condition=g.input("x", (), f32) < 9.0)


case("call", calls, M=3)
case(
    "kernel",
    lambda g: g.kernel("d = input0 * 2 + ridx1; where(d > shape0, d / 3, -d ** 2) + 0.5 * ridx0", x23(g)),
    _kernel_by_torch,
)
case("kernel-ints", lambda g: g.kernel("(input0 << 2) % 5 - (input1 & 3) ^ ridx0 / 2", *two(g, i32)))
case("kernel-bool", lambda g: g.kernel("!(input0 > input1) || ridx1 == 1 && true", *two(g, f32)))
case("kernel-f16", lambda g: g.kernel("exp(input0) * max(input1, 0.25, ridx0) + fp16(shape1)", *two(g, f16)))
case("kernel-rank0", lambda g: g.kernel("input0 * ridx0 + ridx1", g.input("x", (), f32), shape=("N", 4)), N=3)
case("kernel-no-operand", lambda g: g.kernel("ridx0 * shape1 + ridx1", shape=("N", 4)), N=3)
case(
    "kernel_reduce",
    lambda g: g.kernel_reduce("input0 * input1 + ridx1", *two(g, f32), op="sum", axes=[1]),
    _sum_by_torch,
)
case("kernel_reduce-all", lambda g: g.kernel_reduce("input0 > 0.25", x23(g), op="or", keepdims=True))
case("kernel_reduce-mean", lambda g: g.kernel_reduce("abs(input0)", x23(g), op="mean", axes=[-1]))
case(
    "kernel_body",
    lambda g: g.kernel_body(
        "for (ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = input0[ridx0] + input0_shape1;",
        x23(g),
        outputs=[(f32, (2,))],
        meaning=lambda a: a.reshape(-1)[:2] + a.shape[1],
    ),
    lambda x: torch.from_numpy(x.reshape(-1)[:2] + 3),
)
case("kernel_scan", lambda g: g.kernel_scan("input0 - ridx1", x23(g), op="sum", axis=1, reverse=True))
case("if", branches)
case("if-unlike", unlike_branches, P=3, Q=5)
case("loop", loops)
case("loop-until", loop_until)
