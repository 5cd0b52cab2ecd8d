"""Runs one Region as a compiled kernel, for tests: a serial pool that still splits ranges into chunks."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tatami.c.kernels.c_types import memory_type
from tatami.c.kernels.print_kernel import print_kernel
from tatami.c.routines import routine_units
from tatami.core.algebra.visit import evaluate
from tatami.core.kernel import Binding
from tatami.core.layout import size_elements
from tatami.core.module import Module
from tatami.core.signature import Signature
from tatami.core.target import PRESETS, Target
from tatami.core.tensor import numpy_dtype
from tatami.loop.ir import Kernel
from tatami.loop.lower import lower
from tatami.plan.ir import Guarded, ProgramPlan, RegionPlan, SchedulePlan
from tatami.region.ir import Program, Region
from tatami.runtime.building.compiler import is_quick_build
from tatami.runtime.building.library import Library
from tests.loop.wished import Wished

RUNTIME = Path(__file__).parents[2] / "tatami" / "c" / "runtime_text"
POOL = """
#include <stdlib.h>
#include "tatami.h"
static struct { void* raw; } stack[4096];
static size_t height;
size_t tatami_mark(void) { return height; }
void* tatami_scratch(int64_t bytes) {
  char* raw = malloc((size_t)bytes + 64);
  stack[height++].raw = raw;
  return raw + (64 - (uintptr_t)raw % 64) % 64;
}
void tatami_release(size_t mark) { while (height > mark) free(stack[--height].raw); }
int tatami_threads(const tatami_pool* pool) { (void)pool; return 3; }
int tatami_parallel_for(tatami_pool* pool, int64_t n, int64_t grain, tatami_chunk chunk, void* context) {
  int fault = 0;
  (void)pool; (void)grain;
  int64_t part = n / 3 + 1;
  for (int64_t begin = 0; begin < n; begin += part) {
    int r = chunk(context, begin, begin + part < n ? begin + part : n);
    if (r > fault) fault = r;
  }
  return fault;
}
"""
FLAGS = {
    "generic": ["-Og"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"],
}
"""Flags by instruction set in addition to BASE: plain C is compiled quickly in every test, as it has less work for the compiler."""
BASE = ["-std=gnu17", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wno-psabi", "-Werror"]
SCALAR = Target(name="cpu:scalar", kind="cpu", isa="generic", vector_bytes=4, cores=2)
TARGETS = {"scalar": SCALAR, "generic": PRESETS["cpu:generic"], "avx2": PRESETS["cpu:avx2"], "avx512": PRESETS["cpu:avx512"]}


@functools.cache
def has_flags(isa: str) -> bool:
    """True if this machine can run code for the ISA."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return {"avx2": "avx2" in text, "avx512": "avx512dq" in text}.get(isa, True)


WIDEST = next(isa for isa in ("avx512", "avx2", "generic") if has_flags(isa))
"""Instruction set of tests that are not about one: the widest that this machine runs."""


def compiler() -> list[str]:
    cc = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    return [cc] if cc else [sys.executable, "-m", "ziglang", "cc"]


_cache = Path(tempfile.gettempdir()) / f"tatami-test-kernels-{os.getuid()}"


def build(text: str, isa: str, routines: tuple[str, ...] = ()) -> Path:
    """The library of a kernel's text and of the routines that it calls, which are compiled once for all kernels."""
    flags = (*BASE, "-Og" if is_quick_build() else "-O2", *FLAGS[isa])
    others = [_built(t, (*flags, "-c"), ".o") for t in (POOL, *routines)]
    return _built(text, (*flags, "-shared"), ".so", tuple(map(str, others)))


@functools.cache
def _built(text: str, flags: tuple[str, ...], suffix: str, objects: tuple[str, ...] = ()) -> Path:
    """The file that the compiler makes of the text and of objects, whose names are made from what they contain."""
    _cache.mkdir(exist_ok=True)
    command = [*compiler(), *flags, f"-I{RUNTIME}"]
    key = "\n".join([text, *command, *objects, (RUNTIME / "tatami.h").read_text()])
    made = _cache / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}{suffix}"
    if not made.exists():
        source, temporary = made.with_suffix(".c"), made.with_suffix(f".{os.getpid()}{suffix}")
        source.write_text(text)
        done = subprocess.run([*command, str(source), *objects, "-o", str(temporary), "-lm"], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}\n{done.stderr[:4000]}\n{text}")
        os.replace(temporary, made)
    return made


Compiled = tuple[Kernel, Binding, Library]
_compiled: dict[str, Compiled] = {}
"""The kernels that `run_kernel` compiled before: a test calls one at many sizes."""


def given(plan: SchedulePlan | Wished, region: Region) -> SchedulePlan:
    return plan.plan(region) if isinstance(plan, Wished) else plan


def lowered(region: Region, plan: SchedulePlan | Wished | None, width: str) -> tuple[Kernel, Binding]:
    program = Program(Signature(), tuple(p.name for p in region.inputs), tuple(t.name for t in region.outputs), (region,))
    plans = () if plan is None else (RegionPlan(region.name, "", (Guarded((), given(plan, region)),), ()),)
    made = lower(Module({"main": program}), Module({"main": ProgramPlan(plans, {})}), TARGETS[width]).main
    return made.kernels[made.bindings[0].kernel], made.bindings[0]


