/* Vectors of integers, and their sums of products, for block_dots.c and quad_dots.c.
   @ELEMENT  types: element.c, with `wide` of bytes
   @HAS      macro of the instruction set that has `madd8` and `madd16` as instructions; empty where none has
   @WIDE     bytes of a vector
*/
@ELEMENT
typedef int32_t W;
typedef W E __attribute__((vector_size(@WIDE), may_alias));
typedef W EU __attribute__((vector_size(@WIDE), aligned(4), may_alias));
typedef W Q __attribute__((aligned(1), may_alias));
typedef int16_t H __attribute__((vector_size(@WIDE), may_alias));
typedef uint16_t HU __attribute__((vector_size(@WIDE), may_alias));

/* Sums of the products of two neighbouring bytes, unsigned by signed. */
static inline __attribute__((always_inline)) H madd8(E u, E s) {
@if HAS
#if defined(@HAS)
  H x;
  __asm__("vpmaddubsw %2, %1, %0" : "=v"(x) : "v"(u), "v"(s));
  return x;
#else
@end
  return (H)((HU)u & 255) * ((H)((HU)s << 8) >> 8) + (H)((HU)u >> 8) * ((H)s >> 8);
@if HAS
#endif
@end
}

/* Sums of two neighbouring numbers of 16 bits. */
static inline __attribute__((always_inline)) E madd16(H x) {
@if HAS
#if defined(@HAS)
  const H ones = (H){0} + 1;
  E y;
  __asm__("vpmaddwd %2, %1, %0" : "=v"(y) : "v"(x), "v"(ones));
  return y;
#else
@end
  return ((E)x << 16 >> 16) + ((E)x >> 16);
@if HAS
#endif
@end
}
