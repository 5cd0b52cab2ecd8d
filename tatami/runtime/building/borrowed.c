/* The functions of pool.c that kernels call, in a library without it: each calls that of the library that stays (tatami.h). */
#include "tatami.h"

static tatami_lent lent;

__attribute__((visibility("default"))) void tatami_borrow(const tatami_lent* from) { lent = *from; }

int tatami_parallel_for(tatami_pool* pool, int64_t n, int64_t grain, tatami_chunk chunk, void* context) {
    return lent.parallel_for(pool, n, grain, chunk, context);
}
int tatami_threads(const tatami_pool* pool) { return lent.threads(pool); }
size_t tatami_mark(void) { return lent.mark(); }
void* tatami_scratch(int64_t bytes) { return lent.scratch(bytes); }
void tatami_release(size_t mark) { lent.release(mark); }
int64_t* tatami_sides(void) { return lent.sides(); }
