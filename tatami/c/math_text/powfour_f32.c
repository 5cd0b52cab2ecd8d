/* needs: f32x@W f64x@W i32x@W i64x@W u64x@W splat_f32x@W splat_f64x@W blend_f32x@W choose_f64x@W floor_f32x@W */
/* x^y = 2^(y log2 |x|) in double precision, rounded once: log2 by 2 atanh((m - 1) / (m + 1)) for m in [sqrt(1/2), sqrt 2), both
   series cut below 2^-31. Infinities, zeros and NaN as C has them. */
static inline f32x@W t_powfour_f32x@W(f32x@W x, f32x@W y) {
  f64x@W d = __builtin_convertvector((f32x@W)((i32x@W)x & 0x7fffffff), f64x@W), w = __builtin_convertvector(y, f64x@W);
  u64x@W bits = (u64x@W)d, k = (bits + 0x00095f619980c433) >> 52;
  f64x@W e = (f64x@W)(k | 0x4330000000000000) - 4503599627371519.0;
  f64x@W m = (f64x@W)(bits - ((k - 1023) << 52));
  f64x@W s = (m - 1.0) / (m + 1.0), z = s * s;
  f64x@W p = z * (1.0 / 13) + 1.0 / 11;
  p = (((((p * z + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3) * z + 1.0) * (s * 2.8853900817779268) + e;
  p = t_choose_f64x@W((i64x@W)(d == 0.0), t_splat_f64x@W(-__builtin_inf()), p);
  p = t_choose_f64x@W((d == __builtin_inf()) | (d != d), d, p);
  f64x@W t = t_choose_f64x@W((d == 1.0) | (w == 0.0), t_splat_f64x@W(0.0), w * p);
  t = t_choose_f64x@W(t > 200.0, t_splat_f64x@W(200.0), t);
  t = t_choose_f64x@W(t < -200.0, t_splat_f64x@W(-200.0), t);
  f64x@W n = t + 6755399441055744.0, r = t - (n - 6755399441055744.0);
  p = r * 1.3215486790144307e-6 + 1.5252733804059841e-5;
  p = ((((p * r + 1.540353039338161e-4) * r + 1.3333558146428443e-3) * r + 9.618129107628477e-3) * r + 5.550410866482158e-2) * r;
  p = ((p + 0.2402265069591007) * r + 0.6931471805599453) * r + 1.0;
  p = t_choose_f64x@W(t != t, t, (f64x@W)((u64x@W)p + ((u64x@W)n << 52)));
  f32x@W out = __builtin_convertvector(p, f32x@W), half = y * 0.5f;
  i32x@W whole = (i32x@W)(t_floor_f32x@W(y) == y), odd = whole & (i32x@W)(t_floor_f32x@W(half) != half);
  out = (f32x@W)((i32x@W)out ^ ((i32x@W)x & odd & (-0x7fffffff - 1)));
  i32x@W none = (i32x@W)(x < 0.0f) & (i32x@W)(x != -__builtin_inff()) & ~whole;
  return t_blend_f32x@W(none, t_splat_f32x@W(__builtin_nanf("")), out);
}
