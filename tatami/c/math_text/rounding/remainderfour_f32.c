/* needs: f32x4 f64x4 i32x4 i64x4 splat_f64x4 choose_f64x4 */
/* fmod: x - n y for the nearest whole n is exact in double precision where n has 28 bits; it is then within half of y, and
   gets the sign of x. Others one by one. */
static inline f32x4 t_remainderfour_f32(f32x4 x, f32x4 y) {
  f64x4 a = __builtin_convertvector(x, f64x4), b = __builtin_convertvector(y, f64x4), q = a / b;
  i64x4 usual = (q < 268435456.0) & (q > -268435456.0) & (b < __builtin_inf()) & (b > -__builtin_inf());
  f32x4 out;
  if (__builtin_expect((usual[0] & usual[1] & usual[2] & usual[3]) == 0, 0)) {
    for (int i = 0; i < 4; ++i) out[i] = fmodf(x[i], y[i]);
    return out;
  }
  f64x4 r = a - ((q + 6755399441055744.0) - 6755399441055744.0) * b, size = (f64x4)((i64x4)b & 0x7fffffffffffffff);
  r = t_choose_f64x4((r < 0.0) & (a > 0.0), r + size, t_choose_f64x4((r > 0.0) & (a < 0.0), r - size, r));
  out = __builtin_convertvector(r, f32x4);
  return (f32x4)(((i32x4)out & 0x7fffffff) | ((i32x4)x & (-0x7fffffff - 1)));
}
