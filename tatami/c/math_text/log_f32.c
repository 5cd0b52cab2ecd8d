/* needs: logparts_f32x@W */
/* Natural logarithm; negative gives NaN, zero -inf. About 1 ulp. */
static inline f32x@W t_log_f32x@W(f32x@W x) {
  f32x@W e, f;
  i32x@W usual = (i32x@W)(x > 0.0f) & (i32x@W)(x < __builtin_inff());
  f32x@W rest = t_logparts_f32x@W(t_blend_f32x@W(usual, x, t_splat_f32x@W(1.0f)), &e, &f);
  f32x@W y = (rest + e * -0x1.bd0106p-13f) + f + e * 0x1.63p-1f;
  f32x@W odd = t_blend_f32x@W((i32x@W)(x == 0.0f), t_splat_f32x@W(-__builtin_inff()), t_splat_f32x@W(__builtin_nanf("")));
  odd = t_blend_f32x@W((i32x@W)(x == __builtin_inff()), x, odd);
  return t_blend_f32x@W(usual, y, odd);
}
