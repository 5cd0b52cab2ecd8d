// Four pixels of each tap of a 2x2 filter over an image with borders, by an im2col map.
#include "tatami_ptx.cuh"

TT_KERNEL(32, 1)
im2col(TT_GRID_CONSTANT tt_tensor_map image, float* __restrict__ out) {
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 bar = tt_smem_address(smem), tile = bar + 1024;
  const float* const values = (const float*)(smem + 1024);
  const int lane = tt_thread();
  if (lane == 0) tt_mbarrier_init(bar, 1);
  if (lane == 0) tt_fence_mbarrier_init();
  tt_sync_threads();
  for (int tap = 0; tap < 4; ++tap) {
    if (lane == 0) {
      tt_mbarrier_arrive_expect_tx(bar, 16 * 16);
      tt_tma_load_im2col_4d(tile, &image, 0, -1, -1, 0, (tt_u16)(tap % 2), (tt_u16)(tap / 2), bar);
    }
    tt_mbarrier_wait(bar, tap & 1);
    for (int i = lane; i < 64; i += 32) out[tap * 64 + i] = values[i];
    tt_sync_threads();
  }
  if (lane == 0) tt_mbarrier_invalidate(bar);
}
