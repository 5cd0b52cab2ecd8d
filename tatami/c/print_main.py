"""A `main.c` that runs one compiled program by itself (spec 5 §7.1): `cc *.c -lm -lpthread && ./a.out`.

Sizes are fixed in the text. Inputs are filled from Philox4x32-10 (input number k: key k, word i decides element i),
constants come from `constants.bin` beside the program. Each output is compared with numbers of the reference that were
computed when this file was written: the sum, the sum of magnitudes, and elements at some positions.
"""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import evaluate
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.execution.frames import Layouts
from tatami.execution.ir import BufferInfo, ExecutionPlan


class Expected(msgspec.Struct, frozen=True):
    """What the reference gave for one output. `relative` bounds |error| / |value|, `absolute` is added."""

    positions: tuple[int, ...]
    values: tuple[float, ...]
    total: float
    magnitude: float
    relative: float
    absolute: float


class Memory(msgspec.Struct, frozen=True):
    """Arena of a program at the fixed sizes: bytes, and the slots of `execution.frames`."""

    bytes: int
    slots: tuple[int, ...]


CODES = {
    DType.bool: "BOOL",
    DType.i8: "I8",
    DType.u8: "U8",
    DType.i16: "I16",
    DType.u16: "U16",
    DType.i32: "I32",
    DType.u32: "U32",
    DType.i64: "I64",
    DType.u64: "U64",
    DType.fp16: "FP16",
    DType.bf16: "BF16",
    DType.fp32: "FP32",
    DType.fp64: "FP64",
    **{d: "U8" for d in DType if d.is_small},
}


def print_main(
    execution: Module[ExecutionPlan],
    sizes: dict[str, dict[str, int]],
    memory: dict[str, Memory],
    expected: tuple[Expected, ...],
    threads: int,
) -> str:
    """The text. `sizes` and `memory` by program (`main`, and `setup` when there is one); `expected` by output."""
    layouts = Layouts(execution)
    if layouts.hosted:
        raise fail(
            "InvalidExecution",
            "main.c",
            "the program has steps that run in Python, which C alone cannot do",
            "run it with `tatami run`, or compile a model whose sizes do not depend on data",
        )
    return _Main(layouts, sizes, memory, expected, threads).text()


