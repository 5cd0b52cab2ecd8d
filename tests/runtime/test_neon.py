"""The C of `cpu:neon` compiles for AArch64 by zig, and means the same where qemu-user runs it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.storage.code_folder import print_program

QEMU = next((q for n in ("qemu-aarch64-static", "qemu-aarch64") if (q := shutil.which(n))), None)


def everything() -> tt.Graph:
    """Every kind of kernel of a CPU: products with an epilogue and of few rows, convolutions by tiles, planes and windows, a
    streaming pair, norms, scans, places of extremes, a turned matrix, sums down long rows."""
    g, rng = tt.Graph("everything"), np.random.default_rng(0)

    def weights(*shape: int) -> tt.Tensor:
        return g.constant(rng.integers(-8, 8, shape).astype(np.float32) / 16)

    x = g.input("x", (37, 96), tt.fp32)
    g.output("gelu", (x @ weights(96, 130)).gelu())
    g.output("row", g.input("r", (1, 1100), tt.fp32) @ g.input("w", (1100, 1300), tt.fp32))
    g.output("softmax", x.softmax(axis=1))
    g.output("norm", x.layer_norm(weights(96), weights(96)))
    g.output("scan", x.cumsum(axis=1))
    g.output("place", x.argmax(axis=1))
    g.output("turned", x.permute((1, 0)))
    g.output("columns", g.input("c", (80, 1100), tt.fp32).sum(axis=0))
    image = g.input("i", (1, 16, 18, 18), tt.fp32)
    g.output("tiles", image.conv(weights(32, 16, 3, 3), padding=1).relu())
    g.output("planes", image.conv(weights(8, 16, 5, 5), stride=2))
    g.output("window", image.conv(weights(16, 1, 3, 3), padding=1, groups=16))
    q, k, v = (g.input(n, (1, 2, 70, 16), tt.fp32) for n in ("q", "k", "v"))
    g.output("attention", q.attention(k, v, causal=True))
    return g


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_code_for_neon(tmp_path: Path, zig_caches: dict[str, str]) -> None:
    for name, pieces in print_program(prepare(everything(), target="cpu:neon"), {}).files():
        (tmp_path / name).write_bytes(b"".join(pieces))
    sources = sorted(p.name for p in tmp_path.glob("*.c"))
    flags = ["-target", "aarch64-linux-musl", "-std=gnu17", "-O1", "-w", "-ffp-contract=off", "-static"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, *sources, "-lm", "-pthread", "-o", "a.out"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, **zig_caches})
    assert (tmp_path / "a.out").read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64
    if QEMU is None:
        pytest.skip("compiled; no qemu-user to run it")
    done = subprocess.run([QEMU, "./a.out"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count(": ok") == 12 and done.stdout.endswith("ok\n"), done.stdout + done.stderr
