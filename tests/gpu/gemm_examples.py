"""Hand-written canonical contraction Regions and plans for tests of the GPU layers."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr, expr, shape, var
from tatami.core.layout import MemRef
from tatami.plan.ir import INST_K, Async, Cache, GpuSync, LocalEdge, Sm80Mma, Sm90Mma, Vectorize
from tatami.region.ir import (
    Binary,
    Cast,
    Index,
    Iter,
    Let,
    Param,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Target,
    Unary,
    Yield,
)

F16 = DType.fp16
F32 = DType.fp32


def gemm(
    m: IntoExpr = "M",
    n: IntoExpr = "N",
    k: IntoExpr = "K",
    *,
    dtype: DType = F16,
    out: DType = F16,
    a_col: bool = False,
    b_col: bool = False,
    batch: IntoExpr | None = None,
    bias: bool = True,
    relu: bool = True,
    residual: bool = False,
    tf32: bool = False,
) -> Region:
    """C = relu(A @ B + bias [+ R]); `a_col`: A is stored [K, M]; `b_col`: B is stored [N, K]; `tf32`: A and B are rounded, or
    numbers of fp8."""
    bt = () if batch is None else (batch,)
    bx = () if batch is None else (var("b"),)
    am = (m, k)
    bm = (k, n)

    def operand(name: str, dims: tuple, index: tuple, col: bool) -> tuple[Param, RegionExpr]:
        if col:
            dims, index = dims[::-1], index[::-1]
        read = Read(name, (*bx, *(var(i) for i in index)))
        return Param(name, MemRef(dtype, shape(*bt, *dims))), Cast(read, F32) if dtype.is_fp8 else read

    pa, ra = operand("A", am, ("m", "k"), a_col)
    pb, rb = operand("B", bm, ("k", "n"), b_col)
    axes = (*(() if batch is None else ("b",)), "m", "n")
    product = Binary("mul", Unary("tf32", ra), Unary("tf32", rb)) if tf32 else Binary("mul", ra, rb)
    lets = [Let("acc", axes, F32 if dtype != DType.fp64 else dtype, Reduce("sum", ("k",), 0.0, F32, product))]
    inputs = [pa, pb]

    def up(x: Read, d: DType) -> RegionExpr:
        return x if d == F32 else Cast(x, F32)

    if bias:
        inputs.append(Param("bias", MemRef(of_bias := out if dtype.is_fp8 else dtype, shape(n))))
        lets.append(Let("c1", axes, F32, Binary("add", Ref(lets[-1].name), up(Read("bias", (var("n"),)), of_bias))))
    if residual:
        inputs.append(Param("R", MemRef(out, shape(*bt, m, n))))
        index = (*bx, var("m"), var("n"))
        lets.append(Let("c2", axes, F32, Binary("add", Ref(lets[-1].name), up(Read("R", index), out))))
    if relu:
        lets.append(Let("c3", axes, F32, Unary("relu", Ref(lets[-1].name))))
    return Region(
        "gemm",
        (*(() if batch is None else (Iter("b", expr(batch)),)), Iter("m", expr(m)), Iter("n", expr(n))),
        (Iter("k", expr(k)),),
        tuple(inputs),
        (Target("C", MemRef(out, shape(*bt, m, n))),),
        tuple(lets),
        (Yield(lets[-1].name, "C", cast=out),),
    )


CACHE = (Cache("A"), Cache("B"))
HINTS: dict[str, bool | str] = {"A_swizzle": True, "B_swizzle": True, "C_stride": "row"}
TAIL = ("m.i.i", "n.i.i", "k.i.i")
BIND = {"m.o": "block.y", "n.o": "block.x", "m.i.o": "warp.y", "n.i.o": "warp.x"}


def sm80(tile=(128, 64, 64), stages=2, *, warp="64x64", width=8, depth=None, overlap=False, tail=TAIL, **other) -> Sm80Mma:
    if not other.get("enable", True):  # the synchronous template: single elements, a warp has two rows of 16 threads
        rows, columns = min(16, tile[0]), min(16, tile[1])
        warp, width, depth = f"{tile[0] // rows * 32 // columns}x{tile[1]}", 1, 2
        other |= {"inst_shape": "fma", "hints": {"A_swizzle": False, "B_swizzle": False, "C_stride": "row"}}
    return Sm80Mma(
        tile=tile,
        stages=stages,
        bind=other.pop("bind", BIND),
        warp_tile=warp,
        cache=CACHE,
        vectorize=Vectorize("n.i.i", width),
        predicate_tail=tail,
        epilogue=other.pop("epilogue", ()),
        layout_hints=other.pop("hints", HINTS),
        algo_choice=other.pop("algo_choice", {}),
        local_edges=other.pop("edges", (LocalEdge("sum_k", "relu", "reg"),)),
        async_=Async(other.pop("enable", True), stages if depth is None else depth, overlap),
        k_steps=max(1, tile[2] // INST_K.get(other.get("inst_shape", ""), 16)),
        **other,
    )


def sm90(
    tile=(128, 128, 64),
    stages=4,
    *,
    consumers=2,
    width=8,
    persistent=False,
    overlap=False,
    tail=TAIL,
    depth=16,
    **other,
) -> Sm90Mma:
    return Sm90Mma(
        tile=tile,
        stages=stages,
        bind=other.pop("bind", BIND),
        cache=CACHE,
        vectorize=Vectorize("n.i.i", width),
        predicate_tail=tail,
        epilogue=(),
        layout_hints=HINTS,
        algo_choice=other.pop("algo_choice", {}),
        local_edges=other.pop("edges", ()),
        async_=Async(True, stages, overlap),
        inst_shape=f"m64n{tile[1]}k{depth}",
        k_steps=tile[2] // depth,
        consumers=consumers,
        persistent=persistent,
        **other,
    )


def sync(tile=(64, 64, 32), block=(16, 16), *, tail=TAIL) -> GpuSync:
    return GpuSync(tile, block, BIND, tail, ())


def rows_in_groups(dtype: DType = F16, order: str = "nn", *, tf32: bool = False, relu: bool = True) -> Region:
    """C = relu(A by groups of rows @ their own of the matrices B); `order` as the letters of cuBLAS, "t" for [K, M] and [N, K]."""
    dims, index = shape("G", "K", "N"), (None, var("k"), var("n"))
    if order[1] == "t":
        dims, index = shape("G", "N", "K"), (None, var("n"), var("k"))
    a_dims, a_index = shape("M", "K"), (var("m"), var("k"))
    if order[0] == "t":
        a_dims, a_index = a_dims[::-1], a_index[::-1]
    ended = Binary("le", Cast(Read("ends", (var("g"),)), DType.i64), Index(var("m"), DType.i64))
    sides: tuple[RegionExpr, ...] = (Read("A", a_index), ReadAt("B", index, (Ref("group"),), "zero"))
    product = Binary("mul", *(Unary("tf32", e) if tf32 else e for e in sides))
    lets = [
        Let("group", ("m",), DType.i64, Reduce("sum", ("g",), None, DType.i64, Cast(ended, DType.i64))),
        Let("acc", ("m", "n"), F32, Reduce("sum", ("k",), None, F32, product)),
    ]
    if relu:
        lets.append(Let("c", ("m", "n"), F32, Unary("relu", Ref("acc"))))
    inputs = (("ends", DType.i32, shape("G")), ("A", dtype, a_dims), ("B", dtype, dims))
    return Region(
        "groups",
        (Iter("m", expr("M")), Iter("n", expr("N"))),
        (Iter("g", expr("G")), Iter("k", expr("K"))),
        tuple(Param(name, MemRef(d, s)) for name, d, s in inputs),
        (Target("C", MemRef(dtype, shape("M", "N"))),),
        tuple(lets),
        (Yield(lets[-1].name, "C", cast=dtype),),
    )
