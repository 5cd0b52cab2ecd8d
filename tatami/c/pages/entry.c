/* The entry file: the programs of a module as functions that call its kernels, and what the runtime calls (c/print_entry.py).
   @TIMED       True if the seconds of each instruction add up in tatami_times
   @COUNT       instructions
   @KERNELS     prototypes of the kernels
   @BESIDE      True if kernels of one wave run at the same time
   @EQUATIONS   True if called programs check equations of their sizes; a fault's caller reads both sides of the last one
   @PROTOTYPES  prototypes of the functions of programs, since they call each other
   @PROGRAMS    these functions: entry_function.c, entry_parts.c, entry_beside.c
   @EXPORTS     what the runtime calls
   @TURNS       True if a loop runs from Python and its body does not (runtime/cpu/turns.py)
   @FOLLOWING   for each body whose sizes change from turn to turn, a function that changes them: entry_follow.c
*/
#include <string.h>
#include "tatami.h"

#define EXPORT __attribute__((visibility("default")))
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline void copy(void* to, const void* from, int64_t bytes) { if (bytes > 0 && to != from) memmove(to, from, (size_t)bytes); }

@if TIMED
#include <time.h>
EXPORT double tatami_times[@COUNT];
static inline double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

@end
@KERNELS
@if BESIDE
typedef struct {
    void* const* b; void* const* c; const int64_t* s; const int64_t* o; char* arena; tatami_pool* pool; int64_t* faults;
} beside_t;
@end
@if EQUATIONS
static inline int differ(int64_t lhs, int64_t rhs) {
    int64_t* const sides = tatami_sides();
    sides[0] = lhs; sides[1] = rhs;
    return lhs != rhs;
}
@end
@PROTOTYPES
@PROGRAMS

@EXPORTS
@if TURNS
typedef int64_t (*turn_t)(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
typedef int (*follow_t)(int64_t*, const int64_t*);
@FOLLOWING
/* Turns of a loop, from number n[0] to n[1] at most, while the condition n[2] holds and the sizes are at most those of `room`.
   b: buffers of the body, of which n[3] come before the n[4] of its state, the results begin at n[5], and n[6] are rows of
   n[7 + k] bytes. follow: changes the sizes to those of the next turn, 0 if they exceed the room; 0 if they stay. */
EXPORT int64_t tatami_turns(turn_t body, void** b, void** others, int64_t* n, int64_t* sizes, const int64_t* offsets,
                            void* arena, tatami_pool* pool, follow_t follow, const int64_t* room) {
    unsigned char* next = b[n[5]];
    void **state = b + n[3], **then = b + n[5] + 1, **rows = then + n[4];
    int fits = 1;
    while (n[0] < n[1] && n[2] && fits) {
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
        if (follow) fits = follow(sizes, room);
    }
    return 0;
}
@end
