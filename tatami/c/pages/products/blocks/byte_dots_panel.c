/* A few rows of quad_dots.c whose codes have 8 bits: floats of both operands, the sums of which are exact below 2^24.
   @FUNCTION   name of the function
   @NR         columns
   @SUMS       sums of all blocks, each = {0}
   @PARTS      sums of a block, each = {0}
   @POINTERS   rows of q
   @STEPS      steps of k in the body of the loop
   @ADDS       the products of these steps
   @SCALED     the block added to the sums
   @WRITES     sums stored to c
*/
static __attribute__((noinline)) void @FUNCTION(const int8_t *q, const int8_t *b, const T *row_scales, const T *scales,
                                                const int8_t *zeros, T *c, int64_t cp, int64_t depth, int64_t block, int64_t blocks) {
  V @SUMS;
  (void)zeros, (void)blocks;
  @POINTERS
  for (int64_t k = 0, at = 0; k < depth; k += block, ++at, scales += @NR) {
    V @PARTS;
    for (int64_t t = 0; t < block; t += @STEPS, b += @STEPS * @NR) {
      const int64_t here = k + t;
      @ADDS
    }
    @SCALED
  }
  @WRITES
}
