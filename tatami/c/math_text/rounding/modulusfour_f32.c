/* needs: f32x4 i32x4 blend_f32x4 remainderfour_f32 */
/* Remainder with the divisor's sign, as mod_f32. */
static inline f32x4 t_modulusfour_f32(f32x4 x, f32x4 y) {
  f32x4 r = t_remainderfour_f32(x, y), none = (f32x4)((i32x4)y & (-0x7fffffff - 1));
  i32x4 apart = (i32x4)(r != 0.0f) & (((i32x4)y ^ (i32x4)r) >> 31);
  return t_blend_f32x4((i32x4)(r == 0.0f) & (i32x4)(y != 0.0f), none, t_blend_f32x4(apart, r + y, r));
}
