/* needs: f32x4 f64x4 choose_f64x4 magnitude_f32 logfour_f32 signed_f32 */
/* Inverse hyperbolic tangent; of small numbers by its series. */
static inline f32x4 t_atanhfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x), z = d * d, near = ((z * (1.0 / 7) + 1.0 / 5) * z + 1.0 / 3) * z * d + d;
  f64x4 far = t_logfour_f32((1.0 + d) / (1.0 - d)) * 0.34657359027997264;
  return t_signed_f32(t_choose_f64x4(d < 1.0 / 64, near, far), x);
}
