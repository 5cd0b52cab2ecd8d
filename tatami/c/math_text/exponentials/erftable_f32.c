/* needs: f32x16 u32x16 i32x16 splat_f32x16 fma_f32x16 atmost_f32x16 lookup_f32x16 lookup_or_f32x16 */
/* erf |x| by polynomials around the 16 points k w, interpolated at Chebyshev's nodes; around 0 an odd one, of which the
   first term is added exactly, and the last goes on to where the result is 1. d0: what c0 lost when it was rounded, so
   that no interval lies high or low as a whole. */
#if defined(__AVX512F__)
static inline f32x16 t_erftable_f32x16(f32x16 x) {
  u32x16 sign = (u32x16)x & 0x80000000u;
  f32x16 a = t_atmost_f32x16((f32x16)((u32x16)x ^ sign), 0x1p+2f);
  f32x16 z = t_fma_f32x16(a, t_splat_f32x16(0x1.1642c8p+2f), t_splat_f32x16(12582912.0f));
  z = t_atmost_f32x16(z, 0x1.80001ep+23f);
  f32x16 r = t_fma_f32x16(z - 12582912.0f, t_splat_f32x16(-0x1.d70a3ep-3f), a);
  i32x16 i = (i32x16)z;
  const f32x16 c5 = {
    0x1.cc01cap-4f, 0x1.59d042p-4f, 0x1.3fcc62p-6f, -0x1.570e0ep-5f,
    -0x1.1a272cp-4f, -0x1.e0eb06p-5f, -0x1.eb13acp-6f, -0x1.d580dep-9f,
    0x1.53a4f6p-7f, 0x1.a73132p-7f, 0x1.3f8b84p-7f, 0x1.715cbcp-8f,
    0x1.5e02d6p-9f, 0x1.186556p-10f, 0x1.824034p-12f, 0x1.259d0cp-15f,
  };
  const f32x16 c4 = {
    0, 0x1.e3419ap-4f, 0x1.6f65aep-3f, 0x1.50aceap-3f,
    0x1.8cfffep-4f, 0x1.54ba12p-6f, -0x1.f8f492p-6f, -0x1.93227cp-5f,
    -0x1.691252p-5f, -0x1.e9aafcp-6f, -0x1.0fd42ap-6f, -0x1.fedc4cp-8f,
    -0x1.9d81b4p-9f, -0x1.2364dap-10f, -0x1.680be8p-12f, -0x1.1a59dep-14f,
  };
  const f32x16 c3 = {
    -0x1.812696p-2f, -0x1.46a82cp-2f, -0x1.6793e6p-3f, -0x1.6e05c2p-7f,
    0x1.c9d582p-4f, 0x1.51a7a6p-3f, 0x1.42311ep-3f, 0x1.e295b6p-4f,
    0x1.2d08b4p-4f, 0x1.414b3ap-5f, 0x1.29a5bcp-6f, 0x1.e2edb8p-8f,
    0x1.59138cp-9f, 0x1.b42376p-11f, 0x1.e8f3c2p-13f, 0x1.d491f2p-15f,
  };
  const f32x16 c2 = {
    0, -0x1.f81e2cp-3f, -0x1.ae242p-2f, -0x1.ef42ap-2f,
    -0x1.c7fd8p-2f, -0x1.62144ap-2f, -0x1.dae528p-3f, -0x1.168924p-3f,
    -0x1.1fee6p-4f, -0x1.07936ap-5f, -0x1.acc036p-7f, -0x1.36913cp-8f,
    -0x1.91666p-10f, -0x1.cf76aep-12f, -0x1.de8a3ep-14f, -0x1.bf724p-16f,
  };
  const f32x16 c1 = {
    0x1.06eba8p-3f, 0x1.11fb34p+0f, 0x1.d38cdep-1f, 0x1.66e302p-1f,
    0x1.efa45ep-2f, 0x1.33e4bep-2f, 0x1.581faap-3f, 0x1.5a00d8p-4f,
    0x1.38f75ep-5f, 0x1.fd53a6p-7f, 0x1.74d5dap-8f, 0x1.eb0af4p-10f,
    0x1.22e652p-11f, 0x1.360fecp-13f, 0x1.294ec2p-15f, 0x1.01aea4p-17f,
  };
  const f32x16 c0 = {
    0, 0x1.0524a6p-2f, 0x1.f0498p-2f, 0x1.57785ap-1f,
    0x1.9d10a8p-1f, 0x1.cad0bep-1f, 0x1.e5e56ep-1f, 0x1.f45474p-1f,
    0x1.fb41bep-1f, 0x1.fe4004p-1f, 0x1.ff6a2ap-1f, 0x1.ffd29cp-1f,
    0x1.fff39p-1f, 0x1.fffceap-1f, 0x1.ffff5p-1f, 0x1.ffffdcp-1f,
  };
  const f32x16 d0 = {
    0, -0x1.7ea71cp-27f, 0x1.2a76a4p-26f, -0x1.d15d72p-27f,
    0x1.d8d814p-26f, 0x1.861512p-26f, 0x1.4df458p-28f, 0x1.b92ba8p-27f,
    0x1.98579ep-31f, 0x1.afb2c6p-29f, -0x1.4451a4p-26f, 0x1.250964p-26f,
    -0x1.d04b9ep-26f, 0x1.395ab8p-26f, -0x1.9ecaf4p-26f, 0x1.d582eep-28f,
  };
  f32x16 p = t_lookup_f32x16(c5, i);
  p = t_fma_f32x16(p, r, t_lookup_f32x16(c4, i));
  p = t_fma_f32x16(p, r, t_lookup_f32x16(c3, i));
  p = t_fma_f32x16(p, r, t_lookup_f32x16(c2, i));
  p = t_fma_f32x16(p, r, t_lookup_f32x16(c1, i));
  p = t_fma_f32x16(p, r, t_lookup_f32x16(d0, i)) + t_lookup_or_f32x16(a, c0, i);
  return (f32x16)((u32x16)p | sign);
}
#endif
