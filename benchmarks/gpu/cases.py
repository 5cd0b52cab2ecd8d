"""The cases that are checked and timed: models as functions of sizes, with the peers that do the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tatami as tt
from tatami.core.dtype import DType

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One model with its peers. `operations`: multiply-adds counted twice. `bytes`: each input read once, each output written
    once. `peers`: by name, a function of PyTorch's module and the tensors. `tolerance`: maximum norm of the error over the
    norm of the result."""

    name: str
    group: str
    make: Callable[[], tt.Graph]
    operations: float
    bytes: float
    peers: dict[str, Callable[..., Any]]
    tolerance: float


def size(dtype: DType, *shapes: Shape) -> float:
    total = 0
    for shape in shapes:
        count = 1
        for n in shape:
            count *= n
        total += count
    return float(total * dtype.itemsize)


TOLERANCE = {tt.fp32: 2e-5, tt.fp16: 4e-3, tt.bf16: 2e-2}


def gemm(m: int, n: int, k: int, dtype: DType = tt.bf16, order: str = "nn", relu: bool = False) -> Case:
    """[m, k] @ [k, n]; order t: that operand is stored transposed. With `relu` a bias too."""

    def make() -> tt.Graph:
        g = tt.Graph("gemm")
        a = g.input("a", (k, m) if order[0] == "t" else (m, k), dtype)
        b = g.input("b", (n, k) if order[1] == "t" else (k, n), dtype)
        y = (a.transpose() if order[0] == "t" else a) @ (b.transpose() if order[1] == "t" else b)
        if relu:
            y = (y + g.input("bias", (n,), dtype).expand((m, n))).relu()
        g.output("y", y)
        return g

    def mm(torch: Any, a: Any, b: Any, *bias: Any) -> Any:
        a, b = (a.T if order[0] == "t" else a), (b.T if order[1] == "t" else b)
        return torch.relu(torch.addmm(bias[0], a, b)) if bias else torch.mm(a, b)

    def triton(torch: Any, a: Any, b: Any, *bias: Any) -> Any:
        from benchmarks.gpu import triton_kernels

        a, b = (a.T if order[0] == "t" else a), (b.T if order[1] == "t" else b)
        return triton_kernels.gemm(a, b, *bias)

    name = f"gemm {m}x{n}x{k} {dtype} {order}" + (" bias relu" if relu else "")
    moved = size(dtype, (m, k), (k, n), (m, n))
    return Case(name, "gemm", make, 2.0 * m * n * k, moved, {"cuBLAS": mm, "Triton": triton}, TOLERANCE[dtype])


def attention(batch: int, heads: int, length: int, width: int, causal: bool, dtype: DType = tt.bf16) -> Case:
    shape = (batch, heads, length, width)

    def make() -> tt.Graph:
        g = tt.Graph("attention")
        q, k, v = (g.input(n, shape, dtype) for n in "qkv")
        g.output("y", q.attention(k, v, causal=causal))
        return g

    def sdpa(backend: str) -> Callable[..., Any]:
        def call(torch: Any, q: Any, k: Any, v: Any) -> Any:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            with sdpa_kernel(getattr(SDPBackend, backend)):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    def triton(torch: Any, q: Any, k: Any, v: Any) -> Any:
        from benchmarks.gpu import triton_kernels

        return triton_kernels.attention(q, k, v, causal)

    peers = {"FlashAttention": sdpa("FLASH_ATTENTION"), "cuDNN": sdpa("CUDNN_ATTENTION"), "Triton": triton}
    name = f"attention {batch}x{heads}x{length}x{width} {dtype}" + (" causal" if causal else "")
    operations = 4.0 * batch * heads * length * length * width / (2 if causal else 1)
    return Case(name, "attention", make, operations, size(dtype, *[shape] * 4), peers, TOLERANCE[dtype])


