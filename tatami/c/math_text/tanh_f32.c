/* needs: tanhtable_f32x16 exp_f32x@W fma_f32x@W splat_f32x@W */
/* Odd polynomial below 0.625, 1 - 2/(e^2x + 1) above. */
static inline f32x@W t_tanh_f32x@W(f32x@W x) {
#if defined(__AVX512F__)
  union { f32x@W few; f32x16 all; } u = {.all = {0}};
  u.few = x;
  u.all = t_tanhtable_f32x16(u.all);
  return u.few;
#else
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W a = (f32x@W)((u32x@W)x ^ sign);
  f32x@W s = x * x;
  f32x@W p = t_fma_f32x@W(s, t_splat_f32x@W(0x1.19e7p-9f), t_splat_f32x@W(-0x1.0c5192p-7f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.63a398p-6f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.b9f176p-5f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.11107ap-3f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.555554p-2f));
  p = t_fma_f32x@W(p * s, x, x);
  f32x@W large = 1.0f - 2.0f / (t_exp_f32x@W(a + a) + 1.0f);
  large = (f32x@W)((u32x@W)large | sign);
  return t_blend_f32x@W((i32x@W)(a < 0.625f), p, large);
#endif
}
