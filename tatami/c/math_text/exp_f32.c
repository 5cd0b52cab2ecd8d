/* needs: f32x@W i32x@W u32x@W blend_f32x@W splat_f32x@W fma_f32x@W scale_f32x@W */
/* e^x: n = round(x log2 e), r = x - n ln 2 in two parts, 1 + r + r^2 P(r), scaled by 2^n. What is too small for any
   number is 0 without computing it: such results cost the processor a hundred cycles. About 1 ulp. */
static inline f32x@W t_exp_f32x@W(f32x@W x) {
  x = t_blend_f32x@W((i32x@W)(x > 89.0f), t_splat_f32x@W(89.0f), x);
  i32x@W low = x < -104.0f;
  x = t_blend_f32x@W(low, t_splat_f32x@W(0.0f), x);
  f32x@W z = t_fma_f32x@W(x, t_splat_f32x@W(0x1.715476p+0f), t_splat_f32x@W(12582912.0f));
  f32x@W n = z - 12582912.0f;
  f32x@W r = t_fma_f32x@W(n, t_splat_f32x@W(-0x1.63p-1f), x);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.bd0106p-13f), r);
  f32x@W p = t_fma_f32x@W(r, t_splat_f32x@W(0x1.a2d26p-13f), t_splat_f32x@W(0x1.6d345ap-10f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.110fc4p-7f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.5554fep-5f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0x1.555556p-3f));
  p = t_fma_f32x@W(p, r, t_splat_f32x@W(0.5f));
  p = t_fma_f32x@W(p, r * r, r) + 1.0f;
  return (f32x@W)((i32x@W)t_scale_f32x@W(p, z) & ~low);
}
