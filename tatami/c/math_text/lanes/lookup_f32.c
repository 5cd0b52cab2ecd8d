/* needs: f32x16 i32x16 */
/* Lane by lane an entry of a table of 16: the low bits of the index say which. */
#if defined(__AVX512F__)
static inline f32x16 t_lookup_f32x16(f32x16 table, i32x16 index) {
#if defined(__clang__)
  return (f32x16)__builtin_ia32_permvarsf512(table, index);
#else
  return (f32x16)__builtin_ia32_permvarsf512_mask(table, index, table, (unsigned short)-1);
#endif
}
#endif
