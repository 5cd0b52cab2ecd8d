/* needs: f32x4 f64x4 choose_f64x4 magnitude_f32 expfour_f32 signed_f32 */
/* Hyperbolic sine; of small numbers by its series. */
static inline f32x4 t_sinhfour_f32(f32x4 x) {
  f64x4 d = t_magnitude_f32(x), e = t_expfour_f32(d * 1.4426950408889634), z = d * d;
  f64x4 near = (((z * (1.0 / 362880) + 1.0 / 5040) * z + 1.0 / 120) * z + 1.0 / 6) * z * d + d;
  return t_signed_f32(t_choose_f64x4(d < 0.5, near, (e - 1.0 / e) * 0.5), x);
}
