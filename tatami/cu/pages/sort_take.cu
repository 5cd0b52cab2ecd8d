/* Each thread takes one result from the sorted entries of its line.
   @SYMBOL @PARAMETERS  the kernel: values, sorted values, their positions, two buffers of entries; sizes
   @THREADS             threads of a block
   @SHARED              True if the kernel has shared memory
   @RESULTS @KEEP       results of all lines; of a line
   @BASE @TO            where the line begins, and where its results do
   @WAYS @TILE          runs that became one at a time, and elements of the first ones: they tell which buffer has the last
   @LENGTH              elements of a line
   @STEP                from one element of the line to the next
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
  if (at >= @RESULTS) return;
  const tt_i64 line = at / @KEEP, i = at % @KEEP;
  const tt_i64 base = @BASE;
  const tt_i64 to = @TO;
  const tt_entry* const sorted = tt_merged<@WAYS, @TILE>(@LENGTH, (const tt_entry*)p3, (const tt_entry*)p4) + line * @LENGTH;
  p1[to + i * @STEP] = p0[base + sorted[i].at * @STEP];
  p2[to + i * @STEP] = sorted[i].at;
}
