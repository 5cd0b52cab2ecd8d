/* needs: erftable_f32x16 exp_f32x@W fma_f32x@W splat_f32x@W */
/* x P(x^2) below 1, 1 - exp(-x Q(x)) above (1 from 4 on). About 2 ulp. */
static inline f32x@W t_erf_f32x@W(f32x@W x) {
#if defined(__AVX512F__)
  union { f32x@W few; f32x16 all; } u = {.all = {0}};
  u.few = x;
  u.all = t_erftable_f32x16(u.all);
  return u.few;
#else
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W a = (f32x@W)((u32x@W)x ^ sign);
  f32x@W s = x * x;
  f32x@W p = t_fma_f32x@W(s, t_splat_f32x@W(-0x1.3a49d6p-14f), t_splat_f32x@W(0x1.76620cp-12f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.3e5534p-10f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.6872a4p-8f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.ba074ap-6f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.ce4808p-4f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.8127dap-2f));
  p = t_fma_f32x@W(t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.06ebbp-3f)), x, x);
  f32x@W b = t_blend_f32x@W((i32x@W)(a > 4.0f), t_splat_f32x@W(4.0f), a);
  f32x@W q = t_fma_f32x@W(b, t_splat_f32x@W(0x1.e886f8p-19f), t_splat_f32x@W(-0x1.ee619cp-16f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(-0x1.17aed8p-13f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(0x1.9f1294p-9f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(-0x1.79eaf6p-6f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(0x1.b0b818p-4f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(0x1.455632p-1f));
  q = t_fma_f32x@W(q, b, t_splat_f32x@W(0x1.20ebb6p+0f));
  f32x@W large = 1.0f - t_exp_f32x@W(-(b * q));
  large = (f32x@W)((u32x@W)large | sign);
  return t_blend_f32x@W((i32x@W)(a < 1.0f), p, large);
#endif
}
