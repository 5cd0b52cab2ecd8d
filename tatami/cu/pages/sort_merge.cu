/* Each thread puts one entry where it stands among @WAYS sorted runs of its line.
   @SYMBOL @PARAMETERS  the kernel: values, sorted values, their positions, two buffers of entries; sizes
   @THREADS             threads of a block
   @SHARED              True if the kernel has shared memory
   @LENGTH @WIDTH       elements of a line; of a run
   @ENTRIES             entries of all lines
   @WAYS                runs that become one
*/
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"
#include "tatami_sort.cuh"

TT_KERNEL(@THREADS, 1)
@SYMBOL(@PARAMETERS) {
@if SHARED
  TT_DYNAMIC_SMEM(smem);
@end
  const tt_i64 at = (tt_i64)tt_block_x() * @THREADS + tt_thread();
  if (@WIDTH >= @LENGTH || at >= @ENTRIES) return;
  const tt_i64 first = at / @LENGTH * @LENGTH;
  tt_merge_entry<@WAYS>((const tt_entry*)p0 + first, (tt_entry*)p1 + first, @LENGTH, @WIDTH, at - first);
}
