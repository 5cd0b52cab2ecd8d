/* A block sorts one line: its tiles, then ways of them merged, until one is left.
   @SYMBOL @PARAMETERS  the kernel: values, sorted values, their positions, two buffers of entries; sizes
   @THREADS             threads of a block
   @SHARED              True if tiles are sorted in shared memory
   @BLOCK               this block's number
   @LINES               lines, if the grid may have more blocks; else empty
   @BASE @TO            where the line begins, and where its results do
   @ENTRIES             where the line's entries begin; empty where one tile is the line
   @TILE @INNER @LENGTH elements of a tile; from one element of the line to the next; elements of the line
   @DOWN                true if the largest comes first
   @KEEP                results of a line
   @STEP                from one result to the next
*/
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"
#include "tatami_sort.cuh"

TT_KERNEL(@THREADS, 1)
@SYMBOL(@PARAMETERS) {
@if SHARED
  TT_DYNAMIC_SMEM(smem);
@end
  const tt_i64 line = @BLOCK;
@if LINES
  if (line >= @LINES) return;
@end
  const tt_i64 base = @BASE;
  const tt_i64 to = @TO;
  tt_entry* const a = (tt_entry*)p3@ENTRIES;
  tt_entry* const b = (tt_entry*)p4@ENTRIES;
  const tt_entry* const sorted = tt_sorted_line<@TILE, @THREADS>(p0 + base, @INNER, @LENGTH, @DOWN, a, b, smem);
  for (tt_i64 i = tt_thread(); i < @KEEP; i += @THREADS) {
    p1[to + i * @STEP] = p0[base + sorted[i].at * @STEP];
    p2[to + i * @STEP] = sorted[i].at;
  }
}
