"""Products and attention written in Triton for comparison, with autotuning. Imported only where a benchmark calls them.

`TRITON_INTERPRET=1` runs them on tensors of the host, without a search; `tests/benchmarks/test_triton_kernels.py` compares their
numbers so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)


def is_interpreted() -> bool:
    """True if kernels run on the host, where nothing is measured."""
    return bool(triton.knobs.runtime.interpret)


def searched(tiles: Sequence[tuple[dict[str, int], int, int]]) -> list[Any]:
    """The configurations to search, each a tile with its stages and warps; the first alone where nothing is measured."""
    found = [triton.Config(tile, num_stages=stages, num_warps=warps) for tile, stages, warps in tiles]
    return found[:1] if is_interpreted() else found


GEMM = searched(
    [
        ({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, 4, 4),
        ({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, 3, 8),
        ({"BM": 256, "BN": 128, "BK": 64, "GROUP": 8}, 3, 8),
        ({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, 4, 4),
        ({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, 3, 8),
        ({"BM": 128, "BN": 64, "BK": 64, "GROUP": 8}, 4, 4),
        ({"BM": 64, "BN": 128, "BK": 64, "GROUP": 8}, 4, 4),
        ({"BM": 64, "BN": 64, "BK": 128, "GROUP": 8}, 4, 4),
        ({"BM": 16, "BN": 64, "BK": 256, "GROUP": 1}, 4, 4),
        ({"BM": 16, "BN": 128, "BK": 128, "GROUP": 1}, 5, 4),
        ({"BM": 64, "BN": 64, "BK": 16, "GROUP": 8}, 3, 4),
    ]
)
"""Tiles of a product: for large ones, for a few rows, and a small one for fp32."""


@triton.autotune(configs=GEMM, key=["M", "N", "K", "a_m", "b_k"])
@triton.jit
def _gemm(
    a,
    b,
    bias,
    c,
    M,
    N,
    K,
    a_m,
    a_k,
    b_k,
    b_n,
    HAS_BIAS: tl.constexpr,
    EXACT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = tile // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    inside = tile % (GROUP * columns)
    m = (first + inside % height) * BM + tl.arange(0, BM)
    n = (inside // height) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    # Rows and columns beyond the end read others; they are not stored.
    at_a = a + (m % M).to(tl.int64)[:, None] * a_m + k[None, :] * a_k
    at_b = b + k[:, None] * b_k + (n % N).to(tl.int64)[None, :] * b_n
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(tl.cdiv(K, BK)):
        left = K - block * BK
        x = tl.load(at_a, mask=k[None, :] < left, other=0.0)
        y = tl.load(at_b, mask=k[:, None] < left, other=0.0)
        if EXACT:
            acc = tl.dot(x, y, acc, input_precision="ieee")
        else:
            acc = tl.dot(x, y, acc)
        at_a += BK * a_k
        at_b += BK * b_k
    if HAS_BIAS:
        acc = acc + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    to = c + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(to, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def gemm(a: Any, b: Any, bias: Any = None) -> Any:
    """[m, k] @ [k, n] of any strides; with a bias [n], its sum's positive part. fp16, bf16, or fp32 without rounding."""
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)

    def grid(tile: Any) -> tuple[int]:
        return (triton.cdiv(m, tile["BM"]) * triton.cdiv(n, tile["BN"]),)

    strides = (*a.stride(), *b.stride())
    _gemm[grid](a, b, c if bias is None else bias, c, m, n, k, *strides, bias is not None, a.dtype == torch.float32)
    return c


ATTENTION = searched(
    [
        ({"BM": 64, "BN": 32}, 3, 4),
        ({"BM": 128, "BN": 64}, 3, 8),
        ({"BM": 128, "BN": 64}, 4, 4),
        ({"BM": 128, "BN": 128}, 2, 8),
        ({"BM": 128, "BN": 128}, 3, 8),
        ({"BM": 64, "BN": 64}, 3, 4),
        ({"BM": 128, "BN": 32}, 4, 8),
    ]
)
"""Rows and keys of a tile of attention."""


@triton.jit
def _keys(
    q,
    acc,
    top,
    total,
    k,
    v,
    L,
    begin,
    end,
    rows,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Blocks of keys from `begin` to `end`. `top`: largest score of each row, in powers of two; `total`: sum of exponentials."""
    depth = tl.arange(0, D)
    for first in range(begin, end, BN):
        keys = first + tl.arange(0, BN)
        if MASKED:
            x = tl.load(k + keys[None, :] * D + depth[:, None], mask=keys[None, :] < L, other=0.0)
        else:
            x = tl.load(k + keys[None, :] * D + depth[:, None])
        scores = tl.dot(q, x) * scale
        if MASKED:
            seen = keys[None, :] < L
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, -1.0e30)
        best = tl.maximum(top, tl.max(scores, 1))
        weights = tl.math.exp2(scores - best[:, None])
        shrunk = tl.math.exp2(top - best)
        total = total * shrunk + tl.sum(weights, 1)
        if MASKED:
            y = tl.load(v + keys[:, None] * D + depth[None, :], mask=keys[:, None] < L, other=0.0)
        else:
            y = tl.load(v + keys[:, None] * D + depth[None, :])
        acc = tl.dot(weights.to(y.dtype), y, acc * shrunk[:, None])
        top = best
    return acc, top, total


@triton.autotune(configs=ATTENTION, key=["L", "D", "CAUSAL"])
@triton.jit
def _attention(q, k, v, o, L, scale, D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    # Causal rows with the most keys come first, so that the last CTAs are short.
    tile = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    matrix = tl.program_id(1).to(tl.int64) * L * D
    rows = tile * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    place = rows[:, None] * D + depth[None, :]
    own = tl.load(q + matrix + place, mask=rows[:, None] < L, other=0.0)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    top = tl.full((BM,), -1.0e30, dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    most = min((tile + 1) * BM, L) if CAUSAL else L
    whole = (tile * BM if CAUSAL else L) // BN * BN
    acc, top, total = _keys(own, acc, top, total, k + matrix, v + matrix, L, 0, whole, rows, scale, D, BN, False, CAUSAL)
    acc, top, total = _keys(own, acc, top, total, k + matrix, v + matrix, L, whole, most, rows, scale, D, BN, True, CAUSAL)
    acc = acc / total[:, None]
    tl.store(o + matrix + place, acc.to(o.dtype.element_ty), mask=rows[:, None] < L)


def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """softmax(q k^T / sqrt(d)) v of row-major [batch, heads, length, d] in fp16 or bf16; d is 16, 32, 64 or 128."""
    batch, heads, length, depth = q.shape
    o = torch.empty_like(q)

    def grid(tile: Any) -> tuple[int, int]:
        return triton.cdiv(length, tile["BM"]), batch * heads

    _attention[grid](q, k, v, o, length, LOG2_E / math.sqrt(depth), depth, causal)
    return o
