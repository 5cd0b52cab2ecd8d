// What the streaming template is made of: vectors of neighbours, results joined by groups of threads, random numbers.
#pragma once

// Philox4x32-10: word `counter % 4` of block `counter / 4` under a 64-bit key.
TT_DEV tt_u32 tt_philox(tt_u64 key, tt_u64 counter) {
  const tt_u64 block = counter >> 2;
  tt_u32 a = (tt_u32)block, b = (tt_u32)(block >> 32), c = 0, d = 0, k = (tt_u32)key, l = (tt_u32)(key >> 32);
  TT_UNROLL for (int i = 0; i < 10; ++i) {
    const tt_u64 p = (tt_u64)a * 0xD2511F53u, q = (tt_u64)c * 0xCD9E8D57u;
    const tt_u32 w = (tt_u32)(q >> 32) ^ b ^ k, y = (tt_u32)(p >> 32) ^ d ^ l;
    a = w, b = (tt_u32)q, c = y, d = (tt_u32)p;
    k += 0x9E3779B9u, l += 0xBB67AE85u;
  }
  const tt_u32 which = (tt_u32)(counter & 3);
  return which == 0 ? a : which == 1 ? b : which == 2 ? c : d;
}

// An index that data give: negative ones count from the end, or are taken to the nearest.
TT_DEV tt_i64 tt_wrapped(tt_i64 i, tt_i64 size) { return i < 0 ? i + size : i; }
TT_DEV tt_i64 tt_clamped(tt_i64 i, tt_i64 size) { return i < 0 ? 0 : i < size ? i : size - 1; }

// N neighbours in memory, as wide accesses.
template <int N, class T> TT_DEV tt_lanes<T, N> tt_load_lanes(const T* p, tt_i64 count) {
  if (count >= N) return tt_load_lanes<N>(p);
  tt_lanes<T, N> r = {};
  TT_UNROLL for (int i = 0; i < N; ++i) if (i < count) r.at[i] = p[i];
  return r;
}
template <int N, class T> TT_DEV void tt_put_lanes(T* p, const tt_lanes<T, N>& r) { *(tt_lanes<T, N>*)p = r; }
// To global memory: by whole instructions, however the values were made.
template <int N, class T> TT_DEV void tt_store_lanes(T* p, const tt_lanes<T, N>& r) {
  constexpr int bytes = N * (int)sizeof(T);
  if constexpr (bytes % 8 != 0) {
    tt_put_lanes<N>(p, r);
  } else {
    union { tt_u32 words[bytes / 4]; tt_lanes<T, N> lanes; } u;
    u.lanes = r;
    if constexpr (bytes == 8) tt_store_global_v2(p, u.words[0], u.words[1]);
    else TT_UNROLL for (int i = 0; i < bytes / 4; i += 4)
      tt_store_global_v4((tt_u8*)p + 4 * i, u.words[i], u.words[i + 1], u.words[i + 2], u.words[i + 3]);
  }
}
template <int N, class T> TT_DEV void tt_store_lanes(T* p, const tt_lanes<T, N>& r, tt_i64 count) {
  if (count >= N) { tt_store_lanes<N>(p, r); return; }
  TT_UNROLL for (int i = 0; i < N; ++i) if (i < count) p[i] = r.at[i];
}

// Where element (row, column) of a SIZE x SIZE tile lies: chunks of CHUNK elements are XORed with the row's chunk.
template <int SIZE, int CHUNK> TT_DEV int tt_turned(int row, int column) {
  return row * SIZE + ((column / CHUNK) ^ (row / CHUNK % (SIZE / CHUNK))) * CHUNK + column % CHUNK;
}

