// Products of tf32 and of fp8 by wgmma: operands in shared memory, rows of 32 bytes with their swizzle.
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"

TT_DEV void put_rows(tt_u8* to, const void* from, int rows) {
  for (int i = tt_thread(); i < 8 * rows; i += 128)
    ((tt_u32*)(to + tt_tile_offset<32, 32>(i / 8, i % 8 / 4)))[i % 4] = ((const tt_u32*)from)[i];
}
template <int N> TT_DEV void put_result(float* d, const float (&acc)[N / 2]) {
  const int lane = tt_thread() % 32, row = 16 * (tt_thread() / 32) + lane / 4;
  for (int i = 0; i < N / 2; ++i) d[(row + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = acc[i];
}

TT_KERNEL(128, 1)
narrow(const float* __restrict__ a32, const float* __restrict__ b32, const tt_u8* __restrict__ a8, const tt_u8* __restrict__ b8,
       float* __restrict__ d) {
  TT_DYNAMIC_SMEM(smem);
  put_rows(smem, a32, 64);
  put_rows(smem + 2048, b32, 32);
  put_rows(smem + 3072, a8, 64);
  put_rows(smem + 5120, b8, 16);
  tt_fence_proxy_async();
  tt_sync_threads();
  const tt_u32 base = tt_smem_address(smem);
  float wide[16], small[8];
  tt_wgmma_fence();
  tt_wgmma_m64<float, 32>::run(wide, tt_wgmma_descriptor(base, 16, 256, 32), tt_wgmma_descriptor(base + 2048, 16, 256, 32), 0);
  tt_wgmma_m64<tt_e4m3, 16>::run(small, tt_wgmma_descriptor(base + 3072, 16, 256, 32), tt_wgmma_descriptor(base + 5120, 16, 256, 32), 0);
  tt_wgmma_commit();
  tt_wgmma_wait<0>();
  put_result<32>(d, wide);
  put_result<16>(d + 64 * 32, small);
}
