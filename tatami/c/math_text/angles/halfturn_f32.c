/* needs: f32x4 f64x4 i32x4 i64x4 choose_f64x4 */
/* An angle of the right half, or pi less it where the sign of x says left. */
static inline f64x4 t_halfturn_f32(f64x4 angle, f32x4 x) {
  return t_choose_f64x4(__builtin_convertvector((i32x4)x >> 31, i64x4), 3.1415926535897931 - angle, angle);
}
