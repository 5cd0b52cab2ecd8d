/* needs: f32x4 f64x4 choose_f64x4 magnitude_f32 rootfour_f32 logfour_f32 signed_f32 */
/* Inverse hyperbolic sine; of small numbers by its series. */
static inline f32x4 t_asinhfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x), z = d * d, near = (z * (3.0 / 40) - 1.0 / 6) * z * d + d;
  f64x4 far = t_logfour_f32(d + t_rootfour_f32(z + 1.0)) * 0.69314718055994531;
  return t_signed_f32(t_choose_f64x4(d < 1.0 / 64, near, far), x);
}
