"""The kernels written in Triton for comparison compute what PyTorch does, by Triton's interpreter on the host; and those that it
cannot run (products of bf16) compile for SM90 to products of warpgroups.

Triton decides at its import whether it interprets, so each test is a process of its own."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ("products_are_pytorchs", "attention_is_pytorchs", "bf16_compiles_to_products_of_warpgroups")
needs_triton = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("triton", "torch"))), reason="Triton or PyTorch is not installed"
)


def near(found: Any, wanted: Any, tolerance: float) -> None:
    import torch

    norm = torch.linalg.vector_norm
    assert norm(found.double() - wanted) <= tolerance * norm(wanted)


def products_are_pytorchs() -> None:
    import torch

    from benchmarks.gpu.triton_kernels import gemm

    kinds = {torch.float16: 4e-3, torch.float32: 2e-5}
    for (dtype, tolerance), (m, n, k) in itertools.product(kinds.items(), [(1, 1, 1), (17, 19, 23), (70, 130, 100)]):
        a, b, bias = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.randn(n).to(dtype)
        wanted = a.double() @ b.double()
        for x, y in itertools.product((a, a.T.contiguous().T), (b, b.T.contiguous().T)):
            near(gemm(x, y), wanted, tolerance)
        near(gemm(a, b, bias), torch.relu(wanted + bias.double()), tolerance)


def attention_is_pytorchs() -> None:
    import torch

    from benchmarks.gpu.triton_kernels import attention

    for length, depth, causal in itertools.product((16, 64, 77, 130), (16, 64), (False, True)):
        q, k, v = (torch.randn(1, 2, length, depth).half() for _ in range(3))
        wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
        near(attention(q, k, v, causal), wanted, 4e-3)


def bf16_compiles_to_products_of_warpgroups() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from benchmarks.gpu import triton_kernels

    sizes = dict.fromkeys(("M", "N", "K", "a_m", "a_k", "b_k", "b_n"), "i32")
    tile = {"HAS_BIAS": True, "EXACT": False, "BM": 128, "BN": 256, "BK": 64, "GROUP": 8}
    for kernel, signature, constants in (
        (triton_kernels._gemm, {**dict.fromkeys(("a", "b", "bias", "c"), "*bf16"), **sizes}, tile),
        (
            triton_kernels._attention,
            {**dict.fromkeys("qkvo", "*bf16"), "L": "i32", "scale": "fp32"},
            {"D": 128, "CAUSAL": True, "BM": 128, "BN": 64},
        ),
    ):
        signature |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=kernel.fn, signature=signature, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 3})
        assert "wgmma.mma_async" in made.asm["ptx"] and ".bf16.bf16" in made.asm["ptx"]


@needs_triton
@pytest.mark.parametrize("name", TESTS)
def test_kernels_of_triton(name: str, tmp_path: Path) -> None:
    interprets = str(int(name.endswith("pytorchs")))
    env = {**os.environ, "TRITON_INTERPRET": interprets, "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    text = f"from tests.benchmarks.test_triton_kernels import {name}; {name}()"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
