/* needs: f32x@W splat_f32x@W fma_f32x@W atmost_f32x@W scale_f32x@W */
/* 2^x: n = round(x), r = x - n exactly, 1 + r P(r). About 1 ulp. */
static inline f32x@W t_exp2_f32x@W(f32x@W x) {
#ifndef T_TESTED_@W
  x = t_atmost_f32x@W(x, 129.0f);
#endif
  f32x@W z = x + 12582912.0f;
  f32x@W r = x - (z - 12582912.0f);
  f32x@W p = t_fma_f32x@W(r, t_splat_f32x@W(0x1.df2946p-17f), t_splat_f32x@W(0x1.441ceep-13f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.5da642p-10f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.3b2a5p-7f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.c6b06ep-5f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.ebfbep-3f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.62e43p-1f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(1.0f));
  return t_scale_f32x@W(p, z, x, -151.0f, 129.0f, 125.0f);
}
