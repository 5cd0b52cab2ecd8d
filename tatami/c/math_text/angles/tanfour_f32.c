/* needs: f32x4 f64x4 i64x4 choose_f64x4 */
/* Tangent: x - k pi / 2, exactly enough below 2^17, and the series of sine and cosine within pi / 4. Others one by one. The sine is a product, so that -0 stays it. */
static inline f32x4 t_tanfour_f32(f32x4 x) {
  f64x4 d = __builtin_convertvector(x, f64x4), n = d * 0.63661977236758134 + 6755399441055744.0, k = n - 6755399441055744.0;
  i64x4 usual = (d < 131072.0) & (d > -131072.0);
  f32x4 out;
  if (__builtin_expect((usual[0] & usual[1] & usual[2] & usual[3]) == 0, 0)) {
    for (int i = 0; i < 4; ++i) out[i] = (float)tan(x[i]);
    return out;
  }
  f64x4 r = d - k * 1.57079632673412561417 - k * 6.07710050650619224932e-11, z = r * r;
  f64x4 s = (((((z * (-1.0 / 39916800) + 1.0 / 362880) * z - 1.0 / 5040) * z + 1.0 / 120) * z - 1.0 / 6) * z + 1.0) * r;
  f64x4 c = (((((z * (1.0 / 479001600) - 1.0 / 3628800) * z + 1.0 / 40320) * z - 1.0 / 720) * z + 1.0 / 24) * z - 0.5) * z + 1.0;
  i64x4 odd = -((i64x4)n & 1);
  return __builtin_convertvector(t_choose_f64x4(odd, -c, s) / t_choose_f64x4(odd, s, c), f32x4);
}
