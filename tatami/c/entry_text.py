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
static inline int differ(int64_t lhs, int64_t rhs) {
    int64_t* const sides = tatami_sides();
    sides[0] = lhs; sides[1] = rhs;
    return lhs != rhs;
}"""
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

TURNS = """typedef int64_t (*turn_t)(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
/* Turns of a loop, from number n[0] to n[1] at most, while the condition n[2] holds. b: buffers of the body, of which
   n[3] come before the n[4] of its state, the results begin at n[5], and n[6] are rows of n[7 + k] bytes. */
EXPORT int64_t tatami_turns(turn_t body, void** b, void** others, int64_t* n, const int64_t* sizes, const int64_t* offsets,
                            void* arena, tatami_pool* pool) {
    unsigned char* next = b[n[5]];
    void **state = b + n[3], **then = b + n[5] + 1, **rows = then + n[4];
    while (n[0] < n[1] && n[2]) {
        *(int64_t*)b[0] = n[0];
        if (n[3] > 1) *(unsigned char*)b[1] = (unsigned char)n[2];
        int64_t f = body(b, sizes, offsets, arena, pool);
        if (f) return f;
        n[2] = *next;
        ++n[0];
        for (int64_t j = 0; j < n[4]; ++j) {
            state[j] = then[j];
            then[j] = others[j];
            others[j] = state[j];
        }
        for (int64_t k = 0; k < n[6]; ++k) rows[k] = (char*)rows[k] + n[7 + k];
    }
    return 0;
}"""
"""The loop that runs from Python, whose body does not (runtime/turns.py)."""
