/* needs: f32x16 i32x16 u32x16 fma_f32x16 splat_f32x16 lookup_f32x16 */
/* x = m 2^e with m in [3/4, 3/2), of which the first four bits choose c: log m = -log c + log(1 + r), r = m c - 1 in one rounding.
   Next to 1, on both sides, c is 1 and its logarithm 0; the others are chosen so that theirs are nearly fp32 numbers.
   Natural, or with `two` to base 2. x is finite, positive and normal. Below 1 ulp, to base 2 below 1.5. */
#if defined(__AVX512F__)
static inline f32x16 t_logtable_f32x16(f32x16 x, int two) {
  f32x16 c = {0x1p+0f, 0x1.d3fe8ap-1f, 0x1.bab7a4p-1f, 0x1.a40934p-1f, 0x1.8f91ccp-1f, 0x1.7cf55ep-1f, 0x1.6c1d2ap-1f, 0x1.5c8fd4p-1f,
    0x1.4e3f24p+0f, 0x1.4144d8p+0f, 0x1.350f82p+0f, 0x1.29d7cap+0f, 0x1.1f5b04p+0f, 0x1.15c396p+0f, 0x1.0cadccp+0f, 0x1p+0f};
  f32x16 natural = {0.0f, 0x1.7019fap-4f, 0x1.29c3dcp-3f, 0x1.9578cep-3f, 0x1.fbc652p-3f, 0x1.2ebacp-2f, 0x1.5d09d6p-2f, 0x1.89bcbap-2f,
    -0x1.111a42p-2f, -0x1.d11a6p-3f, -0x1.81c2dp-3f, -0x1.360b56p-3f, -0x1.d94364p-4f, -0x1.4e35f2p-4f, -0x1.8bff52p-5f, 0.0f};
  f32x16 binary = {0.0f, 0x1.098772p-3f, 0x1.ad958ep-3f, 0x1.247c74p-2f, 0x1.6e4832p-2f, 0x1.b4bf1p-2f, 0x1.f78e56p-2f, 0x1.1c0578p-1f,
    -0x1.8a00f4p-2f, -0x1.4f803cp-2f, -0x1.16448ap-2f, -0x1.bf4ca2p-3f, -0x1.556324p-3f, -0x1.e22a06p-4f, -0x1.1da6d6p-4f, 0.0f};
  i32x16 k = (i32x16)((u32x16)x - 0x3f400000u) >> 23;
  u32x16 m = (u32x16)x - ((u32x16)k << 23);
  f32x16 e = __builtin_convertvector(k, f32x16);
  i32x16 which = (i32x16)(m >> 19);
  f32x16 r = t_fma_f32x16((f32x16)m, t_lookup_f32x16(c, which), t_splat_f32x16(-1.0f));
  if (two) {
    f32x16 p = t_fma_f32x16(r, t_splat_f32x16(0x1.169c8ep-2f), t_splat_f32x16(-0x1.716ee8p-2f));
    p = t_fma_f32x16(p, r, t_splat_f32x16(0x1.ec74d6p-2f));
    p = t_fma_f32x16(p, r, t_splat_f32x16(-0x1.715476p-1f));
    return e + t_lookup_f32x16(binary, which) + t_fma_f32x16(p, r * r, r * 0x1.715476p+0f);
  }
  f32x16 p = t_fma_f32x16(r, t_splat_f32x16(0x1.823cd4p-3f), t_splat_f32x16(-0x1.001254p-2f));
  p = t_fma_f32x16(p, r, t_splat_f32x16(0x1.555842p-2f));
  p = t_fma_f32x16(p, r, t_splat_f32x16(-0.5f));
  return t_fma_f32x16(e, t_splat_f32x16(0x1.62e43p-1f), t_lookup_f32x16(natural, which)) + t_fma_f32x16(p, r * r, r);
}
#endif
