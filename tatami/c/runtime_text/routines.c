/* Native routines of opaque Regions: int tatami_<name>(void* const* buffers, const int64_t* integers), for one line of
   their elements. The integers are, for every buffer, its dtype code (the order of core.dtype), its rank and its extents;
   then the attributes; then the number of the line. Every buffer is row-major. Meaning: tiny/routines.py. */
#include <stdint.h>
#include <string.h>
#include "tatami.h"

#define INLINE static inline __attribute__((always_inline))
enum { T_BOOL, T_I8, T_U8, T_I16, T_U16, T_I32, T_U32, T_I64, T_U64, T_FP16, T_BF16, T_FP32, T_FP64 };

/* A key is a number of the order of its element; -0 equals 0, NaN is above everything. */
INLINE int64_t order_short(uint16_t u, int32_t infinity) {
  const int32_t a = u & 0x7fff, minus = -(u >> 15);
  return a > infinity ? INT64_MAX : (a ^ minus) - minus;
}

INLINE int64_t order_f32(uint32_t u) {
  const int32_t a = u & 0x7fffffff, minus = -(int32_t)(u >> 31);
  return a > 0x7f800000 ? INT32_MAX : (a ^ minus) - minus;
}

INLINE int64_t order_f64(uint64_t u) {
  const int64_t a = u & INT64_MAX, minus = -(int64_t)(u >> 63);
  return a > INT64_C(0x7ff0000000000000) ? INT64_MAX : (a ^ minus) - minus;
}

INLINE int64_t order_of(int64_t dtype, const void* p, int64_t i) {
  switch (dtype) {
    case T_BOOL: return ((const uint8_t*)p)[i] != 0;
    case T_I8: return ((const int8_t*)p)[i];
    case T_U8: return ((const uint8_t*)p)[i];
    case T_I16: return ((const int16_t*)p)[i];
    case T_U16: return ((const uint16_t*)p)[i];
    case T_I32: return ((const int32_t*)p)[i];
    case T_U32: return ((const uint32_t*)p)[i];
    case T_I64: return ((const int64_t*)p)[i];
    case T_U64: return (int64_t)(((const uint64_t*)p)[i] ^ (UINT64_C(1) << 63));
    case T_FP16: return order_short(((const uint16_t*)p)[i], 0x7c00);
    case T_BF16: return order_short(((const uint16_t*)p)[i], 0x7f80);
    case T_FP32: { uint32_t u; memcpy(&u, (const char*)p + 4 * i, 4); return order_f32(u); }
    default: { uint64_t u; memcpy(&u, (const char*)p + 8 * i, 8); return order_f64(u); }
  }
}

static int64_t item_size(int64_t dtype) {
  switch (dtype) {
    case T_BOOL: case T_I8: case T_U8: return 1;
    case T_I16: case T_U16: case T_FP16: case T_BF16: return 2;
    case T_I32: case T_U32: case T_FP32: return 4;
    default: return 8;
  }
}

typedef struct { int64_t key, at; } entry;

/* Stable merge sort of n entries by key; `other` is scratch of the same size. Returns where the result lies. */
static entry* merge_sort(entry* a, entry* other, int64_t n) {
  const int64_t run = 8;
  for (int64_t s = 0; s < n; s += run) {
    const int64_t end = s + run < n ? s + run : n;
    for (int64_t i = s + 1; i < end; ++i) {
      const entry e = a[i];
      int64_t j = i;
      for (; j > s && a[j - 1].key > e.key; --j) a[j] = a[j - 1];
      a[j] = e;
    }
  }
  for (int64_t w = run; w < n; w *= 2) {
    for (int64_t s = 0; s < n; s += 2 * w) {
      const int64_t m = s + w < n ? s + w : n, end = s + 2 * w < n ? s + 2 * w : n;
      int64_t i = s, j = m, k = s;
      while (i < m && j < end) { /* without a branch on keys: which comes first cannot be foretold */
        const int64_t right = a[j].key < a[i].key;
        other[k++] = a[i + (j - i) * right];
        i += !right;
        j += right;
      }
      if (i < m) memcpy(other + k, a + i, (size_t)(m - i) * sizeof(entry));
      if (j < end) memcpy(other + k, a + j, (size_t)(end - j) * sizeof(entry));
    }
    entry* t = a; a = other; other = t;
  }
  return a;
}

/* Keys come in blocks of a length that the compiler knows, LANES, for vectors; the last is filled up with the last key there is. */
enum { LANES = 64, FEWEST = 16 };
typedef struct { const void* from; int64_t base, inner, n, dtype, flip; } line;

INLINE void keys_of(int64_t* restrict keys, int64_t* restrict least, int64_t dtype, int64_t inner, const line* of) {
  int64_t j = 0;
  for (; j + LANES <= of->n; j += LANES) {
    for (int64_t i = 0; i < LANES; ++i) keys[j + i] = order_of(dtype, of->from, of->base + (j + i) * inner) ^ of->flip;
    for (int64_t i = 0; i < LANES; ++i) least[i] = keys[j + i] < least[i] ? keys[j + i] : least[i];
  }
  for (int64_t i = 0; j < of->n; ++i, ++j) {
    keys[j] = order_of(dtype, of->from, of->base + j * inner) ^ of->flip;
    if (keys[j] < least[i]) least[i] = keys[j];
  }
  for (; j % LANES != 0; ++j) keys[j] = INT64_MAX;
}

