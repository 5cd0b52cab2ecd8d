/* needs: f64x4 i64x4 u64x4 splat_f64x4 choose_f64x4 */
/* log2 of doubles that are normal, below 2^-31 of it: 2 atanh((m - 1) / (m + 1)) for m in [sqrt(1/2), sqrt 2). Zero gives -inf,
   infinity itself, what is negative NaN. */
static inline f64x4 t_logfour_f32(f64x4 d) {
  u64x4 bits = (u64x4)d, k = (bits + 0x00095f619980c433) >> 52;
  f64x4 e = (f64x4)(k | 0x4330000000000000) - 4503599627371519.0;
  f64x4 m = (f64x4)(bits - ((k - 1023) << 52));
  f64x4 s = (m - 1.0) / (m + 1.0), z = s * s;
  f64x4 p = z * (1.0 / 13) + 1.0 / 11;
  p = (((((p * z + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3) * z + 1.0) * (s * 2.8853900817779268) + e;
  p = t_choose_f64x4(d == 0.0, t_splat_f64x4(-__builtin_inf()), p);
  p = t_choose_f64x4((d == __builtin_inf()) | (d != d), d, p);
  return t_choose_f64x4(d < 0.0, t_splat_f64x4(__builtin_nan("")), p);
}
