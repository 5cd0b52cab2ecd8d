/* needs: trunc_f32x@W */
static inline f32x@W t_ceil_f32x@W(f32x@W x) {
  f32x@W t = t_trunc_f32x@W(x);
  f32x@W up = (f32x@W)((u32x@W)(t + 1.0f) | ((u32x@W)x & 0x80000000u));
  return t_blend_f32x@W((i32x@W)(t < x), up, t);
}
