/* Native routines of opaque Regions: int tatami_<name>(void* const* buffers, const int64_t* integers). The integers are,
   for every buffer, its dtype code (the order of core.dtype), its rank and its extents; then the attributes. Every
   buffer is row-major. Meaning: tiny/routines.py. */
#include <stdint.h>
#include <string.h>
#include "tatami.h"

enum { T_BOOL, T_I8, T_U8, T_I16, T_U16, T_I32, T_U32, T_I64, T_U64, T_FP16, T_BF16, T_FP32, T_FP64 };

/* Bits of a float of `bits` bits as an unsigned number of the same order; -0 equals 0, NaN is above everything. */
static uint64_t order_float(uint64_t u, int bits, uint64_t infinity) {
  const uint64_t sign = (uint64_t)1 << (bits - 1), a = u & (sign - 1), minus = -(u >> (bits - 1));
  return a > infinity ? UINT64_MAX : sign + ((a ^ minus) - minus);
}

static uint64_t order_of(int64_t dtype, const void* p, int64_t i) {
  switch (dtype) {
    case T_BOOL: return ((const uint8_t*)p)[i] != 0;
    case T_I8: return (uint64_t)(((const int8_t*)p)[i] + 128);
    case T_U8: return ((const uint8_t*)p)[i];
    case T_I16: return (uint64_t)(((const int16_t*)p)[i] + 32768);
    case T_U16: return ((const uint16_t*)p)[i];
    case T_I32: return (uint64_t)((int64_t)((const int32_t*)p)[i] + INT64_C(2147483648));
    case T_U32: return ((const uint32_t*)p)[i];
    case T_I64: return (uint64_t)((const int64_t*)p)[i] ^ (UINT64_C(1) << 63);
    case T_U64: return ((const uint64_t*)p)[i];
    case T_FP16: return order_float(((const uint16_t*)p)[i], 16, 0x7c00);
    case T_BF16: return order_float(((const uint16_t*)p)[i], 16, 0x7f80);
    case T_FP32: { uint32_t u; memcpy(&u, (const char*)p + 4 * i, 4); return order_float(u, 32, 0x7f800000u); }
    default: { uint64_t u; memcpy(&u, (const char*)p + 8 * i, 8); return order_float(u, 64, UINT64_C(0x7ff0000000000000)); }
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

typedef struct { uint64_t key; int64_t at; } entry;
/* Elements of a line up to which the first are kept as one goes; more are sorted with the others. */
enum { FEW = 64 };

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
      int64_t i = s, j = m;
      for (int64_t k = s; k < end; ++k) other[k] = i < m && (j >= end || a[i].key <= a[j].key) ? a[i++] : a[j++];
    }
    entry* t = a; a = other; other = t;
  }
  return a;
}

/* The first k >= 1 of a line of n elements that lie `inner` apart, in stable order, by insertion: of elements in no order few
   come among the first. `flip` turns the order round. Inline: of a known dtype its keys take a few instructions. */
static inline __attribute__((always_inline)) void keep_first(entry* kept, int64_t k, int64_t dtype, const void* from, int64_t base, int64_t inner, int64_t n, uint64_t flip) {
  for (int64_t j = 0; j < n; ++j) {
    const entry e = {order_of(dtype, from, base + j * inner) ^ flip, j};
    if (j >= k && e.key >= kept[k - 1].key) continue;
    int64_t i = j < k ? j : k - 1;
    for (; i > 0 && kept[i - 1].key > e.key; --i) kept[i] = kept[i - 1];
    kept[i] = e;
  }
}

static void put(void* to, int64_t i, const void* from, int64_t j, int64_t size) {
  switch (size) {
    case 1: ((uint8_t*)to)[i] = ((const uint8_t*)from)[j]; break;
    case 2: ((uint16_t*)to)[i] = ((const uint16_t*)from)[j]; break;
    case 4: memcpy((char*)to + 4 * i, (const char*)from + 4 * j, 4); break;
    default: memcpy((char*)to + 8 * i, (const char*)from + 8 * j, 8);
  }
}

/* The first k of every line along `axis` in stable order, with their positions. */
static int order_lines(void* const* buffers, int64_t dtype, int64_t rank, const int64_t* shape, int64_t axis, int64_t down, int64_t k) {
  if (rank == 0) {
    put(buffers[1], 0, buffers[0], 0, item_size(dtype));
    *(int64_t*)buffers[2] = 0;
    return TATAMI_OK;
  }
  if (axis < 0) axis += rank;
  int64_t outer = 1, inner = 1;
  const int64_t n = shape[axis];
  for (int64_t d = 0; d < axis; ++d) outer *= shape[d];
  for (int64_t d = axis + 1; d < rank; ++d) inner *= shape[d];
  const size_t mark = tatami_mark();
  const uint64_t flip = down ? UINT64_MAX : 0;
  entry* const a = tatami_scratch(n * (int64_t)sizeof(entry));
  entry* const b = tatami_scratch(n * (int64_t)sizeof(entry));
  if (!a || !b) { tatami_release(mark); return TATAMI_OUT_OF_MEMORY; }
  const int64_t size = item_size(dtype);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t base = o * n * inner + i, to = o * k * inner + i;
      const entry* sorted = a;
      if (1 <= k && k <= FEW && k < n) {
        if (dtype == T_FP32) keep_first(a, k, T_FP32, buffers[0], base, inner, n, flip);
        else keep_first(a, k, dtype, buffers[0], base, inner, n, flip);
      } else {
        for (int64_t j = 0; j < n; ++j) a[j] = (entry){order_of(dtype, buffers[0], base + j * inner) ^ flip, j};
        sorted = merge_sort(a, b, n);
      }
      for (int64_t j = 0; j < k; ++j) {
        put(buffers[1], to + j * inner, buffers[0], base + sorted[j].at * inner, size);
        ((int64_t*)buffers[2])[to + j * inner] = sorted[j].at;
      }
    }
  }
  tatami_release(mark);
  return TATAMI_OK;
}

/* Skips a buffer's description. */
static const int64_t* after(const int64_t* integers) { return integers + 2 + integers[1]; }

/* x -> values, indices; attributes axis, descending. */
int tatami_sort(void* const* buffers, const int64_t* integers) {
  const int64_t* attributes = after(after(after(integers)));
  const int64_t rank = integers[1], axis = attributes[0];
  const int64_t n = rank ? integers[2 + (axis < 0 ? axis + rank : axis)] : 1;
  return order_lines(buffers, integers[0], rank, integers + 2, axis, attributes[1], n);
}

/* x -> the k first values, indices; attributes axis, largest. k is the extent of the result. */
int tatami_topk(void* const* buffers, const int64_t* integers) {
  const int64_t* values = after(integers);
  const int64_t* attributes = after(after(values));
  const int64_t rank = integers[1], axis = attributes[0];
  const int64_t k = rank ? values[2 + (axis < 0 ? axis + rank : axis)] : 1;
  return order_lines(buffers, integers[0], rank, integers + 2, axis, attributes[1], k);
}
