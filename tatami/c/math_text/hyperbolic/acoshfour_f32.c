/* needs: f32x4 f64x4 splat_f64x4 choose_f64x4 rootfour_f32 logfour_f32 */
/* Inverse hyperbolic cosine. */
static inline f32x4 t_acoshfour_f32(f32x4 x) {
  f64x4 d = __builtin_convertvector(x, f64x4), p = t_logfour_f32(d + t_rootfour_f32((d - 1.0) * (d + 1.0)));
  return __builtin_convertvector(t_choose_f64x4(d < 1.0, t_splat_f64x4(__builtin_nan("")), p * 0.69314718055994531), f32x4);
}
