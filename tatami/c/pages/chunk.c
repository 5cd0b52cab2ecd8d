/* A chunk of a kernel: some of the rows of a parallel loop, on one thread.
   @DECLARED  the frame, before the first function that takes it
   @NAME      name of the function
   @FRAME     what the kernel hands to all chunks: its arguments and local buffers
   @GIVEN     buffers, sizes, and what follows from sizes alone
   @PROLOGUE  what is made once for all rows
   @ROW       variable of the loop
   @BODY      statements of a row
   @FENCE     orders stores past the caches before those that follow; empty where there are none
*/
@DECLARED
static int @NAME(void* context, int64_t begin, int64_t end) {
  const @FRAME* f = context;
@GIVEN
  int fault = 0;
  const size_t mark = tatami_mark();
@PROLOGUE
  for (int64_t @ROW = begin; @ROW < end; ++@ROW) {
@BODY
  }
@if FENCE
  @FENCE();
@end
  tatami_release(mark);
  return fault;
}
