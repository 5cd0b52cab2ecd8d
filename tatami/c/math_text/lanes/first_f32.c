/* needs: f32x@W f32x4 f32x2 */
/* Stores the first n lanes: with masks, else a half, a quarter and one of them as the bits of n say. */
static inline void t_first_f32x@W(float *p, f32x@W x, int64_t n) {
#if defined(__AVX512F__) && @W == 16
  __builtin_ia32_storeups512_mask((void *)p, x, (unsigned short)((1u << n) - 1u));
#elif defined(__AVX512VL__) && @W == 8
  __builtin_ia32_storeups256_mask((void *)p, x, (unsigned char)((1u << n) - 1u));
#elif defined(__AVX512VL__) && @W == 4
  __builtin_ia32_storeups128_mask((void *)p, x, (unsigned char)((1u << n) - 1u));
#elif (defined(__clang__) || __GNUC__ >= 12) && (@W == 8 || @W == 4)
  if (n == @W) {
    *(f32x@W_u *)p = x;
    return;
  }
#if @W == 8
  f32x4 part = __builtin_shufflevector(x, x, 0, 1, 2, 3);
  if (n & 4) {
    *(f32x4_u *)p = part;
    part = __builtin_shufflevector(x, x, 4, 5, 6, 7);
    p += 4;
  }
#else
  f32x4 part = x;
#endif
  if (n & 2) {
    *(f32x2_u *)p = __builtin_shufflevector(part, part, 0, 1);
    part = __builtin_shufflevector(part, part, 2, 3, 2, 3);
    p += 2;
  }
  if (n & 1) *p = part[0];
#else
  memcpy(p, &x, (size_t)n * sizeof(float));
#endif
}