def kernel_of(region: Region, plan: SchedulePlan | Wished | None = None, width: str = "avx512") -> Kernel:
    return lowered(region, plan, width)[0]


def compiled(region: Region, plan: SchedulePlan | Wished | None, width: str) -> Compiled:
    key = repr((region, plan, width, is_quick_build()))
    if key not in _compiled:
        kernel, binding = lowered(region, plan, width)
        path = build(print_kernel(kernel).text, TARGETS[width].isa or "generic", routines_of(kernel))
        _compiled[key] = kernel, binding, Library(str(path))
    return _compiled[key]


def routines_of(kernel: Kernel) -> tuple[str, ...]:
    return tuple(u.text for u in routine_units([kernel]).values())


def text_of(kernel: Kernel) -> str:
    """The kernel and the routines it calls, as one unit."""
    return "\n".join([print_kernel(kernel).text, *routines_of(kernel)])


def run_kernel(
    region: Region,
    inputs: dict[str, np.ndarray],
    sizes: dict[str, int] | None = None,
    plan: SchedulePlan | Wished | None = None,
    width: str = WIDEST,
) -> tuple[int, dict[str, np.ndarray]]:
    """(fault, outputs). Row-major buffers; an output that updates an input starts as that input. Skips the test where
    the machine cannot run the width."""
    if not has_flags(width):
        pytest.skip(f"this machine has no {width}")
    sizes = sizes or {}
    kernel, binding, library = compiled(region, plan, width)
    buffers: list[np.ndarray] = []
    for p in region.inputs:
        a = np.array(inputs[p.name], dtype=numpy_dtype(p.memref.dtype), order="C")
        assert a.shape == tuple(evaluate(s, sizes) for s in p.memref.shape), (p.name, a.shape)
        buffers.append(a)
    outputs: dict[str, np.ndarray] = {}
    for t in region.outputs:
        shape = tuple(evaluate(s, sizes) for s in t.memref.shape)
        count = evaluate(size_elements(t.memref.layout, t.memref.shape), sizes)
        if t.updates:
            out = buffers[[p.name for p in region.inputs].index(t.updates)]
        else:
            out = np.zeros(count, numpy_dtype(t.memref.dtype))
            out.view(np.uint8)[:] = 0xA5
            out = out.reshape(shape) if count == int(np.prod(shape)) else out
        outputs[t.name] = out
        buffers.append(out)
    pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[b.ctypes.data for b in buffers])
    values = [evaluate(e, sizes) for e in binding.sizes]
    size_array = (ctypes.c_int64 * max(len(values), 1))(*values)
    function = getattr(library, kernel.face.symbol)
    return function(pointers, size_array, None), outputs


def sanitizer_program(region: Region, kernel: Kernel, cases: list[dict[str, int]]) -> str:
    """A C program that calls the kernel on heap buffers of exactly the right size, filled with small numbers."""
    _, binding = lowered(region, None, "avx2")
    calls: list[str] = []
    for sizes in cases:
        memrefs = [*(p.memref for p in region.inputs), *(p.memref for p in region.outputs)]
        updates = [*("" for _ in region.inputs), *(p.updates for p in region.outputs)]
        counts = [evaluate(size_elements(m.layout, m.shape), sizes) for m in memrefs]
        values = [evaluate(e, sizes) for e in binding.sizes]
        fills = "".join(
            f"  b[{i}] = malloc({n * m.dtype.itemsize});\n"
            + (
                f"  for (long i = 0; i < {n}; ++i) (({memory_type(m.dtype)}*)b[{i}])[i] = i % 4;\n"
                if i < len(region.inputs) or updates[i]
                else ""
            )
            for i, (m, n) in enumerate(zip(memrefs, counts))
        )
        frees = "".join(f"  free(b[{i}]);\n" for i in range(len(memrefs)))
        numbers = ", ".join(map(str, values)) or "0"
        calls.append(
            f"{{ void* b[{len(memrefs)}]; int64_t s[] = {{{numbers}}};\n{fills}"
            f"  if ({kernel.face.symbol}(b, s, 0) > 1) return 1;\n{frees}}}\n"
        )
    return f"{text_of(kernel)}\n{POOL}\nint main(void) {{\n{''.join(calls)}return 0;\n}}\n"


SANITIZED = ["-std=gnu17", "-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *FLAGS["avx2"]]
"""Flags of the sanitizer, without optimisation: every access of the text is checked, and a kernel of attention compiles in a tenth of the time."""


def _sanitized(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    source = folder / "t.c"
    source.write_text(text)
    command = [*compiler(), *SANITIZED, f"-I{RUNTIME}", str(source), "-o", str(folder / "t"), "-lm"]
    return subprocess.run(command, capture_output=True, text=True)


@functools.cache
def has_sanitizers() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _sanitized("int main(void){return 0;}", Path(folder)).returncode == 0


def run_sanitized(text: str) -> subprocess.CompletedProcess[str] | None:
    """Compile and run under the sanitizers; None when the compiler has none."""
    if not has_sanitizers():
        return None
    with tempfile.TemporaryDirectory() as folder:
        done = _sanitized(text, Path(folder))
        assert done.returncode == 0, done.stderr[:3000]
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        return subprocess.run([str(Path(folder) / "t")], capture_output=True, text=True, env=environment, timeout=120)
