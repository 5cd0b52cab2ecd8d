/* needs: f32x@W */
/* Stores a whole vector to its place past the caches; t_past_fence before others may read it. */
static inline void t_past_f32x@W(float *p, f32x@W x) {
#if defined(__clang__)
  __builtin_nontemporal_store(x, (f32x@W *)p);
#elif defined(__AVX512F__) && @W == 16
  __builtin_ia32_movntps512(p, x);
#elif defined(__AVX__) && @W == 8
  __builtin_ia32_movntps256(p, x);
#elif defined(__SSE__) && @W == 4
  __builtin_ia32_movntps(p, x);
#else
  *(f32x@W_u *)p = x;
#endif
}
