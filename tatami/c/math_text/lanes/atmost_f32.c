/* needs: f32x@W i32x@W splat_f32x@W blend_f32x@W */
/* x where it is no more than the bound; NaN stays. */
static inline f32x@W t_atmost_f32x@W(f32x@W x, float bound) {
  f32x@W b = t_splat_f32x@W(bound);
#if !defined(__clang__) && defined(__AVX512F__) && @W == 16
  return (f32x@W)__builtin_ia32_minps512_mask(b, x, x, (unsigned short)-1, 4);
#elif !defined(__clang__) && defined(__AVX__) && @W == 8
  return (f32x@W)__builtin_ia32_minps256(b, x);
#else
  return t_blend_f32x@W((i32x@W)(x > b), b, x);
#endif
}
