/* needs: f32x4 f64x4 i32x4 splat_f32x4 splat_f64x4 blend_f32x4 choose_f64x4 floor_f32x4 magnitude_f32 logfour_f32 expfour_f32 */
/* x^y = 2^(y log2 |x|). Infinities, zeros and NaN as C has them. */
static inline f32x4 t_powfour_f32(f32x4 x, f32x4 y) {
  f64x4 d = t_magnitude_f32(x), w = __builtin_convertvector(y, f64x4);
  f64x4 t = t_choose_f64x4((d == 1.0) | (w == 0.0), t_splat_f64x4(0.0), w * t_logfour_f32(d));
  f32x4 out = __builtin_convertvector(t_expfour_f32(t), f32x4), half = y * 0.5f;
  i32x4 whole = (i32x4)(t_floor_f32x4(y) == y), odd = whole & (i32x4)(t_floor_f32x4(half) != half);
  out = (f32x4)((i32x4)out ^ ((i32x4)x & odd & (-0x7fffffff - 1)));
  i32x4 none = (i32x4)(x < 0.0f) & (i32x4)(x != -__builtin_inff()) & ~whole;
  return t_blend_f32x4(none, t_splat_f32x4(__builtin_nanf("")), out);
}
