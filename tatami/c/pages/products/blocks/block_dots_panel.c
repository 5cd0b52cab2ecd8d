/* A few rows of block_dots.c. Sums of 16 bits hold @FLUSH steps of k: at most 2 * 15 * 127 for each pair of steps in a lane.
   @FUNCTION   name of the function
   @NR         columns
   @FLUSH      steps of k whose sums fit 16 bits
   @SUMS       sums of all blocks, each = {0}
   @PARTS      sums of a block in 32 bits, each = {0}
   @HALVES     sums of @FLUSH steps in 16 bits, each = {0}
   @POINTERS   rows of q
   @CODES      four codes of k in the bytes of an element, low and high halves
   @ADDS       their products with eight steps of each row, and the pointers moved on
   @ADDED      sums of 16 bits added to those of 32
   @SCALED     the block added to the sums
   @WRITES     sums stored to c
*/
static __attribute__((noinline)) void @FUNCTION(const int8_t *q, const W *b, const T *row_scales, const T *scales,
                                                const int8_t *zeros, T *c, int64_t cp, int64_t depth, int64_t block, int64_t blocks) {
  const E signs = (E){0} + (W)0x88888888, low = (E){0} + 0x0f0f0f0f, eights = (E){0} + 0x08080808;
  V @SUMS;
  (void)zeros, (void)blocks;
  @POINTERS
  for (int64_t k = 0, at = 0; k < depth; k += block, ++at) {
    const int64_t steps = depth - k < block ? depth - k : block;
    E @PARTS;
    for (int64_t t = 0; t < steps;) {
      const int64_t to = steps - t < @FLUSH ? steps : t + @FLUSH;
      H @HALVES;
      for (; t < to; t += 8) {
        @CODES
        b += @NR;
        @ADDS
      }
      @ADDED
    }
    @SCALED
    scales += @NR;
    zeros += @NR;
  }
  @WRITES
}