/* A key that at least k elements of the line do not exceed: the k-th least of the lanes, each the first of its elements.
   LANES >= `lanes` >= k, FEWEST times a power of two, and at most the elements there are. */
static int64_t bound_of(int64_t least[LANES], int64_t lanes, int64_t k) {
  for (int64_t half = LANES / 2; half >= lanes; half /= 2)
    for (int64_t i = 0; i < half; ++i) least[i] = least[i] < least[i + half] ? least[i] : least[i + half];
  int64_t bound = INT64_MAX;
  for (int64_t i = 0; i < lanes; ++i) {
    int64_t as_small = 0;
    for (int64_t p = 0; p < lanes; p += FEWEST)
      for (int64_t j = p; j < p + FEWEST; ++j) as_small += least[j] <= least[i];
    if (as_small >= k && least[i] < bound) bound = least[i];
  }
  return bound;
}

/* What may be among the first k, in the order of the line: below the bound, and the first k that equal it. */
static int64_t within(entry* found, const int64_t* keys, int64_t n, int64_t bound, int64_t k) {
  int64_t count = 0, equal = 0;
  for (int64_t b = 0; b < n; b += LANES) {
    int64_t any = 0;
    for (int64_t j = b; j < b + LANES; ++j) any |= keys[j] <= bound;
    if (!any) continue;
    for (int64_t j = b; j < b + LANES; ++j)
      if (keys[j] < bound || (keys[j] == bound && equal++ < k)) found[count++] = (entry){keys[j], j};
  }
  return count;
}

static void put(void* to, int64_t i, const void* from, int64_t j, int64_t size) {
  switch (size) {
    case 1: ((uint8_t*)to)[i] = ((const uint8_t*)from)[j]; break;
    case 2: ((uint16_t*)to)[i] = ((const uint16_t*)from)[j]; break;
    case 4: memcpy((char*)to + 4 * i, (const char*)from + 4 * j, 4); break;
    default: memcpy((char*)to + 8 * i, (const char*)from + 8 * j, 8);
  }
}

/* The first k of a line along `axis` in stable order, with their positions. */
static int order_line(void* const* buffers, int64_t dtype, int64_t rank, const int64_t* shape, int64_t axis, int64_t down, int64_t k, int64_t number) {
  int64_t inner = 1;
  const int64_t n = rank ? shape[axis] : 1;
  if (k < 0 || k > n) return TATAMI_ARGUMENT;
  for (int64_t d = axis + 1; d < rank; ++d) inner *= shape[d];
  const line of = {buffers[0], number / inner * n * inner + number % inner, inner, n, dtype, down ? -1 : 0};
  const int64_t to = number / inner * k * inner + number % inner, room = (n + LANES - 1) / LANES * LANES;
  const size_t mark = tatami_mark();
  int64_t* const keys = tatami_scratch(room * (int64_t)sizeof(int64_t));
  entry* const a = tatami_scratch(room * (int64_t)sizeof(entry));
  entry* const b = tatami_scratch(room * (int64_t)sizeof(entry));
  if (!keys || !a || !b) { tatami_release(mark); return TATAMI_OUT_OF_MEMORY; }
  int64_t least[LANES], lanes = FEWEST, count = n;
  for (int64_t i = 0; i < LANES; ++i) least[i] = INT64_MAX;
  if (dtype == T_FP32 && inner == 1) keys_of(keys, least, T_FP32, 1, &of);
  else keys_of(keys, least, dtype, inner, &of);
  while (lanes <= k && lanes < LANES) lanes *= 2;
  if (k <= lanes && 2 * lanes <= n) count = within(a, keys, n, bound_of(least, lanes, k), k);
  else for (int64_t j = 0; j < n; ++j) a[j] = (entry){keys[j], j};
  const entry* const sorted = merge_sort(a, b, count);
  const int64_t size = item_size(dtype);
  for (int64_t j = 0; j < k; ++j) {
    put(buffers[1], to + j * inner, of.from, of.base + sorted[j].at * inner, size);
    ((int64_t*)buffers[2])[to + j * inner] = sorted[j].at;
  }
  tatami_release(mark);
  return TATAMI_OK;
}

/* Skips a buffer's description. */
static const int64_t* after(const int64_t* integers) { return integers + 2 + integers[1]; }

static int64_t from_front(int64_t axis, int64_t rank) { return axis < 0 && rank ? axis + rank : axis; }

/* x -> the first values, indices; attributes axis, whether the largest come first. As many as the result has. */
static int order(void* const* buffers, const int64_t* integers) {
  const int64_t* values = after(integers);
  const int64_t* attributes = after(after(values));
  const int64_t rank = integers[1], axis = from_front(attributes[0], rank);
  return order_line(buffers, integers[0], rank, integers + 2, axis, attributes[1], rank ? values[2 + axis] : 1, attributes[2]);
}

int tatami_sort(void* const* buffers, const int64_t* integers) { return order(buffers, integers); }

int tatami_topk(void* const* buffers, const int64_t* integers) { return order(buffers, integers); }
