/* What generated kernels and the runtime agree on. gnu17, no other header of ours. */
#ifndef TATAMI_H
#define TATAMI_H
#include <stddef.h>
#include <stdint.h>

/* Fault codes, the int result of kernels, chunks and routines. 0 is success; of several faults the largest counts. */
enum { TATAMI_OK = 0, TATAMI_INDEX_OUT_OF_RANGE = 1, TATAMI_OUT_OF_MEMORY = 2, TATAMI_ARGUMENT = 3 };

typedef struct tatami_pool tatami_pool;

/* Work on begin <= i < end. */
typedef int (*tatami_chunk)(void* context, int64_t begin, int64_t end);

/* Run `chunk` over 0 <= i < n, split over the threads of `pool` (NULL: this thread alone) in contiguous ranges of at
   least `grain`; the whole range at once when n <= grain. Returns the largest fault code. Never nested. */
int tatami_parallel_for(tatami_pool* pool, int64_t n, int64_t grain, tatami_chunk chunk, void* context);

/* Threads that share work, at least 1. */
int tatami_threads(const tatami_pool* pool);

/* Scratch of the calling thread: a stack of 64-byte aligned blocks. tatami_mark gives the current height;
   tatami_scratch pushes `bytes` (NULL when memory is out; bytes 0 is allowed); tatami_release goes back to a mark. */
size_t tatami_mark(void);
void* tatami_scratch(int64_t bytes);
void tatami_release(size_t mark);

/* Two numbers of the calling thread: the sides of the equation of sizes that it checked last. */
int64_t* tatami_sides(void);

/* The functions above as a program's library borrows them (borrowed.c) of the one that has pool.c: threads that end free
   their scratch by its code, and workers wait in it, so it stays in the process while programs come and go. */
typedef struct {
    int (*parallel_for)(tatami_pool*, int64_t, int64_t, tatami_chunk, void*);
    int (*threads)(const tatami_pool*);
    size_t (*mark)(void);
    void* (*scratch)(int64_t);
    void (*release)(size_t);
    int64_t* (*sides)(void);
} tatami_lent;

/* For the runtime: a pool whose idle workers spin `spin` pauses before they sleep, NULL when memory is out. */
tatami_pool* tatami_pool_create(int threads, int spin, int flush_denormals);
void tatami_pool_destroy(tatami_pool* pool);
/* Make so many bytes of scratch present, for this thread and for each of the others. */
void tatami_reserve(tatami_pool* pool, int64_t caller, int64_t helper);
/* Set or clear flush-to-zero and denormals-are-zero in this thread; returns whether it was set before. */
int tatami_flush_denormals(int flush);

/* A kernel. */
typedef int (*tatami_kernel)(void* const* buffers, const int64_t* sizes, tatami_pool* pool);

#endif
