// Plain arithmetic of generated kernels: no inline PTX, the same text on the GPU and under the emulator.
#pragma once

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile with rows of ROW_BYTES. With a swizzle the chunks of a
// span of up to 128 bytes are XORed with the row, so that eight rows read at one chunk fall in eight bank groups.
template <int ROW_BYTES, int SWIZZLE> TT_DEV tt_u32 tt_tile_offset(int row, int chunk) {
  constexpr int span = SWIZZLE == 0 ? 16 : SWIZZLE;
  constexpr int rows_per_128 = span < 128 ? 128 / span : 1;
  const int x = SWIZZLE == 0 ? 0 : (row / rows_per_128) & (span / 16 - 1);
  return (tt_u32)(row * ROW_BYTES + ((chunk ^ x) << 4));
}

// Transposes 4 values over the 4 lanes of a quad: lane q ends with value q of lanes 0, 1, 2, 3.
TT_DEV void tt_quad_transpose(tt_u32 (&r)[4], int lane) {
  TT_UNROLL for (int s = 1; s < 4; s *= 2) {
    TT_UNROLL for (int a = 0; a < 4; ++a) {
      if (a & s) continue;
      const bool high = (lane & s) != 0;
      const tt_u32 got = tt_shuffle_xor(high ? r[a] : r[a | s], s);
      if (high) r[a] = got; else r[a | s] = got;
    }
  }
}

TT_DEV tt_i64 tt_floordiv(tt_i64 a, tt_i64 b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
TT_DEV tt_i64 tt_min_size(tt_i64 a, tt_i64 b) { return a < b ? a : b; }
TT_DEV tt_i64 tt_max_size(tt_i64 a, tt_i64 b) { return a > b ? a : b; }

TT_DEV float tt_value(tt_f16 x) { return tt_to_f32(x); }
TT_DEV float tt_value(tt_bf16 x) { return tt_to_f32(x); }
template <class T> TT_DEV T tt_value(T x) { return x; }
TT_DEV float tt_round_f16(float x) { return tt_to_f32(tt_to_f16(x)); }
TT_DEV float tt_round_bf16(float x) { return tt_to_f32(tt_to_bf16(x)); }

// The unsigned type that integers of T wrap in; small ones in 32 bits.
template <class T> struct tt_wrap { typedef tt_u32 type; };
template <> struct tt_wrap<tt_i64> { typedef tt_u64 type; };
template <> struct tt_wrap<tt_u64> { typedef tt_u64 type; };
template <class T> TT_DEV T tt_add(T a, T b) { typedef typename tt_wrap<T>::type U; return T(U(a) + U(b)); }
template <class T> TT_DEV T tt_sub(T a, T b) { typedef typename tt_wrap<T>::type U; return T(U(a) - U(b)); }
template <class T> TT_DEV T tt_mul(T a, T b) { typedef typename tt_wrap<T>::type U; return T(U(a) * U(b)); }
template <class T> TT_DEV T tt_neg(T a) { typedef typename tt_wrap<T>::type U; return T(U(0) - U(a)); }

// The bytes of a value as another type of that size.
template <class To, class From> TT_DEV To tt_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  union { From from; To to; } u;
  u.from = from;
  return u.to;
}

