/* needs: logparts_f32x@W */
/* Base-2 logarithm: log2 e = 1 + 0.4427. */
static inline f32x@W t_log2_f32x@W(f32x@W x) {
  f32x@W e, f;
  i32x@W usual = (i32x@W)(x > 0.0f) & (i32x@W)(x < __builtin_inff());
  f32x@W rest = t_logparts_f32x@W(t_blend_f32x@W(usual, x, t_splat_f32x@W(1.0f)), &e, &f);
  f32x@W y = (rest * 0x1.c551d94ap-2f + f * 0x1.c551d94ap-2f + rest) + f + e;
  f32x@W odd = t_blend_f32x@W((i32x@W)(x == 0.0f), t_splat_f32x@W(-__builtin_inff()), t_splat_f32x@W(__builtin_nanf("")));
  odd = t_blend_f32x@W((i32x@W)(x == __builtin_inff()), x, odd);
  return t_blend_f32x@W(usual, y, odd);
}
