/* One panel of a micro-kernel: its rows of c, held in registers as c<row>_<vector>, along kc steps of k. Few of them are kept
   as several partial sums each, c<row>_<vector>_<set>, for the latency of a multiply-add.
   @FUNCTION    name of the function, after what comes before `void`
   @PARAMETERS  kc, a, b, c, first (1: c is overwritten), then what its operands need
   @SUMS        all sums, each = {0}
   @FETCHES     True if rows of b follow each other; `ahead` walks in front of them, into L1
   @B @AHEAD    element of b; rows of b between the one in use and the one fetched
   @B_PITCH     elements of b from one row to the next
   @POINTERS    pointers that walk along a
   @STEPS       steps of k in the body of the loop
   @BODY        fetches, and for each step the vectors of b and a multiply-add for each sum
   @ON          pointers moved on by these steps
   @REST        True if there is more than one step in the body, so that some may be left
   @ONE @ON_ONE body and pointers for one step
   @JOINS       partial sums added up
   @WRITES @ADDS  sums stored to c; added to it
*/
void @FUNCTION(@PARAMETERS) {
  V @SUMS;
@if FETCHES
  const @B *ahead = b + @AHEAD * @B_PITCH;
@end
  @POINTERS
  int64_t k = 0;
  for (; k + @STEPS <= kc; k += @STEPS) {
    @BODY
@if FETCHES
    ahead += @STEPS * @B_PITCH;
@end
    @ON
  }
@if REST
  for (; k < kc; ++k) {
    @ONE
    @ON_ONE
  }
@end
  @JOINS
  if (first) {
    @WRITES
  } else {
    @ADDS
  }
}
