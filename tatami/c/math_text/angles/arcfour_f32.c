/* needs: f64x4 i64x4 splat_f64x4 choose_f64x4 */
/* The angle of (b, a), neither of them negative, below 2^-32 of it: the arc tangent of a quotient within tan(pi / 8) by its series,
   and what turns it to its eighth of the circle. */
static inline f64x4 t_arcfour_f32(f64x4 a, f64x4 b) {
  i64x4 steep = a > b;
  f64x4 n = t_choose_f64x4(steep, b, a), d = t_choose_f64x4(steep, a, b), one = t_splat_f64x4(1.0), none = one - one;
  i64x4 far = d == __builtin_inf();
  n = t_choose_f64x4(far, t_choose_f64x4(n == d, one, n * 0.0), n);
  d = t_choose_f64x4(far | (d == 0.0), one, d);
  i64x4 near = n > 0.41421356237309503 * d;
  f64x4 s = t_choose_f64x4(near, n - d, n) / t_choose_f64x4(near, n + d, d), z = s * s;
  f64x4 p = z * (1.0 / 21) - 1.0 / 19;
  p = (((p * z + 1.0 / 17) * z - 1.0 / 15) * z + 1.0 / 13) * z - 1.0 / 11;
  p = (((((p * z + 1.0 / 9) * z - 1.0 / 7) * z + 1.0 / 5) * z - 1.0 / 3) * z + 1.0) * s;
  p = p + t_choose_f64x4(near, t_splat_f64x4(0.78539816339744831), none);
  return t_choose_f64x4(steep, 1.5707963267948966 - p, p);
}
