/* needs: f32x@W i32x@W u32x@W splat_f32x@W fma_f32x@W blend_f32x@W any_i32x@W widerturn_f32x@W */
/* The sine of x, or with `quarter` its cosine. Below 10^5 and with fused multiply-adds |x| is reduced by pi in three parts: the
   first difference is exact, so that two roundings remain. For the cosine n is half an odd number. The polynomial: minimax to
   1.572 of sin(r)/r (2^-27.3), its last bits chosen for the errors next to 1, where a unit is half as large. Each lane has the
   same bits whatever its neighbours are. */
static inline f32x@W t_turn_f32x@W(f32x@W x, int quarter) {
#if defined(T_FUSED_@W)
  f32x@W a = (f32x@W)((u32x@W)x & 0x7fffffffu);
  f32x@W z = t_fma_f32x@W(a, t_splat_f32x@W(0x1.45f306p-2f), t_splat_f32x@W(quarter ? 0.5f : 0x1.8p+23f));
  if (quarter) z = z + 0x1.8p+23f;
  f32x@W n = z - 0x1.8p+23f;
  if (quarter) n = n - 0.5f;
  f32x@W r = t_fma_f32x@W(n, t_splat_f32x@W(-0x1.921fb6p+1f), a);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.777a5cp-24f), r);
  r = t_fma_f32x@W(n, t_splat_f32x@W(0x1.ee59dap-49f), r);
  f32x@W s = r * r;
  f32x@W p = t_fma_f32x@W(s, t_splat_f32x@W(0x1.5d88fp-19f), t_splat_f32x@W(-0x1.9f6fbp-13f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(0x1.110efp-7f));
  p = t_fma_f32x@W(p, s, t_splat_f32x@W(-0x1.55554ep-3f));
  f32x@W y = t_fma_f32x@W(p, s * r, r);
  u32x@W sign = (u32x@W)z << 31;
  y = (f32x@W)((u32x@W)y ^ ((quarter ? sign : sign ^ (u32x@W)x) & 0x80000000u));
  i32x@W far = (i32x@W)((u32x@W)a >= 0x47c35000u); /* 10^5; NaN too */
  return __builtin_expect(t_any_i32x@W(far), 0) ? t_blend_f32x@W(far, t_widerturn_f32x@W(x, quarter), y) : y;
#else
  return t_widerturn_f32x@W(x, quarter);
#endif
}
