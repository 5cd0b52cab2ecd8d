/* needs: f32x@W */
/* Stores the first n lanes. */
static inline void t_first_f32x@W(float *p, f32x@W x, int64_t n) {
#if defined(__AVX512F__) && @W == 16
  __builtin_ia32_storeups512_mask((void *)p, x, (unsigned short)((1u << n) - 1u));
#elif defined(__AVX512VL__) && @W == 8
  __builtin_ia32_storeups256_mask((void *)p, x, (unsigned char)((1u << n) - 1u));
#elif defined(__AVX512VL__) && @W == 4
  __builtin_ia32_storeups128_mask((void *)p, x, (unsigned char)((1u << n) - 1u));
#else
  if (n == @W) *(f32x@W_u *)p = x;
  else memcpy(p, &x, (size_t)n * sizeof(float));
#endif
}
