/* needs: i32x@W splat_i32x@W iota_i32x@W */
/* Lanes low <= lane < high. */
static inline i32x@W t_lane_rangex@W(int64_t low, int64_t high) {
  int32_t a = low < 0 ? 0 : low > @W ? @W : (int32_t)low, b = high < 0 ? 0 : high > @W ? @W : (int32_t)high;
  i32x@W i = t_iota_i32x@W();
  return (i32x@W)(i >= t_splat_i32x@W(a)) & (i32x@W)(i < t_splat_i32x@W(b));
}
