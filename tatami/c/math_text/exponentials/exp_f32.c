/* needs: f32x@W splat_f32x@W fma_f32x@W atmost_f32x@W scale_f32x@W */
/* e^x: n = round(x log2 e), r = x - n ln 2 in two parts, a polynomial of r, scaled by 2^n. Below 1 ulp. */
static inline f32x@W t_exp_f32x@W(f32x@W x) {
#ifndef T_TESTED_@W
  x = t_atmost_f32x@W(x, 89.0f);
#endif
  f32x@W z = t_fma_f32x@W(x, t_splat_f32x@W(0x1.715476p+0f), t_splat_f32x@W(12582912.0f));
  f32x@W n = z - 12582912.0f;
  f32x@W r = t_fma_f32x@W(n, t_splat_f32x@W(-0x1.63p-1f), x);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.bd0106p-13f), r);
  f32x@W p = t_fma_f32x@W(r, t_splat_f32x@W(0x1.6d117cp-10f), t_splat_f32x@W(0x1.120be2p-7f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.555518p-5f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.5554dcp-3f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1p-1f));
#ifdef T_FUSED_@W
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(1.0f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(1.0f));
#else  /* products round too: first the sum with r, which is small */
  p = (p * (r * r) + r) + 1.0f;
#endif
  return t_scale_f32x@W(p, z, x, -104.0f, 89.0f, 87.0f);
}
