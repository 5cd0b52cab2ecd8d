/* needs: f32x@W i32x@W u32x@W splat_f32x@W all_i32x@W blend_f32x@W */
/* p 2^n, where z = n + 1.5 2^23 and n is from -152 to 130: one instruction where the machine has it, else two exact steps,
   so that overflow, underflow and denormals come out right; an addition to the exponent where every |x| <= usual says that
   they are not met. 0 where x < low, without computing it: results too small for any number cost the processor a hundred
   cycles. Where T_TESTED_@W is defined any x will do, p and z being something: infinity where x > high. */
#if !defined(__clang__) && !defined(__AVX512VL__) && ((defined(__AVX__) && @W == 8) || (defined(__SSE__) && @W == 4))
#define T_TESTED_@W  /* a mask is asked in one instruction */
#endif
static inline f32x@W t_scale_f32x@W(f32x@W p, f32x@W z, f32x@W x, float low, float high, float usual) {
#if defined(__AVX512F__) && @W == 16
  unsigned short some = __builtin_ia32_cmpps512_mask(x, t_splat_f32x@W(low), 5, (unsigned short)-1, 4);
  return (f32x@W)__builtin_ia32_scalefps512_mask(p, z - 12582912.0f, (f32x@W){0}, some, 4);
#elif defined(__AVX512VL__) && @W == 8
  unsigned char some = __builtin_ia32_cmpps256_mask(x, t_splat_f32x@W(low), 5, (unsigned char)-1);
  return (f32x@W)__builtin_ia32_scalefps256_mask(p, z - 12582912.0f, (f32x@W){0}, some);
#elif defined(__AVX512VL__) && @W == 4
  unsigned char some = __builtin_ia32_cmpps128_mask(x, t_splat_f32x@W(low), 5, (unsigned char)-1);
  return (f32x@W)__builtin_ia32_scalefps128_mask(p, z - 12582912.0f, (f32x@W){0}, some);
#else
#ifdef T_TESTED_@W
  i32x@W often = (i32x@W)((f32x@W)((u32x@W)x & 0x7fffffffu) <= usual);
  if (__builtin_expect(t_all_i32x@W(often), 1)) return (f32x@W)((u32x@W)p + ((u32x@W)z << 23));
#endif
  i32x@W none = (i32x@W)(x < low);
  i32x@W k = (i32x@W)((u32x@W)z - 0x4b400000u) & ~none;
  i32x@W half = k >> 1;
  f32x@W a = (f32x@W)((u32x@W)(half + 127) << 23);
  f32x@W b = (f32x@W)((u32x@W)(k - half + 127) << 23);
  f32x@W y = (f32x@W)((i32x@W)(p * a * b) & ~none);
#ifdef T_TESTED_@W
  y = t_blend_f32x@W((i32x@W)(x > high), t_splat_f32x@W(__builtin_inff()), y);
#endif
  return y;
#endif
}
