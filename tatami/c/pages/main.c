/* main.c: runs one compiled program by itself (c/print_main.py).
   @SETUP      True if the module has a `setup`, which makes constants; its statements: main_setup.c
   @NAMES      names of the outputs, to print
   @TABLES     sizes and slots of its programs, and what the reference says about each output
   @THREADS    threads
   @ALIGNMENT  bytes that memory is aligned to
   @BUFFERS    boundary buffers and constants
   @MEMORY     memory for boundary buffers
   @INPUTS     inputs filled
   @CONSTANTS  constants read from constants.bin, or memory for those that setup makes
   @ARENA      bytes of the arena
   @CHECKS     a comparison for each output
*/
/* Runs the program of the other files on Philox inputs and compares with the reference. Build: cc -O2 *.c -lm -lpthread */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tatami.h"

tatami_pool* tatami_pool_create(int threads, int spin, int flush_denormals);
int64_t tatami_entry(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
@if SETUP
int64_t tatami_setup(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
@end

enum { BOOL, I8, U8, I16, U16, I32, U32, I64, U64, FP16, BF16, FP32, FP64 };

static void* memory(int64_t bytes) {
    void* p = aligned_alloc(@ALIGNMENT, (size_t)(bytes + @ALIGNMENT - 1) / @ALIGNMENT * @ALIGNMENT + @ALIGNMENT);
    if (!p) { fprintf(stderr, "no memory for %lld bytes\n", (long long)bytes); exit(2); }
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

@NAMES

static int check(int k, const void* p, int dtype, int64_t count, const int64_t* at, const double* want, int samples,
                 double total, double magnitude, double relative, double absolute) {
    double sum = 0, size = 0, worst = 0;
    int bad = 0;
    for (int64_t i = 0; i < count; i++) { double x = element(p, dtype, i); sum += x; size += fabs(x); }
    for (int i = 0; i < samples; i++) {
        double got = element(p, dtype, at[i]), error = fabs(got - want[i]);
        if (error > worst) worst = error;
        if (differs(got, want[i], relative * fabs(want[i]) + absolute)) {
            if (!bad++) printf("%s element %lld: %.9g, expected %.9g\n", output_names[k], (long long)at[i], got, want[i]);
        }
    }
    double limit = relative * fabs(magnitude) + absolute * (double)(count > 0 ? count : 1);
    if (differs(sum, total, limit) || differs(size, magnitude, limit)) {
        bad++;
        printf("%s: sum %.9g, expected %.9g; magnitudes %.9g, expected %.9g\n", output_names[k], sum, total, size, magnitude);
    }
    printf("%s: largest error %.3g in %d of %lld elements, sum %.9g: %s\n", output_names[k], worst, samples, (long long)count, sum,
           bad ? "WRONG" : "ok");
    return bad;
}

static inline FILE* open_constants(const char* folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/constants.bin", folder);
    FILE* file = fopen(path, "rb");
    if (!file) { fprintf(stderr, "cannot read %s; give its folder as the argument\n", path); exit(2); }
    return file;
}

static inline void read_constant(FILE* file, void* to, int64_t bytes) {
    if (fread(to, 1, (size_t)bytes, file) != (size_t)bytes) { fprintf(stderr, "constants.bin is too short\n"); exit(2); }
}

@TABLES
int main(int argc, char** argv) {
    const char* folder = argc > 1 ? argv[1] : ".";
    int bad = 0;
    tatami_pool* pool = tatami_pool_create(@THREADS, 2000, 0);
    void* b[@BUFFERS];
    @MEMORY
    @INPUTS
    @CONSTANTS
    @SETUP
    void* arena = memory(@ARENA);
    int64_t fault = tatami_entry(b, main_sizes, main_slots, arena, pool);
    if (fault) { fprintf(stderr, "fault %d in instruction %d\n", (int)(fault & 255), (int)(fault >> 8)); return 2; }
    @CHECKS
    double best = 1e30;
    for (int i = 0; i < 10; i++) {
        double started = seconds();
        tatami_entry(b, main_sizes, main_slots, arena, pool);
        double taken = seconds() - started;
        if (taken < best) best = taken;
    }
    printf("best of 10 runs: %.3f ms\n", best * 1e3);
    printf(bad ? "FAILED\n" : "ok\n");
    return bad ? 1 : 0;
}
