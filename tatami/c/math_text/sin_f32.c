/* needs: f32x@W i32x@W blend_f32x@W any_i32x@W turn_f32x@W each_sinf_1_f32x@W */
/* From 10^6 on the C library, lane by lane. Below 2 ulp. */
static inline f32x@W t_sin_f32x@W(f32x@W x) {
  i32x@W near = (i32x@W)(x < 1.0e6f) & (i32x@W)(x > -1.0e6f);
  f32x@W y = t_turn_f32x@W(x, 0);
  return t_any_i32x@W(~near) ? t_blend_f32x@W(near, y, t_each_sinf_1_f32x@W(x)) : y;
}
