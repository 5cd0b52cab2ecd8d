// D = A B with A from registers and B by cp.async: two warpgroups' worth of roles, named barriers, groups in flight.
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"

TT_KERNEL(256, 1)
registers(const tt_f16* __restrict__ a, const tt_f16* __restrict__ b, float* __restrict__ d) {
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 bar = tt_smem_address(smem), tile = bar + 1024;
  TT_SMEM_LABEL(tile, 8192, "B");
  const int tid = tt_thread(), lane = tid % 32, warp = tt_uniform(tid / 32);
  if (tid == 0) tt_mbarrier_init(bar, 128);
  tt_sync_threads();
  if (warp / 4 == 0) {  // B is 64 (n) x 64 (k), rows of 128 bytes
    for (int i = 0; i < 4; ++i) {
      const int c = tid + 128 * i, row = c / 8, chunk = c % 8;
      tt_cp_async_16(tile + tt_tile_offset<128, 128>(row, chunk), b + row * 64 + chunk * 8, 16);
    }
    tt_cp_async_arrive(bar);
    tt_mbarrier_wait(bar, 0);
    tt_fence_proxy_async();
    tt_named_arrive(1, 256);
    return;
  }
  tt_u32 x[4][4];
  const int row = 16 * (warp % 4) + lane / 4;
  for (int k = 0; k < 4; ++k)
    for (int i = 0; i < 4; ++i)
      x[k][i] = *(const tt_u32*)(a + (row + 8 * (i % 2)) * 64 + 16 * k + 8 * (i / 2) + 2 * (lane % 4));
  tt_named_sync(1, 256);
  float acc[2][32];
  for (int j = 0; j < 2; ++j) for (int i = 0; i < 32; ++i) acc[j][i] = 0;
  tt_wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    tt_wgmma_m64k16_rs<tt_f16, 64, 0>::run(acc[k % 2], x[k], tt_wgmma_descriptor(tile + 32 * k, 16, 1024, 128), 1);
    tt_wgmma_commit();
  }
  tt_wgmma_wait<1>();
  for (int i = 0; i < 32; ++i) acc[0][i] += 0.0f;
  tt_wgmma_wait<0>();
  for (int i = 0; i < 32; ++i)
    d[(row + 8 * (i / 2 % 2)) * 64 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = acc[0][i] + acc[1][i];
}
