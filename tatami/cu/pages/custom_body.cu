/* A custom kernel: the user's body as a device function, which a thread calls for one element of the first result.
   @PREAMBLE    the user's declarations
   @SYMBOL      the kernel
   @BODY_PARAMETERS  tensors, sizes and coordinates of the body
   @COUNTERS    loop variables that the body may use
   @TEXT        the user's body; errors name its own lines
   @THREADS     threads of a block
   @PARAMETERS  tensors and sizes of the kernel
   @POINTS      elements of the first result
   @COORDINATES coordinates of this thread's element
   @ARGUMENTS   arguments of the body
*/
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"

@PREAMBLE
TT_DEV void @SYMBOL_body(@BODY_PARAMETERS) {
  @COUNTERS
  {
#line 1 "body"
@TEXT

#line 1 "wrapper"
  }
}

TT_KERNEL(@THREADS, 1)
@SYMBOL(@PARAMETERS) {
  tt_i64 point = (tt_i64)tt_block_x() * @THREADS + tt_thread();
  if (point >= (tt_i64)@POINTS) return;
  @COORDINATES
  @SYMBOL_body(@ARGUMENTS);
}
