/* Whether memory is as it was: a digest of 64 bits for each block.

   Every word of 128 bits enters an accumulator by a round of AES, or every word of 32 bits by xor, a product with an odd
   number and a shift where the machine has no such rounds of 512 bits. Each step can be undone, so one word that changed
   always changes its accumulator; neither is linear, so that signs that change in many words do not cancel. A block is read
   as ROWS streams side by side, in pages of their own: memory answers to several at once. Rounds of AES take no longer than
   reading does, from any cache. */
#include <string.h>
#include "tatami.h"

#define TATAMI_EXPORT __attribute__((visibility("default")))
enum { LANES = 16, ROWS = 4, LINE = LANES * 4 };
typedef uint32_t lanes_t __attribute__((vector_size(LINE)));
typedef lanes_t lanes_anywhere_t __attribute__((aligned(1), may_alias));

static uint64_t folded(const lanes_t acc[ROWS]) {
    uint64_t out = 0;
    for (int r = 0; r < ROWS; ++r)
        for (int i = 0; i < LANES; i += 2) {
            const uint64_t word = acc[r][i] | (uint64_t)acc[r][i + 1] << 32;
            out = (out ^ word) * 0x9E3779B97F4A7C15u;
            out ^= out >> 29;
        }
    return out;
}

static inline lanes_t by_product(lanes_t acc, lanes_t x) {
    acc = (acc ^ x) * 0x85EBCA6Bu;
    return acc ^ acc >> 15;
}

#define DIGEST(STEP)                                                                                          \
    lanes_t acc[ROWS] = {{1}, {2}, {3}, {4}};                                                                  \
    const int64_t each = bytes / (ROWS * LINE) * LINE;                                                         \
    for (int64_t k = 0; k < each; k += LINE)                                                                   \
        for (int r = 0; r < ROWS; ++r) acc[r] = STEP(acc[r], *(const lanes_anywhere_t*)(at + r * each + k));   \
    char rest[ROWS * LINE] = {0};                                                                              \
    memcpy(rest, at + ROWS * each, (size_t)(bytes - ROWS * each));                                             \
    for (int r = 0; r < ROWS; ++r) acc[r] = STEP(acc[r], *(const lanes_anywhere_t*)(rest + r * LINE));         \
    return folded(acc);

static uint64_t digest_by_products(const char* at, int64_t bytes) { DIGEST(by_product) }

#if defined(__x86_64__)
#define WITH_AES __attribute__((target("avx512f,vaes")))
WITH_AES static inline lanes_t by_round(lanes_t acc, lanes_t x) {
    __asm__("vaesenc %2, %1, %0" : "=v"(acc) : "v"(acc), "v"(x));
    return acc;
}
WITH_AES static uint64_t digest_by_rounds(const char* at, int64_t bytes) { DIGEST(by_round) }
static int has_rounds(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vaes"); }
#else
static uint64_t digest_by_rounds(const char* at, int64_t bytes) { return digest_by_products(at, bytes); }
static int has_rounds(void) { return 0; }
#endif

typedef struct {
    void* const* at;
    const int64_t* bytes;
    uint64_t* digests;
    int write;
    int rounds;
} blocks_t;

static int some(void* context, int64_t begin, int64_t end) {
    const blocks_t* blocks = context;
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t now = (blocks->rounds ? digest_by_rounds : digest_by_products)(blocks->at[i], blocks->bytes[i]);
        if (blocks->write) blocks->digests[i] = now;
        else if (blocks->digests[i] != now) return 1;
    }
    return 0;
}

/* The digests of `count` blocks: written, or compared with what they were; 1 where one differs. `plain`: by products, also
   where the machine has rounds of AES. */
TATAMI_EXPORT int tatami_digest(
    tatami_pool* pool, int64_t count, void* const* at, const int64_t* bytes, uint64_t* digests, int64_t write, int64_t plain) {
    blocks_t blocks = {at, bytes, digests, (int)write, !plain && has_rounds()};
    return tatami_parallel_for(pool, count, 1, some, &blocks);
}
