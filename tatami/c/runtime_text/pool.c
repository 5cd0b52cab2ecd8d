/* Own thread pool: a gate word that workers join while it is open, an atomic chunk counter, spinning before sleep.

   The caller opens the gate, takes chunks itself, closes the gate and waits only for the workers that joined: a worker
   that sleeps or is not scheduled never delays a region. Threads that were seen on one processor while another is free of
   them are parted: a scheduler may leave two that wake each other together for long. After fork the child starts its own workers on first use. */
#define _GNU_SOURCE
#include "tatami.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define TATAMI_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TATAMI_PAUSE() __asm__ volatile("yield")
#else
#define TATAMI_PAUSE() ((void)0)
#endif

#define TATAMI_EXPORT __attribute__((visibility("default")))
#define GATE_OPEN ((uint64_t)1 << 16)
#define GATE_JOINED (GATE_OPEN - 1)
#define CHUNKS_PER_THREAD 4

typedef struct {
    tatami_pool *pool;
    pthread_t thread;
    _Atomic int processor; /* on which it last joined a region, -1: not known */
} worker_t;

struct tatami_pool {
    _Alignas(64) _Atomic uint64_t gate; /* generation << 32 | open | workers inside */
    _Alignas(64) _Atomic int64_t next;  /* the next chunk to take */
    _Alignas(64) _Atomic int busy;      /* a region is running */
    _Atomic int sleepers;
    _Atomic int stop;
    _Atomic int epoch;        /* forks seen when the workers were started, */
    _Atomic int fault;        /* the largest of this region */
    int64_t count, chunks;
    tatami_chunk chunk;
    void *context;
    int threads, spin, flush, started;
    int away; /* the processor that workers were kept from when they were last woken, -1: none */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    worker_t *workers;
};

static _Atomic int forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key;

/* Scratch of one thread: segments that grow; what is above the height is free. After a release to the bottom several
   segments become one, so that a steady program allocates nothing. */
#define SEGMENTS 48
typedef struct {
    char *data[SEGMENTS];
    size_t size[SEGMENTS], base[SEGMENTS]; /* base: the height at which a segment begins */
    int count, top;
    size_t height, wanted;
} scratch_t;
static __thread scratch_t *mine;

static void count_fork(void) { atomic_fetch_add(&forks, 1); }

static void free_scratch(void *pointer) {
    scratch_t *scratch = pointer;
    for (int i = 0; i < scratch->count; i++) free(scratch->data[i]);
    free(scratch);
}

static void set_up(void) {
    pthread_atfork(NULL, NULL, count_fork);
    pthread_key_create(&scratch_key, free_scratch);
}

TATAMI_EXPORT int64_t *tatami_sides(void) {
    static __thread int64_t sides[2];
    return sides;
}

size_t tatami_mark(void) { return mine == NULL ? 0 : mine->height; }

static scratch_t *own_scratch(void) {
    if (mine == NULL) {
        pthread_once(&once, set_up);
        mine = calloc(1, sizeof(scratch_t));
        if (mine != NULL) pthread_setspecific(scratch_key, mine);
    }
    return mine;
}

void *tatami_scratch(int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX - 64) return NULL;
    size_t size = ((size_t)bytes + 63) / 64 * 64;
    if (size == 0) size = 64;
    scratch_t *s = own_scratch();
    if (s == NULL) return NULL;
    if (s->count > 0 && s->height - s->base[s->top] + size > s->size[s->top]) {
        if (s->top + 1 < s->count && s->size[s->top + 1] < size) {
            while (s->count > s->top + 1) free(s->data[--s->count]);
        }
        if (s->top + 1 < s->count) {
            s->top++;
            s->base[s->top] = s->height;
        }
    }
    if (s->count == 0 || s->height - s->base[s->top] + size > s->size[s->top]) {
        if (s->count == SEGMENTS) return NULL;
        size_t room = s->wanted > size ? s->wanted : size;
        if (room < (1u << 16)) room = 1u << 16;
        void *data = NULL;
        if (posix_memalign(&data, 64, room) != 0) return NULL;
        s->top = s->count++;
        s->data[s->top] = data;
        s->size[s->top] = room;
        s->base[s->top] = s->height;
    }
    void *out = s->data[s->top] + (s->height - s->base[s->top]);
    s->height += size;
    return out;
}

void tatami_release(size_t mark) {
    scratch_t *s = mine;
    if (s == NULL) return;
    s->height = mark;
    while (s->top > 0 && mark <= s->base[s->top]) s->top--;
    if (mark == 0 && s->count > 1) {
        s->wanted = 0;
        for (int i = 0; i < s->count; i++) s->wanted += s->size[i];
        while (s->count > 0) free(s->data[--s->count]);
        s->top = 0;
    }
}

