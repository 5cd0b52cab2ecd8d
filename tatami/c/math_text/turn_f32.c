/* needs: f32x@W i32x@W u32x@W splat_f32x@W fma_f32x@W blend_f32x@W any_i32x@W widerturn_f32x@W */
/* The sine of x + quarter pi/2, |x| < 10^6. Below 10^5 and with fused multiply-adds x is reduced by pi/2 in three parts: the
   first difference is exact, so that two roundings remain. Polynomials: minimax to 0.816 of sin(r)/r (2^-27.5) and cos(r)
   (2^-32.7). Each lane has the same bits whatever its neighbours are. */
static inline f32x@W t_turn_f32x@W(f32x@W x, int quarter) {
#if defined(T_FUSED_@W)
  f32x@W z = t_fma_f32x@W(x, t_splat_f32x@W(0x1.45f306p-1f), t_splat_f32x@W(0x1.8p+23f));
  f32x@W n = z - 0x1.8p+23f;
  f32x@W r = t_fma_f32x@W(n, t_splat_f32x@W(-0x1.921fb6p+0f), x);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.777a5cp-25f), r);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.ee59dap-50f), r);
  u32x@W q = (u32x@W)z + (uint32_t)quarter;
  f32x@W s = r * r;
  f32x@W a = t_fma_f32x@W(s, t_splat_f32x@W(-0x1.98bbdap-13f), t_splat_f32x@W(0x1.1105a2p-7f));
  a = t_fma_f32x@W(a, s, t_splat_f32x@W(-0x1.555542p-3f));
  a = t_fma_f32x@W(a, s * r, r);
  a = (f32x@W)((u32x@W)a | ((u32x@W)x & 0x80000000u & (u32x@W)(n == 0.0f))); /* of -0 too */
  f32x@W c = t_fma_f32x@W(s, t_splat_f32x@W(0x1.9989dap-16f), t_splat_f32x@W(-0x1.6c0ae8p-10f));
  c = t_fma_f32x@W(c, s, t_splat_f32x@W(0x1.555548p-5f));
  c = t_fma_f32x@W(c, s * s, t_fma_f32x@W(s, t_splat_f32x@W(-0.5f), t_splat_f32x@W(1.0f)));
  f32x@W y = t_blend_f32x@W((i32x@W)((q & 1) != 0), c, a);
  y = (f32x@W)((u32x@W)y ^ ((q & 2) << 30));
  i32x@W near = (i32x@W)(x < 1.0e5f) & (i32x@W)(x > -1.0e5f);
  return t_any_i32x@W(~near) ? t_blend_f32x@W(near, y, t_widerturn_f32x@W(x, quarter)) : y;
#else
  return t_widerturn_f32x@W(x, quarter);
#endif
}
