/* A product: everything before its first statement. What the statements of all templates may use is declared here.
   @LAUNCH      threads of a block, and blocks of a cluster
   @SYMBOL @PARAMETERS  the kernel: tensors, sizes, tensor maps
   @BM @BN @BK @STAGES  rows, columns and depth of a tile; slots of a ring
   @THREADS     threads of a block, where all do the same; 0 where warpgroups have roles
   @SHARED      rings and barriers in shared memory
   @MAPS        tensor maps prefetched
   @COLS        columns of threads of the template without tensor cores; 0 else
   @M @N @K     rows and columns of the product, and its depth where it is not a part of k
   @STREAMED    True if parts of k are made one after the other by persistent blocks
   @SPLIT       parts of k
   @COUNT @BLOCKS  blocks of k; empty where they follow from the part of k
   @TILE        which tile this block makes: walk.cu where it makes several
   @PARTS       True if this block makes a part of k
   @K_ALL       depth of the product
   @STATE       what a template keeps between its statements
*/
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"

@LAUNCH
@SYMBOL(@PARAMETERS) {
  constexpr int BM = @BM, BN = @BN, BK = @BK, STAGES = @STAGES;
@if THREADS
  constexpr int THREADS = @THREADS;
@end
  TT_DYNAMIC_SMEM(smem);
  @SHARED
  const int tid = tt_thread();
@if MAPS
  if (tid == 0) { @MAPS }
@end
@if COLS
  const int tx = tid % @COLS, ty = tid / @COLS;
@else
  const int lane = tid % 32, warp = tt_uniform(tid / 32);
@end
  const tt_i64 M = @M, N = @N@K;
@if STREAMED
  constexpr int SPLIT = @SPLIT;  // parts of k, of KB blocks each: those behind its end are TMA's zeros
@end
@if BLOCKS
  const int @COUNT = @BLOCKS;
@end
  @TILE
@if PARTS
  constexpr int SPLIT = @SPLIT;  // parts of k, of whole blocks; K is the end of this one
  const tt_i64 k_all = @K_ALL, k_part = (k_all + SPLIT * BK - 1) / (SPLIT * BK) * BK;
  const tt_i64 k_first = split * k_part, K = tt_min_size(k_all, k_first + k_part);
  const int KB = K > k_first ? (int)((K - k_first + BK - 1) / BK) : 0;
@end
  @STATE
