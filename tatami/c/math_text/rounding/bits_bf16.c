/* needs: f32x@W i32x@W u16x@W u32x@W blend_u32x@W */
/* fp32 as bf16, nearest even; NaN stays a quiet NaN. */
static inline u16x@W t_bits_bf16x@W(f32x@W x) {
  u32x@W u = (u32x@W)x;
  u32x@W r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  r = t_blend_u32x@W((i32x@W)((u & 0x7fffffffu) > 0x7f800000u), (u >> 16) | 0x40u, r);
  return __builtin_convertvector(r, u16x@W);
}
