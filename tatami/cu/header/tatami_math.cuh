// Plain arithmetic of generated kernels: no inline PTX, the same text on the GPU and under the emulator.
#pragma once

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile with rows of ROW_BYTES. With a swizzle the chunks of a
// span of up to 128 bytes are XORed with the row, so that eight rows read at one chunk fall in eight bank groups;
// ROWS neighbouring rows share one XOR (0: as many as fill 128 bytes), which grows by STEP.
template <int ROW_BYTES, int SWIZZLE, int ROWS = 0, int STEP = 1> TT_DEV tt_u32 tt_tile_offset(int row, int chunk) {
  constexpr int span = SWIZZLE == 0 ? 16 : SWIZZLE;
  constexpr int shared = ROWS ? ROWS : span < 128 ? 128 / span : 1;
  const int x = SWIZZLE == 0 ? 0 : row / shared * STEP & (span / 16 - 1);
  return (tt_u32)(row * ROW_BYTES + ((chunk ^ x) << 4));
}

// Row and column of point `d` of Hilbert's curve in a square of SIDE points, a power of two.
template <int SIDE> TT_DEV void tt_hilbert(int d, int& row, int& column) {
  row = column = 0;
  for (int s = 1; s < SIDE; s *= 2, d /= 4) {
    const int down = d / 2 & 1, right = (d ^ down) & 1;
    if (right == 0) {
      const int x = down ? s - 1 - row : row, y = down ? s - 1 - column : column;
      row = y, column = x;
    }
    row += s * down, column += s * right;
  }
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

// Over the four lanes of a quad. The largest is that of the numbers among them.
TT_DEV float tt_quad_max(float x) {
  TT_UNROLL for (int s = 1; s < 4; s *= 2) x = fmaxf(x, tt_bits_to_f32(tt_shuffle_xor(tt_f32_to_bits(x), s)));
  return x;
}
TT_DEV float tt_quad_sum(float x) {
  TT_UNROLL for (int s = 1; s < 4; s *= 2) x += tt_bits_to_f32(tt_shuffle_xor(tt_f32_to_bits(x), s));
  return x;
}

TT_DEV tt_i64 tt_floordiv(tt_i64 a, tt_i64 b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
TT_DEV tt_i64 tt_min_size(tt_i64 a, tt_i64 b) { return a < b ? a : b; }
TT_DEV tt_i64 tt_max_size(tt_i64 a, tt_i64 b) { return a > b ? a : b; }

TT_DEV float tt_value(tt_f16 x) { return tt_to_f32(x); }
TT_DEV float tt_value(tt_bf16 x) { return tt_to_f32(x); }
template <class T> TT_DEV T tt_value(T x) { return x; }

// N neighbours in memory, as one access of at most 16 bytes, or several.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) tt_lanes { T at[N]; };
template <int N, class T> TT_DEV tt_lanes<T, N> tt_load_lanes(const T* p) { return *(const tt_lanes<T, N>*)p; }
// The same by whole instructions, into registers.
TT_DEV void tt_load_words(tt_u32 (&r)[1], const void* p) { tt_load_global_v1(r, p); }
TT_DEV void tt_load_words(tt_u32 (&r)[2], const void* p) { tt_load_global_v2(r, p); }
TT_DEV void tt_load_words(tt_u32 (&r)[4], const void* p) { tt_load_global_v4(r, p); }
template <int N, class T> TT_DEV void tt_read_lanes(T* to, const T* p) {
  constexpr int bytes = N * (int)sizeof(T);
  union { tt_u32 words[(bytes + 3) / 4]; tt_lanes<T, N> lanes; } u;
  if constexpr (bytes % 4 != 0) u.lanes = tt_load_lanes<N>(p);
  else tt_load_words(u.words, p);
  TT_UNROLL for (int i = 0; i < N; ++i) to[i] = u.lanes.at[i];
}
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
TT_DEV float tt_tf32(float x) { return tt_bits_to_f32(tt_to_tf32(x) & 0xffffe000u); }
TT_DEV void tt_round_words(tt_u32 (&r)[4]) { TT_UNROLL for (int i = 0; i < 4; ++i) r[i] = tt_to_tf32(tt_bits_to_f32(r[i])); }
TT_DEV double tt_tf32(double x) {
  const tt_u64 half = (tt_u64)1 << 41;
  return x - x == 0.0 ? tt_bits<double>((tt_bits<tt_u64>(x) + half) & ~(2 * half - 1)) : x;
}
TT_DEV float tt_fma(float a, float b, float c) { return fmaf(a, b, c); }

template <class T> TT_DEV T tt_relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> TT_DEV T tt_max(T a, T b) { return a != a ? a : (a > b ? a : b); }
template <class T> TT_DEV T tt_min(T a, T b) { return a != a ? a : (a < b ? a : b); }
template <class T> TT_DEV T tt_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x + T(0); }
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
