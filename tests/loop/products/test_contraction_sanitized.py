"""Contraction kernels and the pool under the address, undefined-behaviour and thread sanitizers, in a process apart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.region.ir import Region
from tatami.runtime.building.compiler import compile_flags, find_compiler, run_command
from tatami.runtime.building.objects import runtime_headers, runtime_units
from tests.loop.products.contraction_harness import HOST, conv, kernel_of, matmul, plan, source

CASES: list[tuple[Region, dict[str, int], str, bool]] = [
    (matmul("M", "N", "K", epilogue=True), {"M": 37, "N": 45, "K": 29}, "m", False),
    (matmul("M", "N", "K", transpose_b=True), {"M": 5, "N": 70, "K": 33}, "n", True),
    (matmul("M", "N", "K"), {"M": 0, "N": 3, "K": 2}, "m", False),
    (matmul("M", "N", "K"), {"M": 4, "N": 3, "K": 0}, "n", False),
    (matmul(20, 40, 17, batch=("B",), transpose_a=True), {"B": 5}, "batch", False),
    (matmul(20, 40, 17, dtype=DType.fp16, out=DType.fp16), {}, "m", False),
    (conv(2, 2, 3, 5, (9, 7), (3, 3), 2, 1, 1), {}, "m", True),
    (conv(1, 1, 3, 5, (6, 6), (3, 3), 1, 4, 2), {}, "n", True),
    (conv(2, 1, 3, 37, (6, 7), (3, 3), 1, 1, 1), {}, "m", False),
]


def program() -> str:
    """A main that runs every case on buffers of exactly their size, three times, on four threads."""
    lines = ["#include <stdlib.h>", "#include <string.h>", '#include "tatami.h"']
    body = ["  tatami_pool *pool = tatami_pool_create(4, 100, 0);", "  for (int round = 0; round < 3; round++) {"]
    for region, sizes, split, swap in CASES:
        kernel, binding = kernel_of(region, plan(region, split=split, swap=swap))
        lines.append(f"int {kernel.face.symbol}(void* const*, const int64_t*, tatami_pool*);")
        memrefs = [*(p.memref for p in region.inputs), *(p.memref for p in region.outputs)]
        counts = [int(np.prod([evaluate(s, sizes) for s in m.shape])) * m.dtype.itemsize for m in memrefs]
        values = ", ".join(str(evaluate(s, sizes)) for s in binding.sizes) or "0"
        buffers = ", ".join(f"calloc({c}, 1)" for c in counts)
        body += [
            f"    {{ void* b[] = {{{buffers}}}; int64_t s[] = {{{values}}};",
            f"      if ({kernel.face.symbol}(b, s, pool)) return 3;",
            f"      for (int i = 0; i < {len(counts)}; i++) free(b[i]); }}",
        ]
    return "\n".join([*lines, "int main(void) {", *body, "  }", "  tatami_pool_destroy(pool);", "  return 0;", "}\n"])


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_fault_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    compiler = find_compiler()
    if compiler.kind == "zig":
        pytest.skip("zig has no sanitizer runtimes")
    kernels = [kernel_of(region, plan(region, split=split, swap=swap))[0] for region, _, split, swap in CASES]
    for name, text in runtime_headers().items():
        (tmp_path / name).write_text(text)
    names = []
    for i, text in enumerate([*dict.fromkeys(u.text for u in (*source(*kernels), *runtime_units())), program()]):
        (tmp_path / f"u{i}.c").write_text(text)
        names.append(f"u{i}.c")
    flags = [f for f in compile_flags(compiler, HOST) if f != "-O2"]
    command = [*compiler.argv, *flags, "-O0", "-g1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *names]
    built = run_command([*command, "-o", "program", "-lm", "-pthread"], cwd=tmp_path, timeout=300)
    assert built.returncode == 0, built.tail
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1"}
    ran = subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
