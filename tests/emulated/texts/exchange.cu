// Rows of shared memory handed on inside a warp, votes, and a kernel that waits for the one before it.
#include "tatami_ptx.cuh"

TT_KERNEL(64, 1)
exchange(const float* __restrict__ x, float* __restrict__ y) {
  TT_DYNAMIC_SMEM(smem);
  float* const row = (float*)smem;
  const int tid = tt_thread(), lane = tid % 32, warp = tid / 32;
  tt_grid_dependency_wait();
  row[tid] = x[tid];
  tt_sync_warp();
  float value = row[32 * warp + 31 - lane];
  const tt_u32 positive = tt_ballot(value > 0);
  tt_sync_threads();
  row[tid] = (positive >> lane & 1u) ? value : 0.0f;
  tt_sync_threads();
  y[tid] = row[63 - tid];
  tt_grid_dependency_launch();
}
