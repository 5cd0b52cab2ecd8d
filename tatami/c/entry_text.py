"""The fixed pieces of the entry file (`print_entry`)."""

HEAD = """\
#include <string.h>
#include "tatami.h"

#define EXPORT __attribute__((visibility("default")))
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline void copy(void* to, const void* from, int64_t bytes) { if (bytes > 0 && to != from) memmove(to, from, (size_t)bytes); }
"""

SIDES = """\
static _Thread_local int64_t sides[2];
EXPORT const int64_t* tatami_sides(void) { return sides; }
static inline int differ(int64_t lhs, int64_t rhs) { sides[0] = lhs; sides[1] = rhs; return lhs != rhs; }"""
"""The two sides of the equation that was checked last in this thread: a fault's caller reads them."""

BESIDE = """\
typedef struct {
    void* const* b; void* const* c; const int64_t* s; const int64_t* o; char* arena; tatami_pool* pool; int64_t* faults;
} beside_t;"""
"""What kernels of one wave share that run at the same time."""

CLOCK = """\
#include <time.h>
EXPORT double tatami_times[COUNT];
static inline double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }
"""

CALL = "EXPORT int64_t tatami_call(void* const* a) { return tatami_entry(a + 4, a[0], a[1], a[2], a[3]); }"
"""One pointer to pass instead of five: a caller through ctypes is in after half the time."""
