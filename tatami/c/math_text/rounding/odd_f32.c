/* needs: f32x@W f64x@W oddone_f32 */
static inline f32x@W t_odd_f32x@W(f64x@W x) {
  f32x@W r;
  for (int i = 0; i < @W; ++i) r[i] = t_oddone_f32(x[i]);
  return r;
}
