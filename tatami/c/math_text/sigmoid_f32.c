/* needs: exp_f32x@W */
static inline f32x@W t_sigmoid_f32x@W(f32x@W x) {
  f32x@W e = t_exp_f32x@W((f32x@W)((u32x@W)x | 0x80000000u));
  return t_blend_f32x@W((i32x@W)(x < 0.0f), e, t_splat_f32x@W(1.0f)) / (1.0f + e);
}