// How two results of a reduce or scan are one.
struct tt_sum { template <class T> static TT_MEMBER T join(T a, T b) { return a + b; } };
struct tt_int_sum { template <class T> static TT_MEMBER T join(T a, T b) { return tt_add(a, b); } };
struct tt_prod { template <class T> static TT_MEMBER T join(T a, T b) { return a * b; } };
struct tt_int_prod { template <class T> static TT_MEMBER T join(T a, T b) { return tt_mul(a, b); } };
struct tt_most { template <class T> static TT_MEMBER T join(T a, T b) { return tt_max(a, b); } };
struct tt_least { template <class T> static TT_MEMBER T join(T a, T b) { return tt_min(a, b); } };
struct tt_all { template <class T> static TT_MEMBER T join(T a, T b) { return T(a && b); } };
struct tt_any { template <class T> static TT_MEMBER T join(T a, T b) { return T(a || b); } };

// A value and where it was first seen; a NaN is before everything.
template <class T> struct tt_place { T value; tt_i64 at; };
struct tt_first_most {
  template <class T> static TT_MEMBER tt_place<T> join(const tt_place<T>& a, const tt_place<T>& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool equal = a.value == b.value || (nan_a && nan_b);
    const bool second = a.at < 0 || (b.at >= 0 && (equal ? b.at < a.at : nan_b || (!nan_a && b.value > a.value)));
    return second ? b : a;
  }
};
struct tt_first_least {
  template <class T> static TT_MEMBER tt_place<T> join(const tt_place<T>& a, const tt_place<T>& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool equal = a.value == b.value || (nan_a && nan_b);
    const bool second = a.at < 0 || (b.at >= 0 && (equal ? b.at < a.at : nan_b || (!nan_a && b.value < a.value)));
    return second ? b : a;
  }
};

// The value of the lane `mask` away, of any size.
template <class T> TT_DEV T tt_exchanged(T x, int mask) {
  union { tt_u32 words[(sizeof(T) + 3) / 4]; T value; } u = {};
  u.value = x;
  TT_UNROLL for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) u.words[i] = tt_shuffle_xor(u.words[i], mask);
  return u.value;
}
// One result of GROUP neighbouring threads, which all of them get. More than 32 meet in shared memory; then the group
// is the block.
template <class J, int GROUP, class T> TT_DEV T tt_joined(T x, tt_u8* shared) {
  TT_UNROLL for (int mask = 1; mask < (GROUP < 32 ? GROUP : 32); mask *= 2) x = J::join(x, tt_exchanged(x, mask));
  if (GROUP > 32) {
    T* const partial = (T*)shared;
    const int thread = tt_thread();
    if (thread % 32 == 0) partial[thread / 32] = x;
    tt_sync_threads();
    x = partial[0];
    TT_UNROLL for (int i = 1; i < GROUP / 32; ++i) x = J::join(x, partial[i]);
    tt_sync_threads();
  }
  return x;
}
// The same where the GROUP threads of a point are THREADS / GROUP apart.
template <class J, int GROUP, int THREADS, class T> TT_DEV T tt_joined_across(T x, tt_u8* shared) {
  T* const partial = (T*)shared;
  const int beside = THREADS / GROUP, point = tt_thread() % beside;
  partial[tt_thread()] = x;
  tt_sync_threads();
  x = partial[point];
  TT_UNROLL for (int i = 1; i < GROUP; ++i) x = J::join(x, partial[i * beside + point]);
  tt_sync_threads();
  return x;
}
// What the threads before this one in its group have together, and all of them: the scan of one element each.
template <class J, int GROUP, class T> TT_DEV T tt_before(T x, T neutral, T* all, tt_u8* shared) {
  T* const own = (T*)shared + tt_thread() / GROUP * GROUP;
  const int member = tt_thread() % GROUP;
  own[member] = x;
  tt_sync_threads();
  TT_UNROLL for (int step = 1; step < GROUP; step *= 2) {
    const T below = member >= step ? own[member - step] : neutral;
    tt_sync_threads();
    if (member >= step) own[member] = J::join(below, own[member]);
    tt_sync_threads();
  }
  const T before = member ? own[member - 1] : neutral;
  *all = own[GROUP - 1];
  tt_sync_threads();
  return before;
}
