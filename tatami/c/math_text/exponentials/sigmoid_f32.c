/* needs: exp_f32x@W blend_f32x@W splat_f32x@W fma_f32x@W */
/* 1/(1 + e^-x), for negative x e^x/(1 + e^x): neither overflows. What the sum loses is taken into account. Below 2 ulp. */
static inline f32x@W t_sigmoid_f32x@W(f32x@W x) {
  f32x@W e = t_exp_f32x@W((f32x@W)((u32x@W)x | 0x80000000u));
  f32x@W d = 1.0f + e;
  f32x@W y = t_blend_f32x@W((i32x@W)(x < 0.0f), e, t_splat_f32x@W(1.0f)) / d;
  return t_fma_f32x@W(y, (d - 1.0f) - e, y);
}
