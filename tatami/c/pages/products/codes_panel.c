/* The only panel of a product with codes: its rows of c, held in registers as c<row>_<vector>, over `depth` steps of k, block by block.
   Few rows keep the sums of a block apart, and multiply these with its scales; more rows meet codes that have been multiplied.
   @FUNCTION       name of the function
   @B              type that holds codes
   @SUMS           all sums, each = {0}
   @ZEROS @SCALES  loads of the zero points and scales of a block, and the pointers moved on
   @PARTS          sums of a block, each = {0}; empty if codes are multiplied with scales
   @POINTERS       pointers that walk along a
   @STEPS          steps of k in the body of the loop
   @BODY           these steps, and the pointers moved on
   @ONE            step t of k, and the pointers moved on
   @LAST           the pointer moved past an element of B that is used in part
   @JOINS          sums of a block added to the sums
   @WRITES @ADDS   sums stored to c; added to it
*/
static __attribute__((noinline)) void @FUNCTION(const T *a, int64_t pitch, const @B *b, const T *scales, const int8_t *zeros,
                                                T *c, int64_t cp, int64_t depth, int64_t block, int64_t first) {
  V @SUMS;
  (void)pitch, (void)scales, (void)zeros;
  @POINTERS
  for (int64_t k = 0; k < depth; k += block) {
    const int64_t steps = depth - k < block ? depth - k : block;
    @ZEROS
    @SCALES
    @PARTS
    int64_t t = 0;
    for (; t + @STEPS <= steps; t += @STEPS) {
      @BODY
    }
    for (; t < steps; ++t) {
      @ONE
    }
    @LAST
    @JOINS
  }
  if (first) {
    @WRITES
  } else {
    @ADDS
  }
}
