/* needs: f32x@W i32x@W u32x@W splat_f32x@W blend_f32x@W any_i32x@W logusual_f32x@W */
/* Natural logarithm, or with `two` to base 2; negative gives NaN, zero -inf. What is no finite, positive and normal number is
   looked at where a lane has one. */
static inline f32x@W t_logany_f32x@W(f32x@W x, int two) {
  f32x@W y = t_logusual_f32x@W(x, two);
  i32x@W unusual = (i32x@W)((u32x@W)x - 0x00800000u >= 0x7f000000u);
  if (__builtin_expect(t_any_i32x@W(unusual), 0)) {
    f32x@W odd = t_blend_f32x@W((i32x@W)(x == 0.0f), t_splat_f32x@W(-__builtin_inff()), t_splat_f32x@W(__builtin_nanf("")));
    odd = t_blend_f32x@W((i32x@W)(x == __builtin_inff()), x, odd);
    i32x@W tiny = (i32x@W)(x > 0.0f) & (i32x@W)(x < 0x1p-126f);
    f32x@W small = t_logusual_f32x@W(t_blend_f32x@W(tiny, x * 0x1p+23f, t_splat_f32x@W(1.0f)), two);
    odd = t_blend_f32x@W(tiny, small - (two ? 23.0f : 0x1.fe2804p+3f), odd);
    y = t_blend_f32x@W(unusual, odd, y);
  }
  return y;
}
