/* needs: f32x4 f64x4 i32x4 i64x4 choose_f64x4 magnitude_f32 arcfour_f32 signed_f32 */
/* The angle of (x, y). Zeros, infinities and NaN as C has them. */
static inline f32x4 t_atan2four_f32(f32x4 y, f32x4 x) {
  f64x4 p = t_arcfour_f32(t_magnitude_f32(y), t_magnitude_f32(x));
  p = t_choose_f64x4(__builtin_convertvector((i32x4)x >> 31, i64x4), 3.1415926535897931 - p, p);
  return t_signed_f32(p, y);
}
