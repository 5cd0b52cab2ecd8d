// A cluster of two: block 0 loads a tile for both, both add their rank and hand a sum to the other, three times over.
#include "tatami_ptx.cuh"

TT_KERNEL(128, 1)
cluster(TT_GRID_CONSTANT tt_tensor_map in, float* __restrict__ out) {
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 full = tt_smem_address(smem), empty = full + 8, inbox = full + 16, tile = full + 1024;
  TT_SMEM_LABEL(full, 8, "full");
  TT_SMEM_LABEL(empty, 8, "empty");
  TT_SMEM_LABEL(inbox, 4, "inbox");
  TT_SMEM_LABEL(tile, 512, "tile");
  const float* const values = (const float*)(smem + 1024);
  const int tid = tt_thread(), rank = tt_cluster_rank();
  if (tid == 0) {
    tt_mbarrier_init(full, 1);
    tt_mbarrier_init(empty, 2 * 128);
    tt_fence_mbarrier_init();
  }
  tt_cluster_arrive();
  tt_cluster_wait();
  float sum = 0;
  for (int k = 0; k < 3; ++k) {
    if (tid == 0) {
      tt_mbarrier_arrive_expect_tx(full, 512);
      if (rank == 0) {
        tt_mbarrier_wait(empty, (k + 1) & 1);
        tt_tma_load_2d_multicast(tile, &in, 0, k, full, 3);
      }
    }
    tt_mbarrier_wait(full, k & 1);
    sum += values[tid] + (float)rank;
    tt_mbarrier_arrive_cluster(tt_map_shared(empty, 0));
  }
  if (tid == 0) tt_store_cluster(tt_map_shared(inbox, 1 - rank), tt_f32_to_bits(sum));
  tt_cluster_arrive();
  tt_cluster_wait();
  const float other = *(const float*)(smem + 16);
  out[tt_block_x() * 128 + tid] = sum + 100 * other;
}
