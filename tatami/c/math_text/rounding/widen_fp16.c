/* needs: f32x@W i32x@W u16x@W u32x@W blend_u32x@W */
/* fp16 as fp32. */
static inline f32x@W t_widen_fp16x@W(u16x@W x) {
#if @W == 16 && defined(__AVX512F__) || @W == 8 && defined(__F16C__)
  f32x@W r;
  __asm__("vcvtph2ps %1, %0" : "=v"(r) : "v"(x));
  return r;
#elif @W == 4 && defined(__F16C__)
  union { u16x@W x; double d; } u = {x};
  f32x@W r;
  __asm__("vcvtph2ps %1, %0" : "=v"(r) : "v"(u.d));
  return r;
#else
  u32x@W h = __builtin_convertvector(x, u32x@W);
  u32x@W a = (h & 0x7fffu) << 13;
  u32x@W exponent = a & 0x0f800000u;
  u32x@W normal = a + 0x38000000u;
  u32x@W small = (u32x@W)((f32x@W)(a + 0x38800000u) - 0x1p-14f);
  u32x@W r = t_blend_u32x@W((i32x@W)(exponent == 0u), small, normal);
  r = t_blend_u32x@W((i32x@W)(exponent == 0x0f800000u), a + 0x70000000u, r);
  return (f32x@W)(r | ((h & 0x8000u) << 16));
#endif
}
