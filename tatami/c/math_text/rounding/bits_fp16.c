/* needs: f32x@W i32x@W u16x@W u32x@W blend_u32x@W splat_u32x@W */
/* fp32 as fp16, nearest even. No denormal fp32 is made or needed. */
static inline u16x@W t_bits_fp16x@W(f32x@W x) {
#if @W == 16 && defined(__AVX512F__) || @W == 8 && defined(__F16C__)
  u16x@W r;
  __asm__("vcvtps2ph $0, %1, %0" : "=v"(r) : "v"(x));
  return r;
#elif @W == 4 && defined(__F16C__)
  union { double d; u16x@W r; } u;
  __asm__("vcvtps2ph $0, %1, %0" : "=v"(u.d) : "v"(x));
  return u.r;
#else
  u32x@W u = (u32x@W)x;
  u32x@W sign = (u >> 16) & 0x8000u;
  u32x@W a = u & 0x7fffffffu;
  u32x@W normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  u32x@W small = (u32x@W)((f32x@W)a + 0.5f) - 0x3f000000u;
  u32x@W large = t_blend_u32x@W((i32x@W)(a > 0x7f800000u), t_splat_u32x@W(0x7e00u), t_splat_u32x@W(0x7c00u));
  u32x@W r = t_blend_u32x@W((i32x@W)(a < 0x38800000u), small, normal);
  r = t_blend_u32x@W((i32x@W)(a >= 0x47800000u), large, r) | sign;
  return __builtin_convertvector(r, u16x@W);
#endif
}
