"""The problems that plans of the SM90 templates are made for: products, convolutions, pairs of products with weights between."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.layout import MemRef
from tatami.region.ir import Region
from tests.cu.pairs.test_pair_direct import LENGTHS
from tests.cu.products.test_im2col import Conv
from tests.gpu.gemm_examples import gemm, rows_in_groups

KNOWN = (1152, 1024, 2048)
"""m, n, k of a product whose sizes are constants: whole tiles of some plans, and not of others."""
CONVOLUTIONS = {
    "3x3": Conv(),
    "3x3, a step of 2": Conv(size=(17, 23), stride=(2, 2), channels=128, out=72),
    "3x2, dilated": Conv(size=(8, 9), taps=(3, 2), dilation=(2, 3), padding=((2, 0), (3, 1)), dtype=DType.bf16),
    "1x1": Conv(taps=(1, 1), padding=((0, 0), (0, 0)), out=256),
    "1x1, a step of 2": Conv(taps=(1, 1), stride=(2, 2), padding=((0, 0), (0, 0))),
    "in groups": Conv(groups=3, out=16, channels=32),
    "24 channels": Conv(channels=24, out=64),
    "tf32": Conv(channels=32, dtype=DType.fp32),
}
WEIGHTS = (
    "softmax",
    "causal",
    "causal, a key for two heads",
    "window, softcap",
    "added mask",
    "given mask, sums",
    "as many keys as an input says",
    "sigmoid",
    "gradient of queries",
    "gradient of keys",
    "gradient of values",
)


@cache
def product_region(dtype: DType, order: str, epilogue: str, outer: str, sizes: str) -> Region:
    a_col, b_col = (side == "t" for side in order)
    rounded = dtype.itemsize != 2
    if outer == "groups of rows":
        return rows_in_groups(dtype, order, tf32=rounded, relu="relu" in epilogue)
    m, n, k = KNOWN if sizes == "known" else ("M", "N", "K")
    of = {"bias": "bias" in epilogue, "relu": "relu" in epilogue, "residual": "residual" in epilogue}
    batch = None if outer == "none" else 3 if sizes == "known" else "B"
    out = DType.fp16 if dtype.is_fp8 else dtype
    return gemm(m, n, k, dtype=dtype, out=out, a_col=a_col, b_col=b_col, batch=batch, tf32=rounded, **of)


@cache
def image_region(convolution: str, nchw: bool) -> Region:
    """The Region of a convolution. `nchw`: the results' pixels are neighbours in memory, and addresses are made of quotients."""
    region = CONVOLUTIONS[convolution].region()
    if not nchw:
        return region
    (out,), (y,) = region.outputs, region.yields
    order = [[i.name for i in region.iters].index(a) for a in "pgohw"]
    shape = tuple(out.memref.shape[i] for i in order)
    return msgspec.structs.replace(
        region,
        outputs=(msgspec.structs.replace(out, memref=MemRef(out.memref.dtype, shape)),),
        yields=(msgspec.structs.replace(y, map=tuple(var(region.iters[i].name) for i in order)),),
    )


@cache
def pair_region(weights: str, dtype: DType, order: str, width: tuple[int, int]) -> Region | None:
    """Rows, keys and values lie as `order` says: n, or t where rows or keys are contiguous in memory. None where the compiler
    keeps the products apart."""
    graph = _pair_graph(weights, dtype, order, *width)
    body = prepare(graph, target="sm90", sizes=LENGTHS).stages["region"].main.body
    first, *others = (x for x in body if isinstance(x, Region))
    return None if others else first


def _pair_graph(weights: str, dtype: Any, order: str, depth: int, columns: int) -> tt.Graph:
    g = tt.Graph("pair")
    few = 1 if "for two heads" in weights else 2

    def given(name: str, turned: str, heads: int, size: str, wide: int) -> Any:
        if turned == "n":
            return g.input(name, ("B", heads, size, wide), dtype)
        return g.input(name, ("B", heads, wide, size), dtype).transpose(-2, -1)

    q, k, v = (given(*x) for x in zip("qkv", order, (2, few, few), "STT", (depth, depth, columns)))
    full = ("B", 2, "S", "T")
    scores: Any = q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * 0.25 if few == 2 else None
    match weights:
        case "softmax":
            y = q.attention(k, v)
        case "causal" | "causal, a key for two heads":
            y = q.attention(k, v, causal=True)
        case "window, softcap":
            y = q.attention(k, v, causal=True, window=20, softcap=3.0)
        case "added mask":
            y = q.attention(k, v, g.input("m", ("B", 1, "S", "T"), dtype).expand(full))
        case "given mask, sums":
            seen = g.input("m", ("B", 1, "S", "T"), tt.bool).expand(full).where(scores, -np.inf)
            p = seen.softmax(axis=3)
            y = p.isnan().where(g.full(full, 0.0, tt.fp32), p).cast(dtype) @ v
            g.output("sums", seen.logsumexp(axis=3))
        case "as many keys as an input says":
            count = g.input("n", ("B",), tt.i32).reshape("B", 1, 1, 1).expand(("B", 1, 1, "T"))
            y = q.attention(k, v, (g.iota(("B", 1, 1, "T"), 3, dtype=tt.i32) < count).expand(full), causal=True)
        case "sigmoid":
            y = scores.sigmoid().cast(dtype) @ v
        case _:
            y = _gradient(g, weights, dtype, (q, k, v), scores, columns)
    g.output("y", y)
    return g


def _gradient(g: tt.Graph, of: str, dtype: Any, operands: tuple[Any, Any, Any], scores: Any, columns: int) -> Any:
    """Gradients of attention, from the log of the sums of its forward pass and the rows' products of dO and O."""
    q, k, v = operands
    full = ("B", 2, "S", "T")
    total, product = (g.input(name, ("B", 2, "S", 1), tt.fp32).expand(full) for name in "LD")
    d_out = g.input("dO", ("B", 2, "S", columns), dtype)
    seen = g.iota(full, 3) <= g.iota(full, 2)
    p = (scores - total).exp()
    if of == "gradient of values":
        return seen.where(p, 0.0).cast(dtype).transpose(-2, -1) @ d_out
    ds = seen.where(p * (d_out.matmul(v.transpose(-2, -1), out_dtype=tt.fp32) - product), 0.0).cast(dtype)
    return ds @ k if of == "gradient of queries" else ds.transpose(-2, -1) @ q
