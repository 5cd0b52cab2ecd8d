/* a b + c of one number, rounded as a lane of fma_f32x is: what is left of a vector equals what stands in one. */
static inline float t_fmaone_f32(float a, float b, float c) {
#if defined(__clang__) && (defined(__FMA__) || defined(__aarch64__)) && __has_builtin(__builtin_elementwise_fma)
  return __builtin_fmaf(a, b, c);
#elif !defined(__clang__) && defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
