/* needs: f32x@W i32x@W u32x@W blend_f32x@W */
/* Half to even: adding 2^23 leaves no bits below one. */
static inline f32x@W t_round_f32x@W(f32x@W x) {
#if @W == 16 && defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_rndscaleps_mask(x, 8, x, -1, 4);
#elif @W == 8 && defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_roundps256(x, 8);
#elif @W == 4 && defined(__SSE4_1__) && !defined(__clang__)
  return __builtin_ia32_roundps(x, 8);
#else
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W a = (f32x@W)((u32x@W)x ^ sign);
  f32x@W r = (f32x@W)((u32x@W)((a + 8388608.0f) - 8388608.0f) | sign);
  return t_blend_f32x@W((i32x@W)(a < 8388608.0f), r, x);
#endif
}
