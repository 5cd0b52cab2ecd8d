/* An ensemble of decision trees: int tatami_tree_ensemble(void* const* buffers, const int64_t* integers), for one block of
   rows. The buffers are x[rows, features], nodes, roots, targets, values and the result [rows, outputs]; what they hold and
   mean is told in core/trees.py. The integers are as those of routines.c.

   A walk has no branch that the data decide: WAYS walks take a step together until none of them moves, which hides the
   latency of the loads. They are WAYS rows in one tree, rows transposed so that a feature of them lies in one place; of
   fewer rows than that, one row in WAYS trees. Trees go in blocks that stay in the cache while all rows pass. */
#include <stdint.h>
#include <string.h>
#include "tatami.h"

enum { ROWS = 256, WAYS = 16, BLOCK_BYTES = 1 << 18, T_FP64 = 12, SUM = 0, MIN = 1, MAX = 2 };
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

typedef struct { float split; uint32_t word, next[2]; } __attribute__((may_alias)) node_f32;
typedef struct { double split; uint32_t word, next[2], unused; } __attribute__((may_alias)) node_f64;

/* The least block of trees from `first` on that fills BLOCK_BYTES; roots rise. */
static int64_t block_end(const int32_t* roots, int64_t trees, int64_t first, int64_t node_bytes) {
  int64_t t = first + 1;
  while (t < trees && (roots[t] - roots[first]) * node_bytes < BLOCK_BYTES) ++t;
  return t;
}

