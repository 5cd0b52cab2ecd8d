/* needs: f32x16 i32x16 splat_f32x16 */
/* An entry of a table of 16; x itself for index 0. The index is the bits of 1.5 * 2^23 + k: the number says if k is 0, so
   that x is taken for no other index, and for every x of that index. */
#if defined(__AVX512F__)
static inline f32x16 t_lookup_or_f32x16(f32x16 x, f32x16 table, i32x16 index) {
  unsigned short beyond =
      __builtin_ia32_cmpps512_mask((f32x16)index, t_splat_f32x16(12582912.0f), 14, (unsigned short)-1, 4);
#if defined(__clang__)
  return (f32x16)__builtin_ia32_selectps_512(beyond, __builtin_ia32_permvarsf512(table, index), x);
#else
  return (f32x16)__builtin_ia32_permvarsf512_mask(table, index, x, beyond);
#endif
}
#endif
