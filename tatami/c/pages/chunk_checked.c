/* A chunk of a kernel whose accesses are checked: as chunk.c, and its steps are counted. No name of a document ends in $.
   @DECLARED  the frame, before the first function that takes it
   @NAME      name of the function
   @FRAME     what the kernel hands to all chunks: its arguments, local buffers and their extents
   @GIVEN     buffers with their extents, and sizes
   @PROLOGUE  what is made once for all rows
   @ROW       variable of the loop
   @MOST      steps of all loops together
   @LEAVE     return of a kernel that takes more
   @BODY      statements of a row
   @FENCE     orders stores past the caches before those that follow; empty where there are none
*/
@DECLARED
static int @NAME(void* context, int64_t begin, int64_t end) {
  const @FRAME* f = context;
  const size_t mark = tatami_mark();
@GIVEN
  const int64_t begin$ = begin; (void)begin$;
  int fault = 0;
@PROLOGUE
  for (int64_t @ROW$ = begin; @ROW$ < end; ++@ROW$) {
    if (++t$work > INT64_C(@MOST)) @LEAVE
@BODY
  }
@if FENCE
  @FENCE();
@end
  tatami_release(mark);
  return fault;
}