#define TREES(NAME, REAL, NODE)                                                                                             \
  /* at[k]: in, the root of walk k; out, the leaf's row of `values`. Walk k reads word w at x[w * stride + k * apart]. */   \
  INLINE void walk_##NAME(const NODE* restrict nodes, int32_t* restrict at, const REAL* restrict x, int64_t stride,         \
                          int64_t apart) {                                                                                  \
    uint32_t here[WAYS], moved = 1;                                                                                         \
    UNROLL for (int64_t k = 0; k < WAYS; ++k) here[k] = (uint32_t)at[k];                                                    \
    while (moved) {                                                                                                         \
      moved = 0;                                                                                                            \
      UNROLL for (int64_t k = 0; k < WAYS; ++k) {                                                                           \
        const NODE* const n = nodes + here[k];                                                                              \
        const uint32_t to = n->next[x[n->word * stride + k * apart] <= n->split];                                           \
        moved |= to ^ here[k];                                                                                              \
        here[k] = to;                                                                                                       \
      }                                                                                                                     \
    }                                                                                                                       \
    UNROLL for (int64_t k = 0; k < WAYS; ++k) memcpy(at + k, nodes + here[k], 4);                                           \
  }                                                                                                                         \
  INLINE void add_##NAME(REAL* restrict y, const REAL* restrict values, int64_t width, int64_t how) {                       \
    if (how == SUM) for (int64_t j = 0; j < width; ++j) y[j] += values[j];                                                  \
    else if (how == MIN) for (int64_t j = 0; j < width; ++j) y[j] = values[j] < y[j] ? values[j] : y[j];                    \
    else for (int64_t j = 0; j < width; ++j) y[j] = values[j] > y[j] ? values[j] : y[j];                                    \
  }                                                                                                                         \
  /* Feature f of each of `ways` rows, then its negative, at 2 * f * ways; the last row stands for those there are not. */   \
  INLINE void turn_##NAME(REAL* restrict to, const REAL* restrict x, int64_t rows, int64_t features, int64_t ways) {        \
    for (int64_t f = 0; f < features; ++f) {                                                                                \
      REAL* const it = to + 2 * f * ways;                                                                                   \
      for (int64_t k = 0; k < ways; ++k) {                                                                                  \
        it[k] = x[(k < rows ? k : rows - 1) * features + f];                                                                \
        it[ways + k] = -it[k];                                                                                              \
      }                                                                                                                     \
    }                                                                                                                       \
  }                                                                                                                         \
  static int trees_##NAME(void* const* buffers, int64_t rows, int64_t features, int64_t trees, int64_t width,               \
                          int64_t outputs, int64_t how, int64_t first) {                                                    \
    const NODE* const nodes = buffers[1];                                                                                   \
    const int32_t *const roots = buffers[2], *const targets = buffers[3];                                                   \
    const REAL* const values = buffers[4];                                                                                  \
    const int64_t count = rows - first < ROWS ? rows - first : ROWS;                                                        \
    const REAL* const x = (const REAL*)buffers[0] + first * features;                                                       \
    REAL* const y = (REAL*)buffers[5] + first * outputs;                                                                    \
    const REAL start = how == SUM ? 0 : how == MIN ? (REAL)__builtin_inf() : -(REAL)__builtin_inf();                        \
    int32_t at[WAYS];                                                                                                       \
    for (int64_t i = 0; i < count * outputs; ++i) y[i] = start;                                                             \
    const int64_t wide = count * 2 <= WAYS ? 0 : (count + WAYS - 1) / WAYS * WAYS, line = 2 * features;                     \
    const size_t mark = tatami_mark();                                                                                      \
    REAL* const turned = tatami_scratch((wide ? wide : 1) * line * (int64_t)sizeof(REAL));                                  \
    if (!turned) { tatami_release(mark); return TATAMI_OUT_OF_MEMORY; }                                                     \
    for (int64_t r = 0; r < wide; r += WAYS) turn_##NAME(turned + r * line, x + r * features, count - r, features, WAYS);   \
    for (int64_t b = 0; wide && b < trees;) {                                                                               \
      const int64_t end = block_end(roots, trees, b, sizeof(NODE));                                                         \
      for (int64_t r = 0; r < wide; r += WAYS)                                                                              \
        for (int64_t t = b; t < end; ++t) {                                                                                 \
          for (int64_t k = 0; k < WAYS; ++k) at[k] = roots[t];                                                              \
          walk_##NAME(nodes, at, turned + r * line, WAYS, 1);                                                               \
          if (width == 1 && outputs == 1 && how == SUM && r + WAYS <= count)                                                \
            for (int64_t k = 0; k < WAYS; ++k) y[r + k] += values[at[k]];                                                   \
          else                                                                                                              \
            for (int64_t k = 0; k < WAYS && r + k < count; ++k)                                                             \
              add_##NAME(y + (r + k) * outputs + targets[at[k]], values + at[k] * width, width, how);                       \
        }                                                                                                                   \
      b = end;                                                                                                              \
    }                                                                                                                       \
    for (int64_t r = 0; r < (wide ? 0 : count); ++r) {                                                                      \
      turn_##NAME(turned, x + r * features, 1, features, 1);                                                                \
      for (int64_t t = 0; t < trees; t += WAYS) {                                                                           \
        for (int64_t k = 0; k < WAYS; ++k) at[k] = roots[t + k < trees ? t + k : trees - 1];                                \
        walk_##NAME(nodes, at, turned, 1, 0);                                                                               \
        for (int64_t k = 0; k < WAYS && t + k < trees; ++k)                                                                 \
          add_##NAME(y + r * outputs + targets[at[k]], values + at[k] * width, width, how);                                 \
      }                                                                                                                     \
    }                                                                                                                       \
    tatami_release(mark);                                                                                                   \
    return TATAMI_OK;                                                                                                       \
  }

TREES(f32, float, node_f32)
TREES(f64, double, node_f64)

/* After the buffers: how (SUM, MIN, MAX), and the number of the block. */
int tatami_tree_ensemble(void* const* buffers, const int64_t* integers) {
  const int64_t *const x = integers, *const nodes = x + 4, *const roots = nodes + 4, *const targets = roots + 3;
  const int64_t *const values = targets + 3, *const y = values + 4, *const attributes = y + 4;
  const int64_t how = attributes[0], first = attributes[1] * ROWS;
  if (x[0] == T_FP64) return trees_f64(buffers, x[2], x[3], roots[2], values[3], y[3], how, first);
  return trees_f32(buffers, x[2], x[3], roots[2], values[3], y[3], how, first);
}
