/* needs: f32x@W i32x@W u32x@W splat_f32x@W fma_f32x@W logtable_f32x16 */
/* The logarithm of what is finite, positive and normal: natural, or with `two` to base 2. By a table where the machine looks up
   in registers; else x = m 2^e with m in [sqrt(1/2), sqrt 2) and a polynomial of m - 1, and log2 e = 1 + 0.4427. */
static inline f32x@W t_logusual_f32x@W(f32x@W x, int two) {
#if defined(__AVX512F__)
  union { f32x@W few; f32x16 all; } u = {.all = {0}};
  u.few = x;
  u.all = t_logtable_f32x16(u.all, two);
  return u.few;
#else
  i32x@W k = ((i32x@W)((u32x@W)x - 0x3f3504f3u)) >> 23;
  f32x@W e = __builtin_convertvector(k, f32x@W);
  f32x@W f = (f32x@W)((u32x@W)x - ((u32x@W)k << 23)) - 1.0f;
  f32x@W p = t_fma_f32x@W(f, t_splat_f32x@W(0x1.1b702p-4f), t_splat_f32x@W(-0x1.e34b68p-4f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(0x1.e66fecp-4f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(-0x1.fb3848p-4f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(0x1.23308cp-3f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(-0x1.556306p-3f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(0x1.99a556p-3f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(-0x1.ffffeep-3f));
  p = t_fma_f32x@W(p, f, t_splat_f32x@W(0x1.555546p-2f));
  f32x@W s = f * f;
  f32x@W rest = s * f * p - 0.5f * s;
  if (two) return (rest * 0x1.c551d94ap-2f + f * 0x1.c551d94ap-2f + rest) + f + e;
  return (rest + e * -0x1.bd0106p-13f) + f + e * 0x1.63p-1f;
#endif
}
