/* c[rows][nr] = sum over blocks of k of (sum of q * (codes - zero)) * (row scale * column scale): q and codes are integers, whose sums
   of a block are exact.
   @ELEMENT  types: element.c, with `wide` of bytes
   @HAS      macro of the instruction set that has `madd8` and `madd16` as instructions; empty where none has
   @WIDE     bytes of a vector
   @PANELS   the function of each number of rows: block_dots_panel.c
   @NAME     the routine
   @MOST     most rows that are multiplied together
   @CASES    a call for each number of rows
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

@PANELS
int @NAME(void *const *buffers, const int64_t *sizes) {
  const int8_t *q = buffers[0];
  const W *b = buffers[1];
  T *c = buffers[2];
  const T *row_scales = buffers[3], *scales = buffers[4];
  const int8_t *zeros = buffers[5];
  const int64_t rows = sizes[0], cp = sizes[1], depth = sizes[2], block = sizes[3];
  const int64_t blocks = (depth + block - 1) / block;
  for (int64_t r = 0; r < rows; r += @MOST) {
    switch (rows - r < @MOST ? rows - r : @MOST) {
    @CASES
    }
    q += @MOST * depth;
    row_scales += @MOST * blocks;
    c += @MOST * cp;
  }
  return 0;
}
