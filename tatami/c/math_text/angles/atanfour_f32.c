/* needs: f32x4 splat_f64x4 magnitude_f32 arcfour_f32 signed_f32 */
/* Arc tangent. */
static inline f32x4 t_atanfour_f32(f32x4 x) { return t_signed_f32(t_arcfour_f32(t_magnitude_f32(x), t_splat_f64x4(1.0)), x); }
