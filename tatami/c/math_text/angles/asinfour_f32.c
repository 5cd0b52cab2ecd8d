/* needs: f32x4 f64x4 magnitude_f32 rootfour_f32 arcfour_f32 signed_f32 */
/* Arc sine: the angle of (sqrt(1 - x^2), x). */
static inline f32x4 t_asinfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x);
  return t_signed_f32(t_arcfour_f32(d, t_rootfour_f32((1.0 - d) * (1.0 + d))), x);
}
