/* needs: f64x4 */
/* Square roots. */
static inline f64x4 t_rootfour_f32(f64x4 x) {
#if defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_sqrtpd256(x);
#else
  for (int i = 0; i < 4; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}
