/* needs: f32x16 i32x16 */
/* Lane by lane an entry of a table of 32, `low` before `high`: the low bits of the index say which. */
#if defined(__AVX512F__)
static inline f32x16 t_lookup2_f32x16(f32x16 low, i32x16 index, f32x16 high) {
#if defined(__clang__)
  return (f32x16)__builtin_ia32_vpermi2varps512(low, index, high);
#else
  return (f32x16)__builtin_ia32_vpermi2varps512_mask(low, index, high, (unsigned short)-1);
#endif
}
#endif
