/* nibble(w, i): the signed number of 4 bits of step i of k in each element, as floats: byte j has step j in its low half and step
   j + 4 in its high half. With AVX-512 one permutation looks them up.
   @WIDE      bytes of a vector
   @LOOKS_UP  True if a vector has the 16 elements that such a permutation looks up
*/
typedef int32_t W;
typedef W E __attribute__((vector_size(@WIDE), aligned(4), may_alias));
static inline __attribute__((always_inline)) V nibble(E w, int i) {
  const int at = 8 * (i & 3) + (i & 4);
@if LOOKS_UP
#if defined(__AVX512F__)
  const V values = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  V x;
  __asm__("vpermps %1, %2, %0" : "=v"(x) : "v"(values), "v"(w >> at));
  return x;
#else
@end
  return __builtin_convertvector(w << (28 - at) >> 28, V);
@if LOOKS_UP
#endif
@end
}
