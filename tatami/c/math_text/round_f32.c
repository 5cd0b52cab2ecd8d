/* needs: f32x@W i32x@W u32x@W blend_f32x@W */
/* Half to even: adding 2^23 leaves no bits below one. */
static inline f32x@W t_round_f32x@W(f32x@W x) {
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W a = (f32x@W)((u32x@W)x ^ sign);
  f32x@W r = (f32x@W)((u32x@W)((a + 8388608.0f) - 8388608.0f) | sign);
  return t_blend_f32x@W((i32x@W)(a < 8388608.0f), r, x);
}
