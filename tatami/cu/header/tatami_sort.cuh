// A stable sort: tiles in shared memory, then merges of sorted runs between two buffers in memory, by one block or many.
#pragma once

struct tt_entry { tt_u64 key; tt_i64 at; };

// Bits of a float as an unsigned number of the same order; -0 equals 0, NaN is above everything.
TT_DEV tt_u64 tt_float_order(tt_u64 u, int bits, tt_u64 infinity) {
  const tt_u64 sign = (tt_u64)1 << (bits - 1), a = u & (sign - 1);
  if (a > infinity) return ~(tt_u64)0;
  return (u & sign) && a ? sign - a : sign + a;
}
template <class T> TT_DEV tt_u64 tt_order(T x) {
  return T(-1) < T(0) ? (tt_u64)(tt_i64)x ^ (tt_u64)1 << 63 : (tt_u64)x;
}
TT_DEV tt_u64 tt_order(bool x) { return x ? 1 : 0; }
TT_DEV tt_u64 tt_order(tt_f16 x) { return tt_float_order(x.bits, 16, 0x7c00); }
TT_DEV tt_u64 tt_order(tt_bf16 x) { return tt_float_order(x.bits, 16, 0x7f80); }
TT_DEV tt_u64 tt_order(float x) { return tt_float_order(tt_bits<tt_u32>(x), 32, 0x7f800000u); }
TT_DEV tt_u64 tt_order(double x) { return tt_float_order(tt_bits<tt_u64>(x), 64, 0x7ff0000000000000ULL); }

// How many entries of a sorted run stand before one with this key: of equal keys all (`through`) or none.
TT_DEV tt_i64 tt_rank(const tt_entry* run, tt_i64 count, tt_u64 key, bool through) {
  tt_i64 low = 0, high = count;
  while (low < high) {
    const tt_i64 middle = (low + high) / 2;
    const tt_u64 other = run[middle].key;
    if (other < key || (through && other == key)) low = middle + 1; else high = middle;
  }
  return low;
}
// Entry `i` of a line of sorted runs of `width` goes where it stands among the WAYS runs that become one.
template <int WAYS> TT_DEV void tt_merge_entry(const tt_entry* from, tt_entry* to, tt_i64 count, tt_i64 width, tt_i64 i) {
  const tt_i64 run = i / width, first = run / WAYS * WAYS;
  const tt_entry e = from[i];
  tt_i64 place = first * width + (i - run * width);
  for (tt_i64 other = first; other < first + WAYS && other * width < count; ++other) {
    const tt_i64 left = count - other * width;
    if (other != run) place += tt_rank(from + other * width, left < width ? left : width, e.key, other < run);
  }
  to[place] = e;
}
template <int WAYS> TT_DEV void tt_merge_runs(const tt_entry* from, tt_entry* to, tt_i64 count, tt_i64 width, int threads) {
  for (tt_i64 i = tt_thread(); i < count; i += threads) tt_merge_entry<WAYS>(from, to, count, width, i);
  tt_sync_threads();
}
// Which of two buffers has the sorted line after merges that began in `a` with tiles.
template <int WAYS, int TILE> TT_DEV const tt_entry* tt_merged(tt_i64 count, const tt_entry* a, const tt_entry* b) {
  bool turned = false;
  for (tt_i64 width = TILE; width < count; width *= WAYS) turned = !turned;
  return turned ? b : a;
}
// `here` entries of a line from `first` on, in order, in shared memory.
template <int TILE, int THREADS, class T>
TT_DEV const tt_entry* tt_sorted_tile(const T* line, tt_i64 step, tt_i64 first, tt_i64 here, bool down, tt_u8* shared) {
  tt_entry* x = (tt_entry*)shared;
  tt_entry* y = x + TILE;
  for (tt_i64 i = tt_thread(); i < here; i += THREADS) {
    const tt_u64 key = tt_order(line[(first + i) * step]);
    x[i].key = down ? ~key : key;
    x[i].at = first + i;
  }
  tt_sync_threads();
  for (tt_i64 width = 1; width < here; width *= 2) {
    tt_merge_runs<2>(x, y, here, width, THREADS);
    tt_entry* const t = x; x = y; y = t;
  }
  return x;
}
// The entries of a line of `count` elements in order; `a` and `b` hold them where they are more than TILE. Returns where
// the result lies.
template <int TILE, int THREADS, class T>
TT_DEV const tt_entry* tt_sorted_line(const T* line, tt_i64 step, tt_i64 count, bool down, tt_entry* a, tt_entry* b, tt_u8* shared) {
  for (tt_i64 first = 0; first < count; first += TILE) {
    const tt_i64 here = count - first < TILE ? count - first : TILE;
    const tt_entry* const sorted = tt_sorted_tile<TILE, THREADS>(line, step, first, here, down, shared);
    if (count <= TILE) return sorted;
    for (tt_i64 i = tt_thread(); i < here; i += THREADS) a[first + i] = sorted[i];
    tt_sync_threads();
  }
  for (tt_i64 width = TILE; width < count; width *= 2) {
    tt_merge_runs<2>(a, b, count, width, THREADS);
    tt_entry* const t = a; a = b; b = t;
  }
  return a;
}
