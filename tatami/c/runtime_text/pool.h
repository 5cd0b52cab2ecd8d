/* The thread pool's face. Kernels see only this: work is split into index ranges, and answers never depend on how. */
#ifndef TATAMI_POOL_H
#define TATAMI_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Work on [begin, end) as thread number `thread` (0 .. threads-1). One thread may get several ranges. */
typedef void (*tatami_task)(void *context, int64_t begin, int64_t end, int thread);

typedef struct tatami_pool tatami_pool;
struct tatami_pool {
    int threads;
    /* Run `task` over [0, count), cut into pieces; returns when all are done. Nested or concurrent use runs serially. */
    void (*parallel_for)(tatami_pool *pool, int64_t count, tatami_task task, void *context);
    /* 64-byte aligned memory of the calling thread, kept for later calls; NULL when there is none. slot: 0 .. 3. */
    void *(*scratch)(int slot, int64_t bytes);
};

static inline void tatami_parallel_for(tatami_pool *pool, int64_t count, tatami_task task, void *context) {
    if (count <= 0) return;
    if (pool == NULL || pool->threads < 2 || count < 2) task(context, 0, count, 0);
    else pool->parallel_for(pool, count, task, context);
}

tatami_pool *tatami_pool_create(int threads, int spin, int flush_denormals);
void tatami_pool_destroy(tatami_pool *pool);
/* Set (or clear) flush-to-zero and denormals-are-zero in this thread; returns the mode that was set before. */
int tatami_flush_denormals(int flush);

#endif
