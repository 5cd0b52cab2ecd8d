/* needs: f32x@W i32x@W u32x@W blend_u32x@W */
/* fp32 rounded to what bf16 holds, nearest even; NaN stays a quiet NaN. */
static inline f32x@W t_round_bf16x@W(f32x@W x) {
  u32x@W u = (u32x@W)x;
  u32x@W r = u + 0x7fffu + ((u >> 16) & 1u);
  return (f32x@W)(t_blend_u32x@W((i32x@W)(x != x), u | 0x400000u, r) & 0xffff0000u);
}
