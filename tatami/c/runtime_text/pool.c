/* Own thread pool: a gate word that workers join while it is open, an atomic chunk counter, spinning before sleep.

   The caller opens the gate, takes chunks itself, closes the gate and waits only for the workers that joined: a worker
   that sleeps or is not scheduled never delays a region. After fork the child starts its own workers on first use. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

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
    tatami_pool face;
    _Alignas(64) _Atomic uint64_t gate; /* generation << 32 | open | workers inside */
    _Alignas(64) _Atomic int64_t next;  /* the next chunk to take */
    _Alignas(64) _Atomic int busy;      /* a region is running */
    _Atomic int sleepers;
    _Atomic int stop;
    _Atomic int epoch; /* forks seen when the workers were started */
    int64_t count, chunks;
    tatami_task task;
    void *context;
    int spin, flush, started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t *workers;
} pool_t;

typedef struct {
    pool_t *pool;
    int thread;
} seat_t;

static _Atomic int forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t scratch_key;
static __thread int inside; /* this thread is running a task */

#define SLOTS 4
typedef struct {
    void *data[SLOTS];
    int64_t bytes[SLOTS];
} scratch_t;
static __thread scratch_t *mine;

static void count_fork(void) { atomic_fetch_add(&forks, 1); }

static void free_scratch(void *pointer) {
    scratch_t *scratch = pointer;
    for (int i = 0; i < SLOTS; i++) free(scratch->data[i]);
    free(scratch);
}

static void set_up(void) {
    pthread_atfork(NULL, NULL, count_fork);
    pthread_key_create(&scratch_key, free_scratch);
}

static void *scratch(int slot, int64_t bytes) {
    if (slot < 0 || slot >= SLOTS || bytes < 0) return NULL;
    if (mine == NULL) {
        pthread_once(&once, set_up);
        mine = calloc(1, sizeof(scratch_t));
        if (mine == NULL) return NULL;
        pthread_setspecific(scratch_key, mine);
    }
    if (mine->data[slot] == NULL || mine->bytes[slot] < bytes) {
        free(mine->data[slot]);
        mine->data[slot] = NULL;
        mine->bytes[slot] = 0;
        void *data = NULL;
        if (posix_memalign(&data, 64, (size_t)(bytes > 0 ? (bytes + 63) / 64 * 64 : 64)) != 0) return NULL;
        mine->data[slot] = data;
        mine->bytes[slot] = bytes;
    }
    return mine->data[slot];
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

static void take_chunks(pool_t *pool, int thread) {
    int64_t count = pool->count, chunks = pool->chunks;
    inside++;
    for (;;) {
        int64_t c = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (c >= chunks) break;
        pool->task(pool->context, chunk_start(count, chunks, c), chunk_start(count, chunks, c + 1), thread);
    }
    inside--;
}

static int is_new(uint64_t gate, uint32_t seen) { return (gate & GATE_OPEN) != 0 && (uint32_t)(gate >> 32) != seen; }

static void *work(void *argument) {
    seat_t seat = *(seat_t *)argument;
    pool_t *pool = seat.pool;
    free(argument);
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
        take_chunks(pool, seat.thread);
        atomic_fetch_sub(&pool->gate, 1);
    }
    return NULL;
}

/* Start the workers; with fewer than asked for the pool still works. Workers take no signals. */
static void start(pool_t *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->started = 0;
    for (int i = 1; i < pool->face.threads; i++) {
        seat_t *seat = malloc(sizeof(seat_t));
        if (seat == NULL) break;
        seat->pool = pool;
        seat->thread = i;
        if (pthread_create(&pool->workers[i - 1], NULL, work, seat) != 0) {
            free(seat);
            break;
        }
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* In a forked child the workers are gone and the lock may be held by nobody: begin anew. */
static void start_again(pool_t *pool) {
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    atomic_store(&pool->sleepers, 0);
    atomic_store(&pool->gate, (uint64_t)(uint32_t)(atomic_load(&pool->gate) >> 32) << 32);
    start(pool);
    atomic_store(&pool->busy, 0);
}

static void parallel_for(tatami_pool *face, int64_t count, tatami_task task, void *context) {
    pool_t *pool = (pool_t *)face;
    int epoch = atomic_load(&pool->epoch), now = atomic_load(&forks);
    if (epoch != now && atomic_compare_exchange_strong(&pool->epoch, &epoch, now)) start_again(pool);
    int idle = 0;
    if (inside || !atomic_compare_exchange_strong(&pool->busy, &idle, 1)) {
        task(context, 0, count, 0);
        return;
    }
    int64_t chunks = (int64_t)pool->face.threads * CHUNKS_PER_THREAD;
    pool->count = count;
    pool->chunks = chunks < count ? chunks : count;
    pool->task = task;
    pool->context = context;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    uint32_t generation = (uint32_t)(atomic_load(&pool->gate) >> 32) + 1;
    if (generation == 0) generation = 1;
    atomic_store(&pool->gate, (uint64_t)generation << 32 | GATE_OPEN);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    take_chunks(pool, 0);
    atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    for (int i = 0; (atomic_load(&pool->gate) & GATE_JOINED) != 0; i++) {
        if (i < 20000) TATAMI_PAUSE();
        else sched_yield();
    }
    atomic_store(&pool->busy, 0);
}

TATAMI_EXPORT tatami_pool *tatami_pool_create(int threads, int spin, int flush_denormals) {
    pthread_once(&once, set_up);
    if (threads < 1) threads = 1;
    if (threads > 1024) threads = 1024;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, sizeof(pool_t)) != 0) return NULL;
    pool_t *pool = memory;
    *pool = (pool_t){.face = {.threads = threads, .parallel_for = parallel_for, .scratch = scratch}};
    pool->spin = spin;
    pool->flush = flush_denormals;
    pool->epoch = atomic_load(&forks);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc((size_t)threads, sizeof(pthread_t));
    if (pool->workers == NULL) {
        free(pool);
        return NULL;
    }
    start(pool);
    return &pool->face;
}

TATAMI_EXPORT void tatami_pool_destroy(tatami_pool *face) {
    pool_t *pool = (pool_t *)face;
    if (pool == NULL) return;
    if (atomic_load(&pool->epoch) == atomic_load(&forks)) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->stop, 1);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i], NULL);
        pthread_mutex_destroy(&pool->lock);
        pthread_cond_destroy(&pool->wake);
    }
    free(pool->workers);
    free(pool);
}
