/* needs: f32x@W i32x@W u32x@W blend_f32x@W splat_f32x@W fma_f32x@W */
/* x = m 2^e with m in [sqrt(1/2), sqrt 2): returns log m - (m-1) and sets *e and *f = m - 1. x is finite, positive. */
static inline f32x@W t_logparts_f32x@W(f32x@W x, f32x@W* e, f32x@W* f) {
  i32x@W tiny = (i32x@W)(x < 0x1p-126f);
  x = t_blend_f32x@W(tiny, x * 0x1p+23f, x);
  i32x@W k = ((i32x@W)((u32x@W)x - 0x3f3504f3u)) >> 23;
  f32x@W m = (f32x@W)((u32x@W)x - ((u32x@W)k << 23));
  *e = __builtin_convertvector(k - (tiny & 23), f32x@W);
  f32x@W g = m - 1.0f;
  *f = g;
  f32x@W p = t_fma_f32x@W(g, t_splat_f32x@W(0x1.1b702p-4f), t_splat_f32x@W(-0x1.e34b68p-4f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(0x1.e66fecp-4f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(-0x1.fb3848p-4f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(0x1.23308cp-3f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(-0x1.556306p-3f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(0x1.99a556p-3f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(-0x1.ffffeep-3f));
  p = t_fma_f32x@W(p, g, t_splat_f32x@W(0x1.555546p-2f));
  f32x@W s = g * g;
  return s * g * p - 0.5f * s;
}
