/* needs: f32x4 f64x4 i32x4 i64x4 choose_f64x4 magnitude_f32 rootfour_f32 arcfour_f32 */
/* Arc cosine: the angle of (x, sqrt(1 - x^2)). */
static inline f32x4 t_acosfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x), p = t_arcfour_f32(t_rootfour_f32((1.0 - d) * (1.0 + d)), d);
  p = t_choose_f64x4(__builtin_convertvector((i32x4)x >> 31, i64x4), 3.1415926535897931 - p, p);
  return __builtin_convertvector(p, f32x4);
}
