/* needs: f32x4 f64x4 magnitude_f32 expfour_f32 */
/* Hyperbolic cosine. */
static inline f32x4 t_coshfour_f32(f32x4 x) {
  f64x4 e = t_expfour_f32(t_magnitude_f32(x) * 1.4426950408889634);
  return __builtin_convertvector((e + 1.0 / e) * 0.5, f32x4);
}
