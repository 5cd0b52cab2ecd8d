/* needs: f32x@W f32x4 powfour_f32x4 */
/* x^y, four at a time: as many doubles as a vector of AVX2 has, and wider ones are taken apart by compilers. */
static inline f32x@W t_pow_f32x@W(f32x@W x, f32x@W y) {
  union { f32x@W all; f32x4 four[@W / 4]; } a = {x}, b = {y};
  for (int i = 0; i < @W / 4; ++i) a.four[i] = t_powfour_f32x4(a.four[i], b.four[i]);
  return a.all;
}
