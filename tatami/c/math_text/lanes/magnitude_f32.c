/* needs: f32x4 i32x4 f64x4 */
/* |x| in double precision. */
static inline f64x4 t_magnitude_f32(f32x4 x) { return __builtin_convertvector((f32x4)((i32x4)x & 0x7fffffff), f64x4); }
