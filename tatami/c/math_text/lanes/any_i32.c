/* needs: i32x@W f32x@W */
/* Is a lane of a mask, whose lanes are 0 or -1, set? */
static inline int t_any_i32x@W(i32x@W m) {
#if !defined(__clang__) && defined(__AVX512DQ__) && @W == 16
  return __builtin_ia32_cvtd2mask512(m) != 0;
#elif !defined(__clang__) && defined(__AVX__) && @W == 8
  return __builtin_ia32_movmskps256((f32x@W)m) != 0;
#elif !defined(__clang__) && defined(__SSE__) && @W == 4
  return __builtin_ia32_movmskps((f32x@W)m) != 0;
#else
  int any = 0;
  for (int i = 0; i < @W; ++i) any |= m[i];
  return any;
#endif
}
