// A 64x64 tile of halves, doubled: global -> TMA -> registers -> stmatrix -> TMA store, twice through one staging tile.
#include "tatami_ptx.cuh"
#include "tatami_math.cuh"

TT_KERNEL(128, 1)
tma_store(TT_GRID_CONSTANT tt_tensor_map in, TT_GRID_CONSTANT tt_tensor_map out, tt_u32* again) {
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 bar = tt_smem_address(smem), tile = bar + 1024, staging = tile + 8192;
  TT_SMEM_LABEL(tile, 8192, "tile");
  TT_SMEM_LABEL(staging, 8192, "staging");
  const int tid = tt_thread(), lane = tid % 32, warp = tt_uniform(tid / 32);
  if (tid == 0) tt_mbarrier_init(bar, 1);
  if (tid == 0) tt_fence_mbarrier_init();
  tt_sync_threads();
  for (int k = 0; k < 2; ++k) {
    if (tid == 0) {
      tt_mbarrier_arrive_expect_tx(bar, 8192);
      tt_tma_load_2d(tile, &in, 0, 64 * k, bar);
    }
    tt_mbarrier_wait(bar, k & 1);
    if (tid == 0) tt_bulk_wait_read<0>();
    tt_sync_threads();
    for (int c = 0; c < 4; ++c) {
      tt_u32 r[4];
      const tt_u32 at = tt_tile_offset<128, 128>(16 * warp + lane % 16, 2 * c + lane / 16);
      tt_ldmatrix_x4(r, tile + at);
      for (int i = 0; i < 4; ++i) {
        tt_f16 lo, hi;
        lo.bits = (tt_u16)r[i], hi.bits = (tt_u16)(r[i] >> 16);
        r[i] = tt_pack_f16(2 * tt_to_f32(lo), 2 * tt_to_f32(hi));
      }
      tt_stmatrix_x4(staging + at, r);
    }
    tt_fence_proxy_async();
    tt_sync_threads();
    if (tid == 0) {
      tt_tma_store_2d(&out, 0, 64 * k, staging);
      tt_bulk_commit();
    }
  }
  if (tid == 0) tt_bulk_wait<0>();
  if (tid == 0) again[0] = 1;
}
