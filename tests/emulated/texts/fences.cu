// A value handed from block 1 to block 0 by relaxed accesses between fences, and tiles taken from a counter.
#include "tatami_ptx.cuh"

TT_KERNEL(32, 1)
fences(float* value, tt_u32* flag, tt_u32* tiles, tt_u32* taken, float* sums, tt_u32* lock) {
  const int lane = tt_thread();
  if (tt_block_x() == 1 && lane == 0) {
    value[0] = 42.0f;
    tt_fence_device();
    tt_store_relaxed(flag, 1u);
  }
  if (tt_block_x() == 0 && lane == 0) {
    while (tt_load_relaxed(flag) == 0) {}
    tt_fence_device();
    value[1] = value[0] + 1.0f;
  }
  for (;;) {
    tt_u32 tile = 0;
    if (lane == 0) tile = tt_atomic_add(tiles, 1u);
    tile = (tt_u32)tt_uniform((int)tile);
    if (tile >= 7u) break;
    if (lane == 0) taken[tile] = tile + 1u;
    tt_atomic_add_f32(sums, 1.0f);
    tt_atomic_max((tt_u32*)sums + 1, tile);
  }
  if (lane == 0) {
    while (tt_atomic_cas(lock, 0u, 1u) != 0u) {}
    sums[2] = sums[2] + 1.0f;
    tt_store_release(lock, 0u);
  }
}
