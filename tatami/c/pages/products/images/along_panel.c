/* Some rows of a by the columns of a tile: sums s<row>_<column> in registers, one vector each, of which lanes are added up at
   the end.
   @FUNCTION  name of the function
   @SUMS      all sums, each = {0}
   @ROWS      pointers to rows of a
   @COLUMNS   pointers to columns of b
   @BODY      loads and a multiply-add for each sum, at x of a row and y of a column
   @REST      the same for a part of a vector
   @LANES     elements of a vector
   @NUMBERS   their numbers
   @TREE      the sums of lanes, in vectors t0, t1, …
   @STORED    these vectors, stored to `total`
   @TOTALS    elements of `total`
   @WRITES    totals written to c
   @ADDS      totals added to c
*/
static __attribute__((noinline)) void @FUNCTION(const T *a, const T *b, T *c, const int64_t *at, int64_t pitch, int64_t c_pitch, int64_t first, const Run *run) {
  V @SUMS;
  @ROWS
  @COLUMNS
  const int64_t whole = run->length / @LANES * @LANES, some = run->length - whole;
  const M number = {@NUMBERS}, live = number < (M){0} + (__typeof__(number[0]))some;
  for (int64_t i = 0; i < run->images; ++i) {
    int64_t x = i * run->a_image, y = i * run->b_image;
    for (int64_t line = run->lines; line > 0; --line) {
      int64_t k = whole;
      for (; k > 0; k -= @LANES, x += @LANES, y += @LANES) {
        @BODY
      }
      if (some) {
        @REST
      }
      x += run->a_line - whole;
      y += run->b_line - whole;
    }
  }
  T total[@TOTALS] __attribute__((aligned(64)));
  @TREE
  @STORED
  if (first) {
    @WRITES
  } else {
    @ADDS
  }
}