class _Main:
    def __init__(
        self,
        layouts: Layouts,
        sizes: dict[str, dict[str, int]],
        memory: dict[str, Memory],
        expected: tuple[Expected, ...],
        threads: int,
    ) -> None:
        self.layouts = layouts
        self.module = layouts.module
        self.sizes = sizes
        self.memory = memory
        self.expected = expected
        self.threads = threads

    def text(self) -> str:
        setup = "setup" in self.module.programs
        parts = [
            _HEAD,
            "int64_t tatami_entry(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);",
            *(["int64_t tatami_setup(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);"] if setup else []),
            _SUPPORT,
            *self.tables(),
            *self.checks(),
            self.body(setup),
        ]
        return "\n".join(parts)

    def count(self, program: str, b: BufferInfo) -> int:
        return int(evaluate(b.elements, {**self.sizes[program], THREADS: self.threads}))

    def tables(self) -> list[str]:
        out: list[str] = []
        for program in ("main", "setup"):
            if program in self.module.programs:
                values = [self.sizes[program].get(s, 0) for s in self.layouts.symbols(program)]
                out.append(_array(f"{program}_sizes", [*values, self.threads]))
                out.append(_array(f"{program}_slots", list(self.memory[program].slots)))
        return out

    def checks(self) -> list[str]:
        out: list[str] = []
        for k, e in enumerate(self.expected):
            out.append(_array(f"at_{k}", list(e.positions)))
            out.append(f"static const double want_{k}[] = {{{', '.join(map(_double, e.values)) or '0'}}};")
        return out

    def body(self, setup: bool) -> str:
        plan = self.module.main
        info = {b.id: b for b in plan.buffers}
        boundary = self.layouts.boundary("main")
        constants = self.layouts.constants
        lines = ["int main(int argc, char** argv) {", '    const char* folder = argc > 1 ? argv[1] : ".";', "    int bad = 0;"]
        lines.append(f"    tatami_pool* pool = tatami_pool_create({self.threads}, 2000, 0);")
        lines.append(f"    void* b[{max(1, len(boundary) + len(constants))}];")
        for k, b in enumerate(boundary):
            lines.append(f"    b[{k}] = memory({self.count('main', b) * b.dtype.itemsize});")
        inputs = [b for b in boundary if b.kind == "input"]
        for k, b in enumerate(inputs):
            lines.append(f"    fill(b[{k}], {CODES[b.dtype]}, {self.count('main', b)}, {k});")
        lines += self.constants(len(boundary))
        if setup:
            lines += self.setup(len(boundary))
        lines += [
            f"    void* arena = memory({self.memory['main'].bytes});",
            "    int64_t fault = tatami_entry(b, main_sizes, main_slots, arena, pool);",
            '    if (fault) { fprintf(stderr, "fault %d in instruction %d\\n", (int)(fault & 255), (int)(fault >> 8)); return 2; }',
        ]
        place = {b.id: k for k, b in enumerate(boundary)}
        for k, (id, e) in enumerate(zip(plan.output_buffers, self.expected, strict=True)):
            b = info[id]
            lines.append(
                f"    bad += check({k}, b[{place[id]}], {CODES[b.dtype]}, {self.count('main', b)}, at_{k}, want_{k}, "
                f"{len(e.positions)}, {_double(e.total)}, {_double(e.magnitude)}, {_double(e.relative)}, {_double(e.absolute)});"
            )
        lines += [
            "    double best = 1e30;",
            "    for (int i = 0; i < 10; i++) {",
            "        double started = seconds();",
            "        tatami_entry(b, main_sizes, main_slots, arena, pool);",
            "        double taken = seconds() - started;",
            "        if (taken < best) best = taken;",
            "    }",
            '    printf("best of 10 runs: %.3f ms\\n", best * 1e3);',
            '    printf(bad ? "FAILED\\n" : "ok\\n");',
            "    return bad ? 1 : 0;",
            "}",
            "",
        ]
        return "\n".join(lines)

    def constants(self, start: int) -> list[str]:
        """Read the module's constants; room for those that `setup` makes."""
        names = self.layouts.constants
        known = [n for n in names if n in self.module.constants]
        lines: list[str] = []
        if known:
            lines.append("    FILE* file = open_constants(folder);")
        else:
            lines.append("    (void)folder;")
        made = self.setup_outputs()
        for k, name in enumerate(names):
            if name in self.module.constants:
                size = self.module.constants[name].array.nbytes
                lines.append(f"    b[{start + k}] = memory({size}); read_constant(file, b[{start + k}], {size});")
            else:
                lines.append(f"    b[{start + k}] = memory({made[name]});")
        if known:
            lines.append("    fclose(file);")
        return lines

    def setup_outputs(self) -> dict[str, int]:
        plan = self.module.programs.get("setup")
        if plan is None:
            return {}
        info = {b.id: b for b in plan.buffers}
        return {
            port.tensor: self.count("setup", info[id]) * port.dtype.itemsize
            for id, port in zip(plan.output_buffers, plan.signature.outputs)
        }

    def setup(self, start: int) -> list[str]:
        plan = self.module.programs["setup"]
        boundary = self.layouts.boundary("setup")
        names = self.layouts.constants
        info = {b.id: b for b in plan.buffers}
        port_of = {id: port.tensor for id, port in zip(plan.output_buffers, plan.signature.outputs)}
        held = dict(zip(self.layouts.held, self.layouts.held_positions))
        port_of |= {id: port.tensor for id, port in zip(plan.input_buffers, plan.signature.inputs) if port.tensor in held}
        place = {**{name: start + k for k, name in enumerate(names)}, **held}
        lines = ["    {", f"        void* s[{max(1, len(boundary) + len(names))}];"]
        for k, b in enumerate(boundary):
            name = port_of.get(b.id, "")
            source = f"b[{place[name]}]" if name in place else f"memory({self.count('setup', info[b.id]) * b.dtype.itemsize})"
            lines.append(f"        s[{k}] = {source};")
        for k in range(len(names)):
            lines.append(f"        s[{len(boundary) + k}] = b[{start + k}];")
        lines += [
            f"        void* arena = memory({self.memory['setup'].bytes});",
            "        int64_t fault = tatami_setup(s, setup_sizes, setup_slots, arena, pool);",
            '        if (fault) { fprintf(stderr, "fault %d in setup\\n", (int)(fault & 255)); return 2; }',
            "        free(arena);",
            "    }",
        ]
        return lines


def constant_names(execution: Module[ExecutionPlan]) -> tuple[str, ...]:
    """The constants in the order in which `constants.bin` holds them, one after the other."""
    return tuple(n for n in Layouts(execution).constants if n in execution.constants)


def _array(name: str, values: list[int]) -> str:
    lines = [", ".join(f"INT64_C({v})" for v in values[i : i + 8]) for i in range(0, len(values), 8)]
    return f"static const int64_t {name}[] = {{{(',' + chr(10) + '    ').join(lines) or '0'}}};"


def _double(value: float) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(float(value))


_HEAD = """\
/* Runs the program of the other files on Philox inputs and compares with the reference. Build: cc -O2 *.c -lm -lpthread */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tatami.h"

tatami_pool* tatami_pool_create(int threads, int spin, int flush_denormals);"""

