/* needs: i32x@W f32x@W */
/* Bit i is set where lane i of a mask, whose lanes are 0 or -1, is. */
static inline uint64_t t_bits_i32x@W(i32x@W m) {
#if !defined(__clang__) && defined(__AVX512DQ__) && @W == 16
  return (uint64_t)(uint16_t)__builtin_ia32_cvtd2mask512(m);
#elif !defined(__clang__) && defined(__AVX__) && @W == 8
  return (uint64_t)(uint8_t)__builtin_ia32_movmskps256((f32x@W)m);
#elif !defined(__clang__) && defined(__SSE__) && @W == 4
  return (uint64_t)(uint8_t)__builtin_ia32_movmskps((f32x@W)m);
#else
  uint64_t bits = 0;
  for (int i = 0; i < @W; ++i) bits |= (uint64_t)(m[i] & 1) << i;
  return bits;
#endif
}
