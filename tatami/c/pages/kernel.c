/* A kernel: one function for the caller, which runs chunks (chunk.c) on the threads of a pool.
   @SYMBOL  the kernel
   @GIVEN   its buffers, sizes, and what follows from sizes alone
   @BODY    statements
*/
int @SYMBOL(void* const* buffers, const int64_t* sizes, tatami_pool* pool) {
@GIVEN
  int fault = 0;
  const size_t mark = tatami_mark();
  (void)pool;
@BODY
  tatami_release(mark);
  return fault;
}
