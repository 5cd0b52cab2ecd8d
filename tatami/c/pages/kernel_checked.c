/* A kernel whose accesses are checked (c/print_checked.py): an index may end it before its first statement.
   @SYMBOL  the kernel
   @GIVEN   its buffers with their extents, and its sizes
   @BODY    statements
*/
int @SYMBOL(void* const* buffers, const int64_t* sizes, tatami_pool* pool) {
  const size_t mark = tatami_mark();
@GIVEN
  int fault = 0;
  (void)pool;
@BODY
  tatami_release(mark);
  return fault;
}
