/* needs: f32x4 f64x4 magnitude_f32 arcfour_f32 halfturn_f32 signed_f32 */
/* The angle of (x, y). Zeros, infinities and NaN as C has them. */
static inline f32x4 t_atan2four_f32(f32x4 y, f32x4 x) {
  f64x4 p = t_arcfour_f32(t_magnitude_f32(y), t_magnitude_f32(x));
  return t_signed_f32(t_halfturn_f32(p, x), y);
}
