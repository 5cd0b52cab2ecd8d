// One mma.sync of each narrow type, fragments read straight from memory.
#include "tatami_ptx.cuh"

TT_KERNEL(32, 1)
products(const tt_u32* __restrict__ a32, const tt_u32* __restrict__ b32, const tt_u8* __restrict__ a8, const tt_u8* __restrict__ b8,
         float* __restrict__ d) {
  const int lane = tt_thread(), g = lane / 4, q = lane % 4;
  tt_u32 a[4], b[2];
  float acc[4] = {0, 0, 0, 0}, sum[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) a[i] = a32[(g + 8 * (i % 2)) * 8 + q + 4 * (i / 2)];
  for (int i = 0; i < 2; ++i) b[i] = b32[(q + 4 * i) * 8 + g];
  tt_mma_m16n8k8_tf32(acc, a, b[0], b[1]);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  for (int i = 0; i < 4; ++i) a[i] = *(const tt_u32*)(a8 + (g + 8 * (i % 2)) * 32 + 4 * q + 16 * (i / 2));
  for (int i = 0; i < 2; ++i) b[i] = *(const tt_u32*)(b8 + g * 32 + 4 * q + 16 * i);  // stored [n][k]
  tt_mma_m16n8k32_e4m3(sum, a, b[0], b[1]);
#endif
  for (int i = 0; i < 4; ++i) {
    const int at = (g + 8 * (i / 2)) * 8 + 2 * q + i % 2;
    d[at] = acc[i];
    d[128 + at] = sum[i];
  }
}