template <class T> TT_DEV T tt_relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> TT_DEV T tt_max(T a, T b) { return a != a ? a : (a > b ? a : b); }
template <class T> TT_DEV T tt_min(T a, T b) { return a != a ? a : (a < b ? a : b); }
template <class T> TT_DEV T tt_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }
template <class T> TT_DEV T tt_abs(T x) { return x < T(0) ? tt_neg(x) : x; }
TT_DEV float tt_abs(float x) { return fabsf(x); }
TT_DEV double tt_abs(double x) { return fabs(x); }
template <class T> TT_DEV T tt_idiv(T a, T b) { return b == T(0) ? T(0) : b == T(-1) && T(-1) < T(0) ? tt_neg(a) : T(a / b); }
template <class T> TT_DEV T tt_irem(T a, T b) { return b == T(0) || (b == T(-1) && T(-1) < T(0)) ? T(0) : T(a % b); }
template <class T> TT_DEV T tt_imod(T a, T b) {
  const T r = tt_irem(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? T(r + b) : r;
}
template <class T> TT_DEV T tt_pow(T a, T b) {
  typedef typename tt_wrap<T>::type U;
  if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? ((b & T(1)) != T(0) ? T(-1) : T(1)) : T(0);
  U base = U(a), out = 1;
  for (T n = b; n != T(0); n = T(n >> 1)) {
    if ((n & T(1)) != T(0)) out *= base;
    base *= base;
  }
  return T(out);
}
template <class T> TT_DEV T tt_shl(T a, T b) { return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T((tt_u64)a << b); }
template <class T> TT_DEV T tt_shr(T a, T b) { return b < T(0) || b >= T(8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b); }
TT_DEV float tt_rem(float a, float b) { return fmodf(a, b); }
TT_DEV double tt_rem(double a, double b) { return fmod(a, b); }
// The remainder with the divisor's sign, zero included.
template <class T> TT_DEV T tt_mod(T a, T b) {
  const T r = tt_rem(a, b);
  if (b == T(0) || r != r) return r;
  return r == T(0) ? (b < T(0) ? T(-0.0) : T(0)) : (r < T(0)) != (b < T(0)) ? r + b : r;
}
// Truncated, saturated; NaN is 0.
template <class I, class F> TT_DEV I tt_to_int(F x) {
  const bool is_signed = I(-1) < I(0);
  const int bits = 8 * (int)sizeof(I) - (is_signed ? 1 : 0);
  const F limit = F(2) * F((tt_u64)1 << (bits - 1));
  const I most = is_signed ? I(~((tt_u64)1 << (8 * sizeof(I) - 1))) : I(-1);
  if (x != x) return I(0);
  if (x >= limit) return most;
  if (is_signed ? x <= -limit : x <= F(0)) return is_signed ? I((tt_u64)1 << (8 * sizeof(I) - 1)) : I(0);
  return I(x);
}
// To fp32 with an inexact result's last bit set: a second rounding to 16 bits then equals a direct one.
TT_DEV float tt_to_odd(double x) {
  const float y = (float)x;
  if (x != x || fabsf(y) == tt_bits_to_f32(0x7f800000u) || (double)y == x) return y;
  const tt_u32 u = tt_f32_to_bits(y);
  return tt_bits_to_f32((fabs((double)y) > fabs(x) ? u - 1 : u) | 1u);
}

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
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) tt_lanes { T at[N]; };
template <int N, class T> TT_DEV tt_lanes<T, N> tt_load_lanes(const T* p) { return *(const tt_lanes<T, N>*)p; }
template <int N, class T> TT_DEV tt_lanes<T, N> tt_load_lanes(const T* p, tt_i64 count) {
  if (count >= N) return tt_load_lanes<N>(p);
  tt_lanes<T, N> r = {};
  TT_UNROLL for (int i = 0; i < N; ++i) if (i < count) r.at[i] = p[i];
  return r;
}
template <int N, class T> TT_DEV void tt_store_lanes(T* p, const tt_lanes<T, N>& r) { *(tt_lanes<T, N>*)p = r; }
template <int N, class T> TT_DEV void tt_store_lanes(T* p, const tt_lanes<T, N>& r, tt_i64 count) {
  if (count >= N) { tt_store_lanes<N>(p, r); return; }
  TT_UNROLL for (int i = 0; i < N; ++i) if (i < count) p[i] = r.at[i];
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

#define TT_FLOAT_FUNCTION(name) \
  TT_DEV float tt_##name(float x) { return name##f(x); } \
  TT_DEV double tt_##name(double x) { return name(x); }
TT_FLOAT_FUNCTION(sqrt) TT_FLOAT_FUNCTION(exp) TT_FLOAT_FUNCTION(exp2) TT_FLOAT_FUNCTION(log) TT_FLOAT_FUNCTION(log2)
TT_FLOAT_FUNCTION(sin) TT_FLOAT_FUNCTION(cos) TT_FLOAT_FUNCTION(tan) TT_FLOAT_FUNCTION(asin) TT_FLOAT_FUNCTION(acos)
TT_FLOAT_FUNCTION(atan) TT_FLOAT_FUNCTION(sinh) TT_FLOAT_FUNCTION(cosh) TT_FLOAT_FUNCTION(tanh) TT_FLOAT_FUNCTION(asinh)
TT_FLOAT_FUNCTION(acosh) TT_FLOAT_FUNCTION(atanh) TT_FLOAT_FUNCTION(erf) TT_FLOAT_FUNCTION(floor) TT_FLOAT_FUNCTION(ceil)
TT_FLOAT_FUNCTION(rint) TT_FLOAT_FUNCTION(trunc)
TT_DEV float tt_pow(float x, float y) { return powf(x, y); }
TT_DEV double tt_pow(double x, double y) { return pow(x, y); }
TT_DEV float tt_atan2(float x, float y) { return atan2f(x, y); }
TT_DEV double tt_atan2(double x, double y) { return atan2(x, y); }
template <class T> TT_DEV T tt_recip(T x) { return T(1) / x; }
template <class T> TT_DEV T tt_rsqrt(T x) { return T(1) / tt_sqrt(x); }
template <class T> TT_DEV T tt_sigmoid(T x) {
  const T e = tt_exp(-tt_abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
