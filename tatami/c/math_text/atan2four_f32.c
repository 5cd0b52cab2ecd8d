/* needs: f32x@W f64x@W i32x@W i64x@W splat_f32x@W splat_f64x@W blend_f32x@W choose_f64x@W */
/* The angle of (x, y) in double precision, rounded once: the arc tangent of a quotient within tan(pi / 8), by its series cut below
   2^-32, and what turns it to its eighth of the circle. Zeros, infinities and NaN as C has them. */
static inline f32x@W t_atan2four_f32x@W(f32x@W y, f32x@W x) {
  f64x@W a = __builtin_convertvector((f32x@W)((i32x@W)y & 0x7fffffff), f64x@W);
  f64x@W b = __builtin_convertvector((f32x@W)((i32x@W)x & 0x7fffffff), f64x@W);
  i64x@W steep = a > b;
  f64x@W n = t_choose_f64x@W(steep, b, a), d = t_choose_f64x@W(steep, a, b), one = t_splat_f64x@W(1.0), none = one - one;
  i64x@W far = d == __builtin_inf();
  n = t_choose_f64x@W(far, t_choose_f64x@W(n == d, one, none), n);
  d = t_choose_f64x@W(far | (d == 0.0), one, d);
  i64x@W near = n > 0.41421356237309503 * d;
  f64x@W s = t_choose_f64x@W(near, n - d, n) / t_choose_f64x@W(near, n + d, d), z = s * s;
  f64x@W p = z * (1.0 / 21) - 1.0 / 19;
  p = (((p * z + 1.0 / 17) * z - 1.0 / 15) * z + 1.0 / 13) * z - 1.0 / 11;
  p = (((((p * z + 1.0 / 9) * z - 1.0 / 7) * z + 1.0 / 5) * z - 1.0 / 3) * z + 1.0) * s;
  p = p + t_choose_f64x@W(near, t_splat_f64x@W(0.78539816339744831), none);
  p = t_choose_f64x@W(steep, 1.5707963267948966 - p, p);
  p = t_choose_f64x@W(__builtin_convertvector((i32x@W)x >> 31, i64x@W), 3.1415926535897931 - p, p);
  f32x@W out = (f32x@W)((i32x@W)__builtin_convertvector(p, f32x@W) ^ ((i32x@W)y & (-0x7fffffff - 1)));
  i32x@W bad = (i32x@W)(x != x) | (i32x@W)(y != y);
  return t_blend_f32x@W(bad, t_splat_f32x@W(__builtin_nanf("")), out);
}
