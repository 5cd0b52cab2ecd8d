/* needs: erftable_f32x16 fewgrow_f32x@W atmost_f32x@W fma_f32x@W splat_f32x@W */
/* 1 - exp(-(x + x Q(x))), Q a polynomial for which 1 - erf has nearly the right size at 0 to 4; 1 from 4 on. Below 2 ulp. */
static inline f32x@W t_erf_f32x@W(f32x@W x) {
#if defined(__AVX512F__)
  union { f32x@W few; f32x16 all; } u = {.all = {0}};
  u.few = x;
  u.all = t_erftable_f32x16(u.all);
  return u.few;
#else
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W b = t_atmost_f32x@W((f32x@W)((u32x@W)x ^ sign), 4.0f);
  f32x@W s = b * b;
  f32x@W q2 = t_fma_f32x@W(b, t_splat_f32x@W(-0x1.39cdc4p-6f), t_splat_f32x@W(0x1.a4fa5ep-4f));
  f32x@W q4 = t_fma_f32x@W(b, t_splat_f32x@W(0x1.b500a4p-10f), t_splat_f32x@W(-0x1.50625cp-13f));
  f32x@W q6 = t_fma_f32x@W(b, t_splat_f32x@W(0x1.ed6d4p-14f), t_splat_f32x@W(-0x1.4bca4ep-11f));
  q6 = t_fma_f32x@W(s, t_splat_f32x@W(-0x1.36979p-17f), q6);
  f32x@W q = t_fma_f32x@W(t_fma_f32x@W(q6, s, q4), s, q2);
  q = t_fma_f32x@W(t_fma_f32x@W(q, b, t_splat_f32x@W(0x1.45f2fap-1f)), b, t_splat_f32x@W(0x1.06eba8p-3f));
  f32x@W y = t_fewgrow_f32x@W(-t_fma_f32x@W(q, b, b), -1.0f);
  return (f32x@W)((u32x@W)y | sign);
#endif
}
