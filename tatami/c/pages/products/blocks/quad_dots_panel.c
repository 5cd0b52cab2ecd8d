/* A few rows of quad_dots.c, added to c unless `is_first`.
   @FUNCTION   name of the function
   @NR         columns
   @VECTORS    vectors of a row
   @SUMS       sums, each = {0}
   @READS      sums read from c
   @POINTERS   rows of q
   @PARTS      sums of a block
   @CODES      four codes of k for each column
   @ADDS       their products with four steps of each row
   @SCALED     the block added to the sums
   @WRITES     sums stored to c
*/
static __attribute__((noinline)) void @FUNCTION(const int8_t *q, int64_t depth, const E *w, const E *less, const T *f, int64_t blocks,
                                                const T *scales, T *c, int64_t cp, int64_t steps, int64_t block, int is_first) {
  const E signs = (E){0} + (W)0x80808080;
  V @SUMS;
  if (!is_first) {
    @READS
  }
  @POINTERS
  for (int64_t k = 0; k < steps; k += block, ++f, less += @VECTORS, scales += @NR) {
    @PARTS
    for (int64_t t = 0; t < block; t += 4, w += @VECTORS) {
      @CODES
      @ADDS
    }
    @SCALED
  }
  @WRITES
}
