// Stream-K in small: each block adds to a partial sum and passes it on; the last one, by a counter, writes the result.
#include "tatami_ptx.cuh"

TT_KERNEL(64, 1)
flags(const float* __restrict__ x, float* partial, tt_u32* flag, tt_u32* count, float* result) {
  const int tid = tt_thread(), block = tt_block_x();
  float sum = x[block * 64 + tid];
  if (block > 0) {
    if (tid == 0) while (tt_load_acquire(flag) != (tt_u32)block) {}
    tt_sync_threads();
    sum += partial[tid];
  }
  tt_sync_threads();
  partial[tid] = sum;
  tt_sync_threads();
  if (tid == 0) tt_store_release(flag, (tt_u32)(block + 1));
  if (tid == 0) {
    if (tt_atomic_add_acq_rel(count, 1u) == (tt_u32)(tt_grid_x() - 1)) result[0] = partial[0];
  }
}
