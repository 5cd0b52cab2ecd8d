/* One panel: the sums of its places are held in registers as c<place>_<vector> along kc steps of k; few of them as several partial
   sums each, c<place>_<vector>_<part>.
   @FUNCTION    the function
   @SUMS        all sums, each = {0}
   @STEPS @LESS steps of k in the body of the loop; one less
   @BODY        these steps
   @AHEAD       prefetches of later rows of b
   @NEXT @NR    elements of b in these steps; in one step
   @REST @ONE   True if there is more than one step, so that some may be left; one step
   @JOINS       partial sums added up
   @WRITES @ADDS  sums stored to c; added to it
*/
static __attribute__((noinline)) void @FUNCTION(int64_t kc, const T *a, const int64_t *table, const T *b, T *c, int64_t first, int64_t pitch) {
  V @SUMS;
  (void)pitch;
  int64_t k = 0;
  for (; k < kc - @LESS; k += @STEPS) {
    @BODY
    @AHEAD
    b += @NEXT;
  }
@if REST
  for (; k < kc; ++k) {
    @ONE
    b += @NR;
  }
@end
  @JOINS
  if (first) {
    @WRITES
  } else {
    @ADDS
  }
}
