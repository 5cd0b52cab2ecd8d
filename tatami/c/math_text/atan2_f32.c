/* needs: f32x@W f32x4 atan2four_f32x4 */
/* The angle of (x, y), four at a time as powers are. */
static inline f32x@W t_atan2_f32x@W(f32x@W y, f32x@W x) {
  union { f32x@W all; f32x4 four[@W / 4]; } a = {y}, b = {x};
  for (int i = 0; i < @W / 4; ++i) a.four[i] = t_atan2four_f32x4(a.four[i], b.four[i]);
  return a.all;
}
