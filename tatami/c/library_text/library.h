/* What the printed description of a model (pages/library.c) and the code that runs it (library.c, arena.c) agree on. */
#ifndef TATAMI_LIBRARY_H
#define TATAMI_LIBRARY_H
#include <stddef.h>
#include <stdint.h>
#include "model.h"
#include "tatami.h"

enum { TATAMI_MOST_DEPTH = 10, TATAMI_LINE = 64 }; /* the depth is replaced by the setting of the compiler */

/* A call of programs in a program: branches, a loop or one callee. `sizes` gives the symbols of callee `which`, for ours. */
typedef struct {
    void (*sizes)(const int64_t* s, int32_t which, int64_t* to);
    int32_t callees, callee[2];
    int32_t carried;                  /* carried values of a loop; -1 if it is no loop */
    int32_t wave;
} tatami_call_site;

/* Memory of a program (execution/frames.py). Slots: one per own buffer, a header per call, then the slots of callees. */
typedef struct {
    void (*bytes)(const int64_t* s, int64_t* to); /* of each place, then of the carried values of each loop */
    const int32_t (*waves)[2];        /* of each place: the first and the last wave in which it is used */
    const int32_t* place;             /* own buffer -> place: buffers that take each other's memory have one place */
    const tatami_call_site* calls;
    int32_t symbols, own, places, call_count, values; /* values: numbers that `bytes` gives */
} tatami_program;

/* A constant: bytes at `offset` of the file, or bytes that `setup` makes (offset -1). */
typedef struct { int64_t offset, bytes; } tatami_constant;

/* An output of `setup`: its bytes, and the constant that it is; -1: one that nothing reads. */
typedef struct { int64_t bytes; int32_t constant; } tatami_made;

/* A bit that cpuid gives: register 1 is ebx, 2 ecx, 3 edx. `state`: bits of XCR0, registers that the system keeps. */
typedef struct { const char* name; uint32_t leaf, subleaf, reg, bit, state; } tatami_cpu_bit;

typedef struct {
    const tatami_model_port *inputs, *outputs;
    int32_t input_count, output_count, output_axes, symbols, constant_count, made_count, programs_count, step_count;
    int32_t setup;                    /* number of the program; -1: there is none */
    int32_t main;
    int64_t main_slots, setup_slots;
    const int64_t* setup_sizes;
    const tatami_program* programs;
    const tatami_constant* constants;
    const tatami_made* made;
    const char* const* steps;         /* instruction -> what it computes */
    const char* const* equations;     /* of sizes, which compiled code checks */
    const tatami_cpu_bit* cpu;
    int32_t cpu_count;
    int64_t file_bytes;               /* of constants.bin without its header; 0: there is no such file */
    uint8_t digest[32];               /* SHA-256 of these bytes */
    const unsigned char* linked;      /* these bytes if they are in the library, else null */
    tatami_model_status (*bind)(const int64_t* const* x, int64_t* s);
    void (*results)(const int64_t* s, int64_t* to);
    int64_t (*set_up)(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
} tatami_description;

extern const tatami_description tatami_described;

int64_t tatami_entry(void* const* buffers, const int64_t* sizes, const int64_t* offsets, void* arena, tatami_pool* pool);

/* Slots of a program for its sizes s, threads included, at `o`; returns the bytes of its arena, -1 if memory is out. */
int64_t tatami_plan(int32_t program, const int64_t* s, int64_t* o);

/* For `bind`: keep a message, and return BAD_SHAPE. */
tatami_model_status tatami_wrong_size(int32_t input, int32_t axis, int64_t size, int64_t wanted);
tatami_model_status tatami_no_size(int32_t input, int32_t axis, int64_t size, const char* wanted);
tatami_model_status tatami_broken(const char* equation, int64_t left, int64_t right);

/* Arithmetic of sizes that a caller decides: *over is set where a number does not fit, or is divided by 0. */
static inline int64_t plus(int64_t a, int64_t b, int* over) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) *over = 1, r = 0;
    return r;
}
static inline int64_t times(int64_t a, int64_t b, int* over) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) *over = 1, r = 0;
    return r;
}
static inline int64_t quotient(int64_t a, int64_t b, int* over) {
    if (b <= 0) return *over = 1, 0;
    return a / b - (a % b < 0);
}

/* Arithmetic of sizes that were checked. */
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The size x of factor * x == value; 0 if there is none. */
static inline int tatami_solved(int64_t value, int64_t factor, int64_t* x) {
    if (factor == 0 || value % factor != 0 || value / factor < 0) return 0;
    *x = value / factor;
    return 1;
}
#endif
