/* needs: f32x@W */
/* a b + c, in one rounding where the machine has it: T_FUSED_@W. */
static inline f32x@W t_fma_f32x@W(f32x@W a, f32x@W b, f32x@W c) {
#if defined(__clang__) && (defined(__FMA__) || defined(__aarch64__)) && __has_builtin(__builtin_elementwise_fma)
#define T_FUSED_@W
  return __builtin_elementwise_fma(a, b, c);
#elif !defined(__clang__) && defined(__FMA__) && @W == 4
#define T_FUSED_@W
  return (f32x@W)__builtin_ia32_vfmaddps(a, b, c);
#elif !defined(__clang__) && defined(__FMA__) && @W == 8
#define T_FUSED_@W
  return (f32x@W)__builtin_ia32_vfmaddps256(a, b, c);
#elif !defined(__clang__) && defined(__AVX512F__) && @W == 16
#define T_FUSED_@W
  return (f32x@W)__builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
#else
  return a * b + c;
#endif
}
