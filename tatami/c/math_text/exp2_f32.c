/* needs: f32x@W i32x@W u32x@W blend_f32x@W splat_f32x@W fma_f32x@W */
/* 2^x: n = round(x), r = x - n exactly, 1 + r P(r). About 1 ulp. */
static inline f32x@W t_exp2_f32x@W(f32x@W x) {
  x = t_blend_f32x@W((i32x@W)(x > 129.0f), t_splat_f32x@W(129.0f), x);
  x = t_blend_f32x@W((i32x@W)(x < -151.0f), t_splat_f32x@W(-151.0f), x);
  f32x@W z = x + 12582912.0f;
  f32x@W r = x - (z - 12582912.0f);
  f32x@W p = t_fma_f32x@W(r, t_splat_f32x@W(0x1.df2946p-17f), t_splat_f32x@W(0x1.441ceep-13f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.5da642p-10f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.3b2a5p-7f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.c6b06ep-5f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.ebfbep-3f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.62e43p-1f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(1.0f));
  i32x@W k = (i32x@W)((u32x@W)z - 0x4b400000u);
  i32x@W half = k >> 1;
  f32x@W a = (f32x@W)((u32x@W)(half + 127) << 23);
  f32x@W b = (f32x@W)((u32x@W)(k - half + 127) << 23);
  return p * a * b;
}