/* One segment of at least so many bytes, its pages present, where this thread's scratch is unused. */
static void reserve(int64_t bytes) {
    scratch_t *s = own_scratch();
    if (s == NULL || s->height > 0 || (s->count == 1 && s->size[0] >= (size_t)bytes)) return;
    while (s->count > 0) free(s->data[--s->count]);
    s->top = 0;
    void *data = tatami_scratch(bytes);
    if (data == NULL) return;
    memset(data, 0, (size_t)bytes);
    tatami_release(0);
}

TATAMI_EXPORT int tatami_flush_denormals(int flush) {
#if defined(__x86_64__)
    unsigned mode = __builtin_ia32_stmxcsr();
    int before = (mode & 0x8040u) == 0x8040u;
    if (before != flush) __builtin_ia32_ldmxcsr(flush ? mode | 0x8040u : mode & ~0x8040u);
    return before;
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    int before = (mode >> 24) & 1;
    uint64_t wanted = flush ? mode | ((uint64_t)1 << 24) : mode & ~((uint64_t)1 << 24);
    __asm__ volatile("msr fpcr, %0" : : "r"(wanted));
    return before;
#else
    (void)flush;
    return 0;
#endif
}

/* The chunk c of n items in k chunks starts at n*c/k; without overflow for any n. */
static int64_t chunk_start(int64_t n, int64_t k, int64_t c) {
    int64_t q = n / k, r = n % k;
    return q * c + (c < r ? c : r);
}

static void take_chunks(tatami_pool *pool) {
    int64_t count = pool->count, chunks = pool->chunks;
    for (;;) {
        int64_t c = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (c >= chunks) break;
        int fault = pool->chunk(pool->context, chunk_start(count, chunks, c), chunk_start(count, chunks, c + 1));
        int before = atomic_load_explicit(&pool->fault, memory_order_relaxed);
        while (fault > before && !atomic_compare_exchange_weak(&pool->fault, &before, fault)) {}
    }
}

#if defined(__linux__)
static int processor(void) { return sched_getcpu(); }

/* Processors that this thread may run on, on which neither it nor a worker was seen. A set takes and has no number outside
   it: -1 is none. */
static cpu_set_t unused(const tatami_pool *pool, int here) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_ZERO(&set);
    CPU_CLR(here, &set);
    for (int i = 0; i < pool->started; i++) CPU_CLR(atomic_load(&pool->workers[i].processor), &set);
    return set;
}

/* A worker that was last seen where the caller or another one is may run only where none is. */
static void part(tatami_pool *pool) {
    cpu_set_t used;
    int here = processor();
    CPU_ZERO(&used);
    CPU_SET(here, &used);
    for (int i = 0; i < pool->started; i++) {
        worker_t *w = &pool->workers[i];
        int at = atomic_load_explicit(&w->processor, memory_order_relaxed);
        if (CPU_ISSET(at, &used)) {
            cpu_set_t free = unused(pool, here);
            if (CPU_COUNT(&free) == 0 || pthread_setaffinity_np(w->thread, sizeof(free), &free) != 0) return;
            atomic_store(&w->processor, -1);
            pool->away = -1;
        }
        CPU_SET(at, &used);
    }
}

/* Workers that are about to be woken are put where the caller is not, if there is room for all. */
static void keep_away(tatami_pool *pool) {
    cpu_set_t set;
    int here = processor();
    if (here == pool->away || sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < pool->threads) return;
    CPU_CLR(here, &set);
    for (int i = 0; i < pool->started; i++) pthread_setaffinity_np(pool->workers[i].thread, sizeof(set), &set);
    pool->away = here;
}
#else
static int processor(void) { return -1; }
static void part(tatami_pool *pool) { (void)pool; }
static void keep_away(tatami_pool *pool) { (void)pool; }
#endif

static int is_new(uint64_t gate, uint32_t seen) { return (gate & GATE_OPEN) != 0 && (uint32_t)(gate >> 32) != seen; }

static void *work(void *argument) {
    worker_t *own = argument;
    tatami_pool *pool = own->pool;
    uint32_t seen = 0;
    if (pool->flush) tatami_flush_denormals(1);
    while (!atomic_load_explicit(&pool->stop, memory_order_acquire)) {
        uint64_t gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
        for (int i = 0; i < pool->spin && !is_new(gate, seen); i++) {
            TATAMI_PAUSE();
            gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
        }
        if (!is_new(gate, seen)) {
            pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!atomic_load(&pool->stop) && !is_new(atomic_load(&pool->gate), seen)) pthread_cond_wait(&pool->wake, &pool->lock);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->lock);
            continue;
        }
        if (!atomic_compare_exchange_strong(&pool->gate, &gate, gate + 1)) continue;
        seen = (uint32_t)(gate >> 32);
        int at = processor();
        if (atomic_load_explicit(&own->processor, memory_order_relaxed) != at) atomic_store(&own->processor, at);
        take_chunks(pool);
        atomic_fetch_sub(&pool->gate, 1);
    }
    return NULL;
}

