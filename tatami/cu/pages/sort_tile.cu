/* A block sorts one tile of a line that several blocks share.
   @SYMBOL @PARAMETERS  the kernel: values, sorted values, their positions, two buffers of entries; sizes
   @THREADS             threads of a block
   @SHARED              True if tiles are sorted in shared memory
   @LENGTH @TILE @LESS  elements of a line; of a tile, and one less
   @BLOCK               this block's number
   @LINES               lines, if the grid may have more blocks; else empty
   @BASE                where the line begins
   @INNER               from one element of the line to the next
   @DOWN                true if the largest comes first
*/
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"
#include "tatami_sort.cuh"

TT_KERNEL(@THREADS, 1)
@SYMBOL(@PARAMETERS) {
@if SHARED
  TT_DYNAMIC_SMEM(smem);
@end
  const tt_i64 tiles = (@LENGTH + @LESS) / @TILE, line = @BLOCK / tiles;
@if LINES
  if (line >= @LINES) return;
@end
  const tt_i64 first = @BLOCK % tiles * @TILE, here = tt_min<tt_i64>(@LENGTH - first, @TILE);
  const tt_i64 base = @BASE;
  const tt_entry* const sorted = tt_sorted_tile<@TILE, @THREADS>(p0 + base, @INNER, first, here, @DOWN, smem);
  tt_entry* const a = (tt_entry*)p1 + line * @LENGTH + first;
  for (tt_i64 i = tt_thread(); i < here; i += @THREADS) a[i] = sorted[i];
}
