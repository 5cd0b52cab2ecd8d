/* needs: trunc_f32x@W */
static inline f32x@W t_floor_f32x@W(f32x@W x) {
  f32x@W t = t_trunc_f32x@W(x);
  return t_blend_f32x@W((i32x@W)(t > x), t - 1.0f, t);
}
