/* needs: f32x@W u32x@W splat_f32x@W fma_f32x@W */
/* c (e^x - 1) of |x| < 80, c a power of two: c 2^n (e^r - 1) + (c 2^n - c), which is exact around 0, where the sum with 1 loses. */
static inline f32x@W t_fewgrow_f32x@W(f32x@W x, float c) {
  f32x@W z = t_fma_f32x@W(x, t_splat_f32x@W(0x1.715476p+0f), t_splat_f32x@W(12582912.0f));
  f32x@W n = z - 12582912.0f;
  f32x@W most = t_fma_f32x@W(n, t_splat_f32x@W(-0x1.63p-1f), x);
  f32x@W r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.bd0106p-13f), most);
  f32x@W s = r * r;
  f32x@W high = t_fma_f32x@W(r, t_splat_f32x@W(0x1.6d117cp-10f), t_splat_f32x@W(0x1.120be2p-7f));
  f32x@W p = t_fma_f32x@W(r, t_splat_f32x@W(0x1.555518p-5f), t_splat_f32x@W(0x1.5554dcp-3f));
  p = t_fma_f32x@W(high, s, p);
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1p-1f));
#ifdef T_FUSED_@W
  p = t_fma_f32x@W(p, s, r);
#else  /* products round too: what r has lost is added */
  p = (p * s + ((most - r) + n * 0x1.bd0106p-13f)) + r;
#endif
  f32x@W scale = (f32x@W)(((u32x@W)z << 23) + (u32x@W)t_splat_f32x@W(c));
  return t_fma_f32x@W(p, scale, scale - c);
}
