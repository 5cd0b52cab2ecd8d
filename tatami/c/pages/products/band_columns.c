/* The columns of a band, @WIDTH at a time: sums c<row>_<column> over the steps of a group.
   @WIDTH  columns of a turn
   @TYPE   V for vectors, T for a single column
   @SUMS   all sums, each = {0}
   @GROUP  steps at most, which the loop is unrolled by
   @STEPS  steps
   @LOADS @ADDS     a row of b; its products with an element of a for each row
   @WRITES @INTO  sums stored to c; added to it
*/
  for (; j + @WIDTH <= columns; j += @WIDTH) {
    @TYPE @SUMS;
#pragma GCC unroll @GROUP
    for (int64_t k = 0; k < @STEPS; ++k) {
      @LOADS
      @ADDS
    }
    if (first) { @WRITES } else { @INTO }
  }
