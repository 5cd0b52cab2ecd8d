/* Whether memory is as it was: a digest of 64 bits for each block.

   Every word of 32 bits enters an accumulator by xor, a product with an odd number and a shift, in lanes side by side, so
   that the digest is made as fast as memory is read. Each step can be undone, so one word that changed always changes its
   accumulator. The shift takes high bits to low ones: signs that change in many words do not cancel. */
#include <string.h>
#include "tatami.h"

#define TATAMI_EXPORT __attribute__((visibility("default")))
enum { LANES = 16, ROWS = 4, STEP = LANES * ROWS * 4 };
typedef uint32_t lanes_t __attribute__((vector_size(LANES * 4)));
typedef lanes_t lanes_anywhere_t __attribute__((aligned(1), may_alias));

static inline void take(lanes_t acc[ROWS], const char* at) {
    for (int r = 0; r < ROWS; ++r) {
        const lanes_t x = (acc[r] ^ *(const lanes_anywhere_t*)(at + r * LANES * 4)) * 0x85EBCA6Bu;
        acc[r] = x ^ x >> 15;
    }
}

static uint64_t digest(const char* at, int64_t bytes) {
    lanes_t acc[ROWS] = {{1}, {2}, {3}, {4}};
    int64_t k = 0;
    for (; k + STEP <= bytes; k += STEP) take(acc, at + k);
    char rest[STEP] = {0};
    memcpy(rest, at + k, (size_t)(bytes - k));
    take(acc, rest);
    uint64_t out = 0;
    for (int r = 0; r < ROWS; ++r)
        for (int i = 0; i < LANES; ++i) out = ((out ^ acc[r][i]) * 0x9E3779B97F4A7C15u) ^ out >> 29;
    return out;
}

typedef struct {
    void* const* at;
    const int64_t* bytes;
    uint64_t* digests;
    int write;
} blocks_t;

static int some(void* context, int64_t begin, int64_t end) {
    const blocks_t* blocks = context;
    for (int64_t i = begin; i < end; ++i) {
        const uint64_t now = digest(blocks->at[i], blocks->bytes[i]);
        if (blocks->write) blocks->digests[i] = now;
        else if (blocks->digests[i] != now) return 1;
    }
    return 0;
}

/* The digests of `count` blocks: written, or compared with what they were; 1 where one differs. */
TATAMI_EXPORT int tatami_digest(
    tatami_pool* pool, int64_t count, void* const* at, const int64_t* bytes, uint64_t* digests, int64_t write) {
    blocks_t blocks = {at, bytes, digests, (int)write};
    return tatami_parallel_for(pool, count, 1, some, &blocks);
}
