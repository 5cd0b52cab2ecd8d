/* needs: i32x@W f32x@W */
/* Are all lanes of a mask, whose lanes are 0 or -1, set? */
static inline int t_all_i32x@W(i32x@W m) {
#if !defined(__clang__) && defined(__AVX__) && @W == 8
  return __builtin_ia32_movmskps256((f32x@W)m) == 0xff;
#elif !defined(__clang__) && defined(__SSE__) && @W == 4
  return __builtin_ia32_movmskps((f32x@W)m) == 0xf;
#else
  int all = -1;
  for (int i = 0; i < @W; ++i) all &= m[i];
  return all;
#endif
}