_SUPPORT = """
enum { BOOL, I8, U8, I16, U16, I32, U32, I64, U64, FP16, BF16, FP32, FP64 };

static void* memory(int64_t bytes) {
    void* p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64 + 64);
    if (!p) { fprintf(stderr, "no memory for %lld bytes\\n", (long long)bytes); exit(2); }
    memset(p, 0xff, (size_t)bytes);
    return p;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Philox4x32-10: the four words of block `n` under `key`. */
static void philox(uint64_t n, uint64_t key, uint32_t c[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    c[0] = (uint32_t)n, c[1] = (uint32_t)(n >> 32), c[2] = 0, c[3] = 0;
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t a = (uint32_t)(q >> 32) ^ c[1] ^ k0, b = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[0] = a, c[1] = (uint32_t)q, c[2] = b, c[3] = (uint32_t)p;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

/* A float as the bits of fp16 (10, 15) or bf16 (7, 127); exact for the values that `fill` makes. */
static uint16_t narrow(float x, int mantissa, int bias) {
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t sign = u >> 31 << 15, e = u >> 23 & 255, m = u & 0x7fffff;
    return (uint16_t)(e == 0 ? sign : sign | (e - 127 + (uint32_t)bias) << mantissa | m >> (23 - mantissa));
}

static double widen(uint16_t h, int mantissa, int bias) {
    int sign = h >> 15, top = (1 << (15 - mantissa)) - 1, e = h >> mantissa & top, m = h & ((1 << mantissa) - 1);
    double x = e == top ? (m ? NAN : INFINITY) : ldexp(e ? m + (1 << mantissa) : m, (e ? e : 1) - bias - mantissa);
    return sign ? -x : x;
}

/* Floats are multiples of 1/64 in [-1, 1), integers and bools 0 or 1: exact in every dtype. */
static void fill(void* p, int dtype, int64_t count, uint64_t key) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t c[4];
        philox((uint64_t)i / 4, key, c);
        uint32_t w = c[i % 4], bit = w & 1;
        float x = (float)((int)(w >> 25) - 64) / 64;
        switch (dtype) {
        case BOOL: case I8: case U8: ((uint8_t*)p)[i] = (uint8_t)bit; break;
        case I16: case U16: ((uint16_t*)p)[i] = (uint16_t)bit; break;
        case I32: case U32: ((uint32_t*)p)[i] = bit; break;
        case I64: case U64: ((uint64_t*)p)[i] = bit; break;
        case FP16: ((uint16_t*)p)[i] = narrow(x, 10, 15); break;
        case BF16: ((uint16_t*)p)[i] = narrow(x, 7, 127); break;
        case FP32: ((float*)p)[i] = x; break;
        case FP64: ((double*)p)[i] = x; break;
        }
    }
}

static double element(const void* p, int dtype, int64_t i) {
    switch (dtype) {
    case BOOL: case U8: return ((const uint8_t*)p)[i];
    case I8: return ((const int8_t*)p)[i];
    case I16: return ((const int16_t*)p)[i];
    case U16: return ((const uint16_t*)p)[i];
    case I32: return ((const int32_t*)p)[i];
    case U32: return ((const uint32_t*)p)[i];
    case I64: return (double)((const int64_t*)p)[i];
    case U64: return (double)((const uint64_t*)p)[i];
    case FP16: return widen(((const uint16_t*)p)[i], 10, 15);
    case BF16: return widen(((const uint16_t*)p)[i], 7, 127);
    case FP32: return ((const float*)p)[i];
    default: return ((const double*)p)[i];
    }
}

static int differs(double got, double want, double limit) {
    if (isnan(got) || isnan(want)) return isnan(got) != isnan(want);
    return got == want ? 0 : !(fabs(got - want) <= limit);
}

static int check(int k, const void* p, int dtype, int64_t count, const int64_t* at, const double* want, int samples,
                 double total, double magnitude, double relative, double absolute) {
    double sum = 0, size = 0, worst = 0;
    int bad = 0;
    for (int64_t i = 0; i < count; i++) { double x = element(p, dtype, i); sum += x; size += fabs(x); }
    for (int i = 0; i < samples; i++) {
        double got = element(p, dtype, at[i]), error = fabs(got - want[i]);
        if (error > worst) worst = error;
        if (differs(got, want[i], relative * fabs(want[i]) + absolute)) {
            if (!bad++) printf("output %d element %lld: %.9g, expected %.9g\\n", k, (long long)at[i], got, want[i]);
        }
    }
    double limit = relative * fabs(magnitude) + absolute * (double)(count > 0 ? count : 1);
    if (differs(sum, total, limit) || differs(size, magnitude, limit)) {
        bad++;
        printf("output %d: sum %.9g, expected %.9g; magnitudes %.9g, expected %.9g\\n", k, sum, total, size, magnitude);
    }
    printf("output %d: largest error %.3g in %d of %lld elements, sum %.9g: %s\\n", k, worst, samples, (long long)count, sum,
           bad ? "WRONG" : "ok");
    return bad;
}

static inline FILE* open_constants(const char* folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/constants.bin", folder);
    FILE* file = fopen(path, "rb");
    if (!file) { fprintf(stderr, "cannot read %s; give its folder as the argument\\n", path); exit(2); }
    return file;
}

static inline void read_constant(FILE* file, void* to, int64_t bytes) {
    if (fread(to, 1, (size_t)bytes, file) != (size_t)bytes) { fprintf(stderr, "constants.bin is too short\\n"); exit(2); }
}
"""
