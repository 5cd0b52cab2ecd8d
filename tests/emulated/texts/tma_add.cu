// Two blocks add a tile of 8x64 floats each to one result, and read back what they added through a plain bulk copy.
#include "tatami_ptx.cuh"

TT_KERNEL(32, 1)
tma_add(TT_GRID_CONSTANT tt_tensor_map sum, const float* __restrict__ x, float* back) {
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 tile = tt_smem_address(smem) + 1024, bar = tt_smem_address(smem);
  const int lane = tt_thread();
  if (lane == 0) tt_mbarrier_init(bar, 1);
  if (lane == 0) tt_fence_mbarrier_init();
  tt_sync_threads();
  if (tt_elect()) {
    tt_mbarrier_expect_tx(bar, 2048);
    tt_bulk_load(tile, x + tt_block_x() * 512, 2048, bar);
    tt_mbarrier_arrive(bar);
  }
  tt_mbarrier_wait(bar, 0);
  float* const values = (float*)(smem + 1024);
  for (int i = lane; i < 512; i += 32) values[i] = 3 * values[i];
  tt_fence_proxy_async();
  tt_sync_warp();
  if (lane == 0) {
    tt_tma_add_2d(&sum, 0, 0, tile);
    tt_bulk_store(back + tt_block_x() * 512, tile, 2048);
    tt_bulk_commit();
    tt_bulk_wait<0>();
  }
}