def gradient(of: str, batch: int, heads: int, length: int, width: int, causal: bool, dtype: DType = tt.bf16) -> Case:
    """One of attention's three gradients by the forward pass's log-sum-exp L and D = rowsum(dO O): dV = P^T dO,
    dQ = dS K or dK = dS^T Q, with P = exp(Q K^T / width - L) and dS = P (dO V^T - D). By the width and not its root: weights
    of random numbers stay small."""
    shape, line, full = (batch, heads, length, width), (batch, heads, length, 1), (batch, heads, length, length)

    def make() -> tt.Graph:
        g = tt.Graph("gradient")
        q, k, v, d_out = (g.input(n, shape, dtype) for n in ("q", "k", "v", "dO"))
        log_sum, product = (g.input(n, line, tt.fp32).expand(full) for n in "LD")
        weight = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * (1 / width) - log_sum).exp()
        if of != "v":
            weight = weight * (d_out.matmul(v.transpose(-2, -1), out_dtype=tt.fp32) - product)
        if causal:
            weight = (g.iota(full, 3) <= g.iota(full, 2)).where(weight, 0.0)
        weight = weight.cast(dtype)
        g.output("y", weight @ k if of == "q" else weight.transpose(-2, -1) @ (q if of == "k" else d_out))
        return g

    def eager(torch: Any, q: Any, k: Any, v: Any, d_out: Any, log_sum: Any, product: Any) -> Any:
        weight = torch.exp((q @ k.mT).float() / width - log_sum)
        if of != "v":
            weight = weight * ((d_out @ v.mT).float() - product)
        weight = (torch.tril(weight) if causal else weight).to(q.dtype)
        return weight @ k if of == "q" else weight.mT @ (q if of == "k" else d_out)

    products = 2 if of == "v" else 3
    name = f"gradient d{of} {batch}x{heads}x{length}x{width} {dtype}" + (" causal" if causal else "")
    operations = 2.0 * products * batch * heads * length * length * width / (2 if causal else 1)
    moved = size(dtype, *[shape] * 5) + size(tt.fp32, line, line)
    return Case(name, "gradient", make, operations, moved, {"PyTorch": eager}, TOLERANCE[dtype])


