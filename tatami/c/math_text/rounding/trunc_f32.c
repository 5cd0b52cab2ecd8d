/* needs: f32x@W i32x@W u32x@W blend_f32x@W splat_f32x@W */
static inline f32x@W t_trunc_f32x@W(f32x@W x) {
  u32x@W sign = (u32x@W)x & 0x80000000u;
  i32x@W inside = (i32x@W)((f32x@W)((u32x@W)x ^ sign) < 8388608.0f);
  i32x@W n = __builtin_convertvector(t_blend_f32x@W(inside, x, t_splat_f32x@W(0.0f)), i32x@W);
  f32x@W t = (f32x@W)((u32x@W)__builtin_convertvector(n, f32x@W) | sign);
  return t_blend_f32x@W(inside, t, x);
}
