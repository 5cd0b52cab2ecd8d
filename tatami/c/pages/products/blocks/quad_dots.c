/* The same as block_dots.c by an instruction that multiplies four bytes, unsigned by signed, and adds them to 32 bits. @KC steps of
   k of the codes, at most, are made signed bytes once for all rows, four neighbours of k in an element; q plus 128 is unsigned,
   and 128 times the sum of a block's codes leaves again.
   @TYPES    block_dots_types.c
   @LOW      functions of few rows, which meet codes in registers: block_dots_panel.c, byte_dots_panel.c
   @PANELS   the function of each number of rows: quad_dots_panel.c
   @CODE     element of the codes in C
   @GROUP    steps of k in an element of the codes
   @KC       steps of k that are made bytes together
   @NR       columns
   @LANES    elements of a vector
   @VECTORS  vectors of a row
   @NIBBLES  true for codes of 4 bits
   @BYTES    true for codes of 8 bits
   @ZEROS    true if there are zero points
   @NAME     the routine
   @FEW      most rows that meet codes in registers
   @FEWS     a call for each number of them
   @MOST     most rows that are multiplied together
   @CASES    a call for each number of rows
   @REFUSED  result for operands that it does not take
*/
@TYPES
typedef int8_t S __attribute__((vector_size(sizeof(E)), may_alias));

static inline __attribute__((always_inline)) E dot4(E c, E u, E s) {
#if defined(__AVX512VL__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(u), "v"(s));
#else
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(u), "x"(s));
#endif
  return c;
}

/* Bytes from p on as unsigned integers of 32 bits. */
static inline __attribute__((always_inline)) E wide_bytes(const int8_t *p) {
  E x;
#if defined(__AVX512VL__)
  __asm__("vpmovzxbd %1, %0" : "=v"(x) : "m"(*(const N *)p));
#else
  __asm__("vpmovzxbd %1, %0" : "=x"(x) : "m"(*(const N *)p));
#endif
  return x;
}

/* Codes of `steps` steps as signed bytes, less their zero points; for each block -128 times their sums. Returns 0, or @REFUSED for
   a zero point so large that a difference does not fit a byte. */
static __attribute__((noinline)) int as_bytes(const @CODE *b, const int8_t *zeros, int64_t steps, int64_t block, E *to, E *less) {
  const E ones = (E){0} + 0x01010101;
  E beyond = {0};
  (void)zeros;
  for (int64_t k = 0; k < steps; k += block) {
    E sums[@VECTORS] = {0};
@if ZEROS
    E z[@VECTORS];
    for (int v = 0; v < @VECTORS; ++v) {
      const E zero = wide_bytes(zeros + v * @LANES) << 24 >> 24;
      beyond |= (zero + 119) | (119 - zero);
      z[v] = (zero & 255) * 0x01010101;
    }
    zeros += @NR;
@end
@if NIBBLES
    const E low = (E){0} + 0x0f0f0f0f, signs = (E){0} + 0x08080808;
    for (int64_t t = 0; t < block; t += 8, b += @NR, to += 2 * @VECTORS) {
      for (int v = 0; v < @VECTORS; ++v) {
        const E w = *(const EU *)(b + v * @LANES);
        for (int half = 0; half < 2; ++half) {
          const E x = ((half ? w >> 4 : w) & low) ^ signs;
          S s = (S)x - (S)signs;
@if ZEROS
          s -= (S)z[v];
@end
          to[half * @VECTORS + v] = (E)s;
          sums[v] = dot4(sums[v], ones, (E)s);
        }
      }
    }
@end
@if BYTES
    for (int64_t t = 0; t < block; t += 4, b += 4 * @NR, to += @VECTORS) {
      for (int v = 0; v < @VECTORS; ++v) {
        E s = {0};
        for (int i = 0; i < 4; ++i)
          s |= wide_bytes(b + i * @NR + v * @LANES) << 8 * i;
        to[v] = s;
        sums[v] = dot4(sums[v], ones, s);
      }
    }
@end
    for (int v = 0; v < @VECTORS; ++v) *less++ = -(sums[v] << 7);
  }
  for (int i = 0; i < @LANES; ++i)
    if (beyond[i] < 0) return @REFUSED;
  return 0;
}

@LOW
@PANELS
int @NAME(void *const *buffers, const int64_t *sizes) {
  const int8_t *q = buffers[0];
  const @CODE *b = buffers[1];
  T *c = buffers[2];
  const T *row_scales = buffers[3], *scales = buffers[4];
  const int8_t *zeros = buffers[5];
  const int64_t rows = sizes[0], cp = sizes[1], depth = sizes[2], block = sizes[3];
  const int64_t blocks = (depth + block - 1) / block;
  if (rows <= @FEW) {
    switch (rows) {
    @FEWS
    }
    return 0;
  }
  E bytes[@KC / 4 * @VECTORS], less[@KC / 8 * @VECTORS];
  const int64_t most = @KC / block * block;
  for (int64_t k = 0; k < depth; k += most) {
    const int64_t steps = depth - k < most ? depth - k : most, at = k / block;
    if (as_bytes(b + k / @GROUP * @NR, zeros + at * @NR, steps, block, bytes, less)) return @REFUSED;
    for (int64_t r = 0; r < rows; r += @MOST) {
      const int8_t *own = q + r * depth + k;
      const T *f = row_scales + r * blocks + at, *s = scales + at * @NR;
      T *to = c + r * cp;
      switch (rows - r < @MOST ? rows - r : @MOST) {
      @CASES
      }
    }
  }
  return 0;
}