/* Start the workers; with fewer than asked for the pool still works. Workers take no signals. */
static void start(tatami_pool *pool) {
    sigset_t all, before;
    pool->away = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pool->started = 0; pool->started < pool->threads - 1; pool->started++) {
        worker_t *w = &pool->workers[pool->started];
        w->pool = pool;
        atomic_store(&w->processor, -1);
        if (pthread_create(&w->thread, NULL, work, w) != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* In a forked child the workers are gone and the lock may be held by nobody: begin anew. */
static void start_again(tatami_pool *pool) {
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    atomic_store(&pool->sleepers, 0);
    atomic_store(&pool->gate, (uint64_t)(uint32_t)(atomic_load(&pool->gate) >> 32) << 32);
    start(pool);
    atomic_store(&pool->busy, 0);
}

int tatami_threads(const tatami_pool *pool) { return pool == NULL ? 1 : pool->threads; }

int tatami_parallel_for(tatami_pool *pool, int64_t n, int64_t grain, tatami_chunk chunk, void *context) {
    if (n <= 0) return TATAMI_OK;
    if (grain < 1) grain = 1;
    if (pool == NULL || pool->threads < 2 || n / grain < 2) return chunk(context, 0, n);
    int epoch = atomic_load(&pool->epoch), now = atomic_load(&forks);
    if (epoch != now && atomic_compare_exchange_strong(&pool->epoch, &epoch, now)) start_again(pool);
    int idle = 0;
    if (!atomic_compare_exchange_strong(&pool->busy, &idle, 1)) return chunk(context, 0, n);
    part(pool);
    int64_t chunks = (int64_t)pool->threads * CHUNKS_PER_THREAD;
    pool->count = n;
    pool->chunks = chunks < n / grain ? chunks : n / grain;
    pool->chunk = chunk;
    pool->context = context;
    atomic_store_explicit(&pool->fault, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    uint32_t generation = (uint32_t)(atomic_load(&pool->gate) >> 32) + 1;
    if (generation == 0) generation = 1;
    atomic_store(&pool->gate, (uint64_t)generation << 32 | GATE_OPEN);
    if (atomic_load(&pool->sleepers) > 0) {
        keep_away(pool);
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    take_chunks(pool);
    atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    for (int i = 0; (atomic_load(&pool->gate) & GATE_JOINED) != 0; i++) {
        if (i < 20000) TATAMI_PAUSE();
        else sched_yield();
    }
    int fault = atomic_load_explicit(&pool->fault, memory_order_relaxed);
    atomic_store(&pool->busy, 0);
    return fault;
}

typedef struct {
    const tatami_pool *pool;
    int64_t bytes;
    _Atomic int present;
} meeting_t;

/* Item k is one thread's: each waits for the others, so that none takes two. A pool that is busy has given all to this one. */
static int reserve_each(void *context, int64_t begin, int64_t end) {
    meeting_t *meeting = context;
    reserve(meeting->bytes);
    atomic_fetch_add(&meeting->present, 1);
    while (end - begin == 1 && atomic_load(&meeting->present) < meeting->pool->started + 1) sched_yield();
    return TATAMI_OK;
}

TATAMI_EXPORT void tatami_reserve(tatami_pool *pool, int64_t caller, int64_t helper) {
    if (caller > 0) reserve(caller);
    meeting_t meeting = {.pool = pool, .bytes = helper};
    if (helper > 0 && tatami_threads(pool) > 1) tatami_parallel_for(pool, pool->threads, 1, reserve_each, &meeting);
}

TATAMI_EXPORT const tatami_lent tatami_functions = {tatami_parallel_for, tatami_threads, tatami_mark, tatami_scratch, tatami_release, tatami_sides};

TATAMI_EXPORT tatami_pool *tatami_pool_create(int threads, int spin, int flush_denormals) {
    pthread_once(&once, set_up);
    if (threads < 1) threads = 1;
    if (threads > 1024) threads = 1024;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, sizeof(tatami_pool)) != 0) return NULL;
    tatami_pool *pool = memory;
    memset(pool, 0, sizeof(*pool));
    pool->threads = threads;
    pool->spin = spin;
    pool->flush = flush_denormals;
    atomic_store(&pool->epoch, atomic_load(&forks));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc((size_t)threads, sizeof(worker_t));
    if (pool->workers == NULL) {
        free(pool);
        return NULL;
    }
    start(pool);
    return pool;
}

TATAMI_EXPORT void tatami_pool_destroy(tatami_pool *pool) {
    if (pool == NULL) return;
    if (atomic_load(&pool->epoch) == atomic_load(&forks)) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->stop, 1);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
        pthread_mutex_destroy(&pool->lock);
        pthread_cond_destroy(&pool->wake);
    }
    free(pool->workers);
    free(pool);
}
