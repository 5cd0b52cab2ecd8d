/* needs: tanhtable_f32x16 fewgrow_f32x@W atmost_f32x@W fma_f32x@W */
/* h/(1 + h), where h = (e^2|x| - 1)/2; of small h as h - h h/(1 + h), which errors of the quotient hardly reach. Below 2 ulp. */
static inline f32x@W t_tanh_f32x@W(f32x@W x) {
#if defined(__AVX512F__)
  union { f32x@W few; f32x16 all; } u = {.all = {0}};
  u.few = x;
  u.all = t_tanhtable_f32x16(u.all);
  return u.few;
#else
  u32x@W sign = (u32x@W)x & 0x80000000u;
  f32x@W a = t_atmost_f32x@W((f32x@W)((u32x@W)x ^ sign), 9.2f);
  f32x@W h = t_fewgrow_f32x@W(a + a, 0.5f);
  f32x@W q = h / (1.0f + h);
  q = t_blend_f32x@W((i32x@W)(h < 0.5f), t_fma_f32x@W(-h, q, h), q);
  return (f32x@W)((u32x@W)q | sign);
#endif
}
