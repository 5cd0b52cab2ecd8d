"""Regions of contraction kind and their kernels run through the C compiler."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from tatami.c.kernels.print_kernel import print_kernel
from tatami.c.routines import routine_units
from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Signature
from tatami.core.target import Target
from tatami.core.tensor import numpy_dtype
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.lower import lower
from tatami.plan.ir import CpuContraction, Guarded, ProgramPlan, RegionPlan
from tatami.region.ir import (
    Binary,
    Cast,
    Const,
    Iter,
    Let,
    Param,
    Program,
    Read,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Select,
    Unary,
    Within,
    Yield,
)
from tatami.region.ir import Target as Output
from tatami.runtime.building.objects import Unit, build, program_units
from tatami.runtime.cpu.pool import get_pool, load_program
from tatami.runtime.machine.host import detect_host

HOST = detect_host()
TILES = {"avx512": (12, 32, 16), "avx2": (6, 16, 8), "neon": (8, 12, 4), "generic": (4, 8, 4)}


def plan(
    region: Region,
    *,
    split: str = "m",
    swap: bool = False,
    kc: int = 16,
    mc: int = 24,
    nc: int = 4096,
    isa: str = HOST.isa,
    in_place: tuple[str, ...] = (),
    dot: str = "",
) -> CpuContraction:
    mr, nr, width = TILES[isa]
    acc = next(let.name for let in region.lets if isinstance(let.expr, Reduce))
    return CpuContraction(acc, mr, nr, kc, mc, nc, width, swap, split, (), (), in_place, dot, 3 if split == "k" else 1)  # type: ignore[arg-type]


def source(*kernels: loop.Kernel) -> tuple[Unit, ...]:
    """The units of kernels that can be called from outside, without the runtime."""
    exported: list[Unit] = []
    for kernel in kernels:
        unit, head = print_kernel(kernel), f"int {kernel.face.symbol}("
        text = unit.text.replace(head, f'__attribute__((visibility("default"))) {head}')
        exported.append(Unit(text, unit.contract, unit.light))
    routines = (Unit(r.text, r.contract) for r in routine_units(kernels).values())
    return (*exported, *routines)


def kernel_of(region: Region, chosen: CpuContraction, target: Target = HOST) -> tuple[loop.Kernel, Binding]:
    program = Program(Signature(), (), (), (region,))
    plans = ProgramPlan((RegionPlan(region.name, "", (Guarded((), chosen),), ()),), {})
    lowered = lower(Module({"main": program}), Module({"main": plans}), target).main
    return lowered.kernels[lowered.bindings[0].kernel], lowered.bindings[0]


@lru_cache(maxsize=64)
def compiled(region: Region, chosen: CpuContraction, target: Target) -> tuple[ctypes.CDLL, Binding]:
    kernel, binding = kernel_of(region, chosen, target)
    return load_program(build((*source(kernel), *program_units()), target)), binding


def run(
    region: Region,
    chosen: CpuContraction,
    inputs: dict[str, np.ndarray],
    sizes: dict[str, int] | None = None,
    threads: int = 2,
    target: Target = HOST,
) -> dict[str, np.ndarray]:
    """Outputs by name. Buffers are followed by a guard zone that must stay as it was."""
    library, binding = compiled(region, chosen, target)
    sizes = sizes or {}
    outputs: dict[str, np.ndarray] = {}
    guarded: list[np.ndarray] = []
    buffers: dict[str, np.ndarray] = {n: np.ascontiguousarray(a) for n, a in inputs.items()}
    for t in region.outputs:
        shape = tuple(int(evaluate(s, sizes)) for s in t.memref.shape)
        count = int(np.prod(shape, dtype=np.int64))
        raw = np.full(count + 64, 77, numpy_dtype(t.memref.dtype))
        guarded.append(raw[count:])
        buffers[t.name] = raw
        outputs[t.name] = raw[:count].reshape(shape)
    pointers = (ctypes.c_void_p * len(binding.buffers))(*(buffers[b].ctypes.data for b in binding.buffers))
    values = [int(evaluate(s, sizes)) for s in binding.sizes]
    kernel = getattr(library, binding.kernel)
    assert kernel(pointers, (ctypes.c_int64 * max(len(values), 1))(*values), ctypes.c_void_p(get_pool(threads))) == 0
    for zone in guarded:
        assert (zone == 77).all(), "written past the end"
    return outputs


# -- Regions -------------------------------------------------------------------------------------


def e(*texts: str | int) -> tuple[Expr, ...]:
    return tuple(expr(t) for t in texts)


def product(x: RegionExpr, y: RegionExpr, axes: tuple[str, ...], acc: DType) -> Reduce:
    return Reduce("sum", axes, 0.0, acc, Binary("mul", x, y))


def matmul(
    m: str | int,
    n: str | int,
    k: str | int,
    *,
    dtype: DType = DType.fp32,
    acc: DType = DType.fp32,
    transpose_a: bool = False,
    transpose_b: bool = False,
    batch: tuple[str | int, ...] = (),
    epilogue: bool = False,
    prologue: bool = False,
    out: DType | None = None,
) -> Region:
    """y[b…, m, n] = sum_k a[b…, m, k] * b[b…, k, n]; epilogue relu(2*y + bias[n]), prologue abs(a)/2."""
    names = tuple(f"b{i}" for i in range(len(batch)))
    bm = tuple(var(b) for b in names)
    a_map, b_map = (*bm, *(e("k", "m") if transpose_a else e("m", "k"))), (*bm, *(e("n", "k") if transpose_b else e("k", "n")))
    a_shape = (*e(*batch), *(e(k, m) if transpose_a else e(m, k)))
    b_shape = (*e(*batch), *(e(n, k) if transpose_b else e(k, n)))
    lhs: RegionExpr = Read("a", a_map)
    rhs: RegionExpr = Read("b", b_map)
    if prologue:
        lhs = Binary("mul", Unary("abs", lhs), Const(0.5, dtype))
    if dtype != acc:
        lhs, rhs = Cast(lhs, acc), Cast(rhs, acc)
    axes = (*names, "m", "n")
    lets = [Let("acc", axes, acc, product(lhs, rhs, ("k",), acc))]
    inputs = [Param("a", MemRef(dtype, a_shape)), Param("b", MemRef(dtype, b_shape))]
    if epilogue:
        inputs.append(Param("bias", MemRef(acc, e(n))))
        scaled = Binary("mul", Ref("acc"), Const(2.0, acc))
        lets.append(Let("z", axes, acc, Unary("relu", Binary("add", scaled, Read("bias", e("n"))))))
    iters = (*(Iter(b, expr(s)) for b, s in zip(names, batch)), Iter("m", expr(m)), Iter("n", expr(n)))
    target = Output("y", MemRef(out or acc, (*e(*batch), *e(m, n))))
    return Region("r0", iters, (Iter("k", expr(k)),), tuple(inputs), (target,), tuple(lets), (Yield(lets[-1].name, "y", out),))


def conv(
    batch: int,
    groups: int,
    cin: int,
    cout: int,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int,
    pad: int,
    dilation: int,
) -> Region:
    """y[b, g*co, o…] = sum x[b, g*ci, s*o + d*k - p] * w[g*co, ci, k…]; cin and cout are per group."""
    f = DType.fp32
    rank = len(image)
    out = tuple((i + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for i, k in zip(image, kernel))
    o, ks = [f"o{i}" for i in range(rank)], [f"k{i}" for i in range(rank)]
    where = e(*(f"{stride}*{a} + {dilation}*{b} - {pad}" for a, b in zip(o, ks)))
    x: RegionExpr = Read("x", (*e("b", f"{cin}*g + c"), *where))
    if pad:
        x = Select(Within(tuple(Guard(i, expr(s)) for i, s in zip(where, image))), x, Const(0.0, f))
    w = Read("w", (*e(f"{cout}*g + m", "c"), *e(*ks)))
    axes = ("b", "g", "m", *o)
    sizes = (batch, groups, cout, *out)
    return Region(
        "r0",
        tuple(Iter(a, expr(s)) for a, s in zip(axes, sizes)),
        tuple(Iter(a, expr(s)) for a, s in zip(("c", *ks), (cin, *kernel))),
        (Param("x", MemRef(f, e(batch, groups * cin, *image))), Param("w", MemRef(f, e(groups * cout, cin, *kernel)))),
        (Output("y", MemRef(f, e(batch, groups * cout, *out))),),
        (Let("acc", axes, f, product(x, w, ("c", *ks), f)),),
        (Yield("acc", "y", map=(*e("b", f"{cout}*g + m"), *e(*o))),),
    )


def conv_reference(x: np.ndarray, w: np.ndarray, groups: int, stride: int, pad: int, dilation: int) -> np.ndarray:
    rank = x.ndim - 2
    cout, cin = w.shape[0] // groups, w.shape[1]
    kernel = w.shape[2:]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [(pad, pad)] * rank)
    out = [(i - dilation * (k - 1) - 1) // stride + 1 for i, k in zip(padded.shape[2:], kernel)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for g in range(groups):
        for at in np.ndindex(*kernel):
            window = tuple(slice(dilation * a, dilation * a + stride * (n - 1) + 1, stride) for a, n in zip(at, out))
            part = padded[(slice(None), slice(g * cin, (g + 1) * cin), *window)]
            taps = w[(slice(g * cout, (g + 1) * cout), slice(None), *at)].astype(np.float64)
            y[:, g * cout : (g + 1) * cout] += np.einsum("bc...,mc->bm...", part, taps)
    return y


def assert_close(got: np.ndarray, wanted: np.ndarray) -> None:
    """fp32 tolerance of D2.15."""
    assert got.shape == wanted.shape
    if wanted.size == 0:
        return
    d = np.abs(got.astype(np.float64) - wanted)
    rms = float(np.sqrt(np.mean(wanted**2)))
    assert (d <= 1e-3 * np.abs(wanted) + 1e-5 * rms + 1e-30).all(), float(d.max())
    assert np.linalg.norm(d) <= 1e-5 * np.linalg.norm(wanted) + 1e-30