def conv(n: int, c: int, hw: int, k: int, filter: int, stride: int = 1, dtype: DType = tt.fp16, last: bool = False) -> Case:
    """A convolution; with `last`, all tensors have their channels last, as between the layers of a network."""
    pad = filter // 2
    out = (hw + 2 * pad - filter) // stride + 1

    def make() -> tt.Graph:
        g = tt.Graph("conv")
        if last:
            x, w = g.input("x", (n, hw, hw, c), dtype), g.input("w", (k, filter, filter, c), dtype)
            x, w = x.permute((0, 3, 1, 2)), w.permute((0, 3, 1, 2))
            g.output("y", x.conv(w, stride=stride, padding=pad).permute((0, 2, 3, 1)))
            return g
        x, w = g.input("x", (n, c, hw, hw), dtype), g.input("w", (k, c, filter, filter), dtype)
        g.output("y", x.conv(w, stride=stride, padding=pad))
        return g

    def cudnn(torch: Any, x: Any, w: Any) -> Any:
        torch.backends.cudnn.benchmark = True
        return torch.nn.functional.conv2d(x, w, stride=stride, padding=pad)

    def as_it_lies(torch: Any, x: Any, w: Any) -> Any:
        return cudnn(torch, x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    def channels_last(torch: Any, x: Any, w: Any) -> Any:
        last = torch.channels_last
        return cudnn(torch, x.to(memory_format=last), w.to(memory_format=last))

    name = f"conv {n}x{c}x{hw}x{hw} k{k} {filter}x{filter} s{stride} {dtype}{' nhwc' if last else ''}"
    peers = {"cuDNN NHWC": as_it_lies} if last else {"cuDNN": cudnn, "cuDNN NHWC": channels_last}
    operations = 2.0 * n * k * out * out * c * filter * filter
    moved = size(dtype, (n, c, hw, hw), (k, c, filter, filter), (n, k, out, out))
    return Case(name, "conv", make, operations, moved, peers, TOLERANCE[dtype])


def rows(kind: str, height: int, width: int, dtype: DType = tt.fp32) -> Case:
    """Kernels that memory decides."""
    shape = (height, width)

    def make() -> tt.Graph:
        g = tt.Graph(kind)
        x = g.input("x", shape, dtype)
        match kind:
            case "softmax":
                y = x.softmax(-1)
            case "layer_norm":
                y = x.layer_norm()
            case "sum":
                y = x.sum(-1)
            case "transpose":
                y = x.transpose() * 1.0
            case _:
                y = (x + g.input("z", shape, dtype)).relu()
        g.output("y", y)
        return g

    def eager(torch: Any, x: Any, *z: Any) -> Any:
        match kind:
            case "softmax":
                return torch.softmax(x, -1)
            case "layer_norm":
                return torch.nn.functional.layer_norm(x, (width,))
            case "sum":
                return x.sum(-1)
            case "transpose":
                return x.T.contiguous()
            case _:
                return torch.relu(x + z[0])

    reads = 2 if kind == "add_relu" else 1
    written = [(height,)] if kind == "sum" else [shape]
    moved = size(dtype, *[shape] * reads, *written)
    return Case(f"{kind} {height}x{width} {dtype}", "memory", make, 0.0, moved, {"PyTorch": eager}, TOLERANCE[dtype])


def timed(group: str) -> list[Case]:
    """Every case of a group, the ones that matter most first: a step that runs out of time has them."""
    match group:
        case "gemm":
            big = [gemm(s, s, s) for s in (4096, 8192, 2048, 1024, 512)]
            orders = [gemm(4096, 4096, 4096, tt.fp16, o) for o in ("nt", "tn")]
            thin = [gemm(16, 4096, 4096), gemm(128, 14336, 4096), gemm(4096, 4096, 512), gemm(4095, 4095, 4095)]
            return [*big, gemm(4096, 4096, 4096, tt.fp32), gemm(4096, 4096, 4096, relu=True), *orders, *thin]
        case "attention":
            return [attention(4, 16, s, d, c) for s in (4096, 1024) for d in (128, 64) for c in (False, True)]
        case "gradient":
            kinds = (("q", 64, True), ("k", 128, False), ("v", 128, True), ("v", 64, False))
            return [gradient(of, 4, 16, 4096, d, c) for of, d, c in kinds]
        case "conv":
            layers = [(64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (64, 56, 256, 1, 1), (3, 224, 64, 7, 2)]
            return [conv(64, c, hw, k, f, s) for c, hw, k, f, s in layers]
        case _:
            names = ("add_relu", "softmax", "layer_norm", "sum", "transpose")
            return [rows(k, 8192, 8192, d) for d in (tt.fp32, tt.fp16) for k in names]


RESNET50 = (
    (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2), (512, 28, 128, 1, 1), (128, 28, 128, 3, 1),
    (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1),
    (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1), (1024, 14, 2048, 1, 2), (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1),
)  # fmt: skip
"""Convolutions of ResNet-50 behind the stem: channels, side of the image, channels of the result, side of the filter, stride."""


def tuned() -> list[Case]:
    """The cases of the tables of tuned plans: the benchmark's products; attention of 16384 rows with 2048 channels in
    all; ResNet-50's convolutions of 64 images."""
    kinds = [(s, d, c) for s in (2048, 4096, 8192, 16384) for d in (64, 128, 256) for c in (False, True)]
    heads = [attention(16384 // s, 2048 // d, s, d, c) for s, d, c in kinds]
    return [*timed("gemm"), *heads, *(conv(64, c, hw, k, f, s, last=True) for c, hw, k, f, s in RESNET50)]


def checked(small: bool) -> list[Case]:
    """Sizes around tiles, primes, 1, every dtype and order: compared with float64 on poisoned outputs."""
    tails = [(1, 1, 1), (17, 19, 23), (64, 64, 64)] if small else [(1, 1, 1), (17, 19, 23), (127, 129, 65), (128, 256, 96)]
    out = [gemm(m, n, k, d) for m, n, k in tails for d in (tt.fp16, tt.bf16, tt.fp32)]
    s = 48 if small else 264
    out += [gemm(s, s, s, tt.fp16, o, relu=True) for o in ("nn", "nt", "tn", "tt")]
    out += [rows(k, 5, w, tt.fp32) for k in ("add_relu", "softmax", "layer_norm", "sum", "transpose") for w in (1, 37)]
    if small:
        return out
    out += [gemm(1024, 1024, 1024, tt.bf16, relu=True), gemm(16, 512, 4096), gemm(130, 70, 1000, tt.bf16, "tn")]
    out += [
        rows(k, 130, 1000, d) for k in ("add_relu", "softmax", "layer_norm", "sum", "transpose") for d in (tt.fp16, tt.fp32)
    ]
    out += [attention(1, 2, n, w, c, tt.fp16) for n in (64, 77) for w in (32, 64) for c in (False, True)]
    return [*out, conv(2, 16, 14, 24, 3), conv(1, 3, 17, 8, 7, 2), conv(2, 8, 9, 16, 1)]


def tiny(group: str) -> list[Case]:
    """One case of a group at sizes that the emulated GPU runs in a moment."""
    match group:
        case "gemm":
            return [gemm(64, 64, 32, tt.fp16)]
        case "attention":
            return [attention(1, 1, 16, 16, True, tt.fp16)]
        case "gradient":
            return [gradient("q", 1, 1, 16, 16, True, tt.fp16)]
        case "conv":
            return [conv(1, 3, 6, 4, 3)]
        case _:
            return [rows("softmax", 4, 40)]
