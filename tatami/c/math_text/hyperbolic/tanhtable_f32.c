/* needs: f32x16 u32x16 i32x16 splat_f32x16 fma_f32x16 atmost_f32x16 lookup2_f32x16 */
/* tanh |x| by polynomials around the 32 points k w, interpolated at Chebyshev's nodes; around 0 an odd one, and the last
   goes on to where the result is 1. d0: what c0 lost when it was rounded, so that no interval lies high or low as a whole. */
#if defined(__AVX512F__)
static inline f32x16 t_tanhtable_f32x16(f32x16 x) {
  u32x16 sign = (u32x16)x & 0x80000000u;
  f32x16 a = t_atmost_f32x16((f32x16)((u32x16)x ^ sign), 0x1.233334p+3f);
  f32x16 z = t_fma_f32x16(a, t_splat_f32x16(0x1.4p+2f), t_splat_f32x16(12582912.0f));
  z = t_atmost_f32x16(z, 0x1.80003ep+23f);
  f32x16 r = t_fma_f32x16(z - 12582912.0f, t_splat_f32x16(-0x1.99999ap-3f), a);
  i32x16 i = (i32x16)z;
  const f32x16 c5a = {
    0x1.0f6a7cp-3f, 0x1.77d69ap-4f, 0x1.1b8706p-7f, -0x1.9f64ep-5f,
    -0x1.0219b2p-4f, -0x1.7b0be2p-5f, -0x1.8a102ep-6f, -0x1.01f5eep-7f,
    0x1.96bd7ap-11f, 0x1.1146c6p-8f, 0x1.38b28ep-8f, 0x1.134caep-8f,
    0x1.b10316p-9f, 0x1.408af4p-9f, 0x1.c9ec54p-10f, 0x1.3fec2ap-10f,
  };
  const f32x16 c5b = {
    0x1.b8bd02p-11f, 0x1.2ccf86p-11f, 0x1.98249cp-12f, 0x1.13c84ap-12f,
    0x1.73b45cp-13f, 0x1.f41adp-14f, 0x1.50084cp-14f, 0x1.c33856p-15f,
    0x1.2ec94ap-15f, 0x1.963816p-16f, 0x1.106d8ap-16f, 0x1.6d5878p-17f,
    0x1.e9e72p-18f, 0x1.487074p-18f, 0x1.b85c94p-19f, 0x1.892804p-23f,
  };
  const f32x16 c4a = {
    0, 0x1.e3e7fp-4f, 0x1.59b34ap-3f, 0x1.272266p-3f,
    0x1.5793c2p-4f, 0x1.caaaeep-6f, -0x1.c761c2p-8f, -0x1.6ceb66p-6f,
    -0x1.9e642cp-6f, -0x1.70c8dep-6f, -0x1.252a8ep-6f, -0x1.b5ad3p-7f,
    -0x1.3a8376p-7f, -0x1.b94f2ap-8f, -0x1.30dc2p-8f, -0x1.a0f5cp-9f,
  };
  const f32x16 c4b = {
    -0x1.1b3e5ep-9f, -0x1.7f1e5cp-10f, -0x1.0257c4p-10f, -0x1.5bb988p-11f,
    -0x1.d36a9ap-12f, -0x1.39e0b6p-12f, -0x1.a54cd4p-13f, -0x1.1aa1cep-13f,
    -0x1.7b1c76p-14f, -0x1.fc6f36p-15f, -0x1.54e55ap-15f, -0x1.c917b2p-16f,
    -0x1.326e74p-16f, -0x1.9ad818p-17f, -0x1.136912p-17f, -0x1.e2139ep-20f,
  };
  const f32x16 c3a = {
    -0x1.55548ap-2f, -0x1.21b252p-2f, -0x1.4b259cp-3f, -0x1.05cfcep-5f,
    0x1.ecd43ap-5f, 0x1.a85cfep-4f, 0x1.c3d41ap-4f, 0x1.8ede58p-4f,
    0x1.3e3b2ep-4f, 0x1.ddb6b8p-5f, 0x1.58f512p-5f, 0x1.e5d75ep-6f,
    0x1.5088fap-6f, 0x1.cd2962p-7f, 0x1.39aefp-7f, 0x1.a8ac98p-8f,
  };
  const f32x16 c3b = {
    0x1.1e8a24p-8f, 0x1.81d628p-9f, 0x1.03654ep-9f, 0x1.5c7138p-10f,
    0x1.d3c0c2p-11f, 0x1.39d262p-11f, 0x1.a4f8c4p-12f, 0x1.1a4c4ap-12f,
    0x1.7a8f98p-13f, 0x1.fb9ac8p-14f, 0x1.544c5cp-14f, 0x1.c8411p-15f,
    0x1.31da4ep-15f, 0x1.9a0da2p-16f, 0x1.12dfa2p-16f, 0x1.dc01acp-18f,
  };
  const f32x16 c2a = {
    0, -0x1.84785cp-3f, -0x1.4ce5cap-2f, -0x1.87529p-2f,
    -0x1.7c24a2p-2f, -0x1.47870ap-2f, -0x1.046292p-2f, -0x1.87edc8p-3f,
    -0x1.1c21cap-3f, -0x1.919ca2p-4f, -0x1.16f9dp-4f, -0x1.7f14aap-5f,
    -0x1.04f4e6p-5f, -0x1.61a73ep-6f, -0x1.dd9352p-7f, -0x1.41b0dap-7f,
  };
  const f32x16 c2b = {
    -0x1.b0aea2p-8f, -0x1.22abd8p-8f, -0x1.86420ep-9f, -0x1.05dafap-9f,
    -0x1.5f4916p-10f, -0x1.d727e2p-11f, -0x1.3beb38p-11f, -0x1.a79e1cp-12f,
    -0x1.1bff4ap-12f, -0x1.7cc5a6p-13f, -0x1.fe8244p-14f, -0x1.5637d2p-14f,
    -0x1.cacdb6p-15f, -0x1.338dp-15f, -0x1.9c51e4p-16f, -0x1.e7c84p-17f,
  };
  const f32x16 c1a = {
    0x1p+0f, 0x1.ec0dd4p-1f, 0x1.b6164ap-1f, 0x1.6c53ecp-1f,
    0x1.1e3c7ap-1f, 0x1.ae0dcp-2f, 0x1.385728p-2f, 0x1.baae22p-3f,
    0x1.34478ap-3f, 0x1.a82cd2p-4f, 0x1.2162c2p-4f, 0x1.889abap-5f,
    0x1.0949b2p-5f, 0x1.6593d4p-6f, 0x1.e11f1cp-7f, 0x1.434a5p-7f,
  };
  const f32x16 c1b = {
    0x1.b21f96p-8f, 0x1.2351f6p-8f, 0x1.86d796p-9f, 0x1.061e44p-9f,
    0x1.5f85aap-10f, 0x1.d75e7p-11f, 0x1.3c03cep-11f, 0x1.a7b44cp-12f,
    0x1.1c0952p-12f, 0x1.7ccebep-13f, 0x1.fe8a8cp-14f, 0x1.563b9cp-14f,
    0x1.cad138p-15f, 0x1.338ea4p-15f, 0x1.9c5372p-16f, 0x1.0fc56ep-16f,
  };
  const f32x16 c0a = {
    0, 0x1.943984p-3f, 0x1.851158p-2f, 0x1.12f82ap-1f,
    0x1.53fcap-1f, 0x1.85efacp-1f, 0x1.aad4c8p-1f, 0x1.c54cdp-1f,
    0x1.d7e4fp-1f, 0x1.e4c3c2p-1f, 0x1.ed9506p-1f, 0x1.f3949ap-1f,
    0x1.f7a43cp-1f, 0x1.fa61ccp-1f, 0x1.fc3a32p-1f, 0x1.fd77d2p-1f,
  };
  const f32x16 c0b = {
    0x1.fe4d28p-1f, 0x1.fedc5ap-1f, 0x1.ff3c6ep-1f, 0x1.ff7cep-1f,
    0x1.ffa818p-1f, 0x1.ffc51p-1f, 0x1.ffd87ep-1f, 0x1.ffe584p-1f,
    0x1.ffee4p-1f, 0x1.fff41ap-1f, 0x1.fff806p-1f, 0x1.fffaa8p-1f,
    0x1.fffc6ap-1f, 0x1.fffd98p-1f, 0x1.fffe64p-1f, 0x1.fffeeap-1f,
  };
  const f32x16 d0a = {
    0, -0x1.24b8fap-28f, -0x1.b0f71p-28f, -0x1.385ap-26f,
    0x1.c10fep-26f, -0x1.e3bc3ap-27f, -0x1.fd30aap-26f, -0x1.624f28p-28f,
    0x1.e95d8ep-26f, 0x1.18587ep-29f, -0x1.85b2d4p-30f, 0x1.1e1e5cp-26f,
    -0x1.ad561p-26f, 0x1.7bbb9ap-26f, 0x1.bb7eb6p-26f, -0x1.d52ae2p-26f,
  };
  const f32x16 d0b = {
    -0x1.f6c57p-28f, 0x1.f4dae4p-26f, 0x1.b733d6p-26f, 0x1.3632bcp-29f,
    -0x1.ed5f12p-26f, 0x1.9b8f8cp-26f, 0x1.a73bf6p-37f, 0x1.7ce3e6p-30f,
    -0x1.c7bab2p-26f, -0x1.32a89ep-26f, -0x1.d0af4ep-28f, -0x1.eb3068p-26f,
    0x1.69685cp-27f, 0x1.c29094p-26f, -0x1.50635ep-27f, 0x1.9b7d4p-25f,
  };
  f32x16 p = t_lookup2_f32x16(c5a, i, c5b);
  p = t_fma_f32x16(p, r, t_lookup2_f32x16(c4a, i, c4b));
  p = t_fma_f32x16(p, r, t_lookup2_f32x16(c3a, i, c3b));
  p = t_fma_f32x16(p, r, t_lookup2_f32x16(c2a, i, c2b));
  p = t_fma_f32x16(p, r, t_lookup2_f32x16(c1a, i, c1b));
  p = t_fma_f32x16(p, r, t_lookup2_f32x16(d0a, i, d0b)) + t_lookup2_f32x16(c0a, i, c0b);
  return (f32x16)((u32x16)p | sign);
}
#endif
