/* needs: f32x4 f64x4 magnitude_f32 rootfour_f32 arcfour_f32 halfturn_f32 */
/* Arc cosine: the angle of (x, sqrt(1 - x^2)). */
static inline f32x4 t_acosfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x), p = t_arcfour_f32(t_rootfour_f32((1.0 - d) * (1.0 + d)), d);
  return __builtin_convertvector(t_halfturn_f32(p, x), f32x4);
}
