// The functions of the PTX header on the emulated GPU. The same kernel text includes either.
#pragma once
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's own header: C++'s takes the compiler longer than most kernels
#include <math.h>
#include <string.h>

#include "emu.h"

typedef unsigned char tt_u8;
typedef unsigned short tt_u16;
typedef unsigned int tt_u32;
typedef unsigned long long tt_u64;
typedef long long tt_i64;

struct tt_f16 { tt_u16 bits; };
struct tt_bf16 { tt_u16 bits; };
struct tt_e4m3 { tt_u8 bits; };
struct tt_e5m2 { tt_u8 bits; };
struct alignas(64) tt_tensor_map { tt_u64 words[16]; };

#define TT_DEV static inline __attribute__((always_inline, unused))
#define TT_MEMBER inline __attribute__((always_inline))
#define TT_KERNEL(threads, ctas) extern "C" __attribute__((visibility("default"))) void
#define TT_KERNEL_CLUSTER(threads, blocks) TT_KERNEL(threads, 1)
#define TT_GRID_CONSTANT const
#define TT_DYNAMIC_SMEM(name) tt_u8* const name = emu::shared_memory()
#define TT_SMEM_LABEL(address, bytes, name) emu::label(address, bytes, name)
#define TT_SMEM_GATHERED(address, bytes) emu::gathered(address, bytes)
#define TT_UNROLL
#define TT_ROLLED
#define TT_UNROLL_BY(n)
#define TT_AT emu::Site at = emu::Site::here()

// ---- where am I
TT_DEV int tt_thread() { return emu::thread_index(); }
TT_DEV int tt_block_x() { return emu::block_index(0); }
TT_DEV int tt_block_y() { return emu::block_index(1); }
TT_DEV int tt_block_z() { return emu::block_index(2); }
TT_DEV int tt_grid_x() { return emu::grid_size(0); }
TT_DEV tt_u32 tt_smem_address(const void* p, TT_AT) { return emu::shared_address(p, at); }
TT_DEV void tt_sync_threads(TT_AT) { emu::sync_threads(at); }
TT_DEV tt_u32 tt_shuffle_xor(tt_u32 value, int mask, TT_AT) {
  return emu::shuffle(value, (emu::thread_index() & 31) ^ mask, 0xffffffffu, at);
}
TT_DEV float tt_quad_at(float value, int which, TT_AT) {
  const int lane = (emu::thread_index() & 31 & ~3) | which;
  return __builtin_bit_cast(float, emu::shuffle(__builtin_bit_cast(tt_u32, value), lane, 0xffffffffu, at));
}
TT_DEV int tt_uniform(int value, TT_AT) { return (int)emu::shuffle((tt_u32)value, 0, 0xffffffffu, at); }

TT_DEV void tt_fault(int code, TT_AT) { emu::data_fault(code, at); }

TT_DEV tt_u32 tt_ballot(bool value, TT_AT) { return emu::ballot(value, 0xffffffffu, at); }
TT_DEV void tt_sync_warp(TT_AT) { emu::sync_warp(0xffffffffu, at); }
TT_DEV void tt_named_sync(int barrier, int threads, TT_AT) { emu::named_barrier(barrier, threads, true, at); }
TT_DEV void tt_named_arrive(int barrier, int threads, TT_AT) { emu::named_barrier(barrier, threads, false, at); }

// ---- flags and counters that blocks share
TT_DEV tt_u32 tt_atomic_add(tt_u32* p, tt_u32 value, TT_AT) { return emu::atomic(p, value, emu::Change::add, emu::Order::relaxed, at); }
TT_DEV tt_u32 tt_atomic_add_acq_rel(tt_u32* p, tt_u32 value, TT_AT) {
  return emu::atomic(p, value, emu::Change::add, emu::Order::acquire_release, at);
}
TT_DEV tt_u32 tt_atomic_max(tt_u32* p, tt_u32 value, TT_AT) { return emu::atomic(p, value, emu::Change::max, emu::Order::relaxed, at); }
TT_DEV tt_u32 tt_atomic_cas(tt_u32* p, tt_u32 expected, tt_u32 wanted, TT_AT) {
  return emu::compare_and_swap(p, expected, wanted, emu::Order::acquire_release, at);
}
TT_DEV void tt_atomic_add_f32(float* p, float value, TT_AT) {
  emu::atomic(p, __builtin_bit_cast(tt_u32, value), emu::Change::add_f32, emu::Order::relaxed, at);
}
TT_DEV tt_u32 tt_load_acquire(const tt_u32* p, TT_AT) { return emu::load_flag(p, emu::Order::acquire, at); }
TT_DEV tt_u32 tt_load_relaxed(const tt_u32* p, TT_AT) { return emu::load_flag(p, emu::Order::relaxed, at); }
TT_DEV void tt_store_release(tt_u32* p, tt_u32 value, TT_AT) { emu::store_flag(p, value, emu::Order::release, at); }
TT_DEV void tt_store_relaxed(tt_u32* p, tt_u32 value, TT_AT) { emu::store_flag(p, value, emu::Order::relaxed, at); }
TT_DEV void tt_fence_device(TT_AT) { emu::fence_device(at); }

// ---- conversions
TT_DEV float tt_to_f32(tt_f16 x) { return emu::widen(emu::Type::f16, x.bits); }
TT_DEV float tt_to_f32(tt_bf16 x) { return emu::widen(emu::Type::bf16, x.bits); }
TT_DEV tt_f16 tt_to_f16(float x) { return tt_f16{emu::narrow_f16(x)}; }
TT_DEV tt_bf16 tt_to_bf16(float x) { return tt_bf16{emu::narrow_bf16(x)}; }
TT_DEV float tt_bits_to_f32(tt_u32 bits) { return __builtin_bit_cast(float, bits); }
TT_DEV tt_u32 tt_f32_to_bits(float x) { return __builtin_bit_cast(tt_u32, x); }
TT_DEV tt_u32 tt_to_tf32(float x) {  // ones in the bits that do not count: nobody may rely on them
  const tt_u32 bits = tt_f32_to_bits(x);
  if (x != x) return 0x7fffffffu;  // a NaN may have its only ones there
  return x - x == 0.0f ? (bits + 0x1000u) | 0x1fffu : bits;
}
TT_DEV tt_u32 tt_pack_f16(float lo, float hi) { return emu::narrow_f16(lo) | (tt_u32)emu::narrow_f16(hi) << 16; }
TT_DEV tt_u32 tt_pack_bf16(float lo, float hi) { return emu::narrow_bf16(lo) | (tt_u32)emu::narrow_bf16(hi) << 16; }
TT_DEV float tt_exp2_approx(float x) {  // what is below the least normal number is 0
  const float power = exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
}

// ---- global memory
TT_DEV void tt_load_global_v4(tt_u32 (&r)[4], const void* p, TT_AT) { emu::load(r, p, 16, at); }
TT_DEV void tt_load_global_v2(tt_u32 (&r)[2], const void* p, TT_AT) { emu::load(r, p, 8, at); }
TT_DEV void tt_load_global_v1(tt_u32 (&r)[1], const void* p, TT_AT) { emu::load(r, p, 4, at); }
TT_DEV void tt_store_global_v4(void* p, tt_u32 a, tt_u32 b, tt_u32 c, tt_u32 d, TT_AT) {
  const tt_u32 words[] = {a, b, c, d};
  emu::store(p, words, 16, at);
}
TT_DEV void tt_store_global_v2(void* p, tt_u32 a, tt_u32 b, TT_AT) {
  const tt_u32 words[] = {a, b};
  emu::store(p, words, 8, at);
}
TT_DEV void tt_store_global_v1(void* p, tt_u32 a, TT_AT) { emu::store(p, &a, 4, at); }

// ---- sm_80: asynchronous copies
TT_DEV void tt_cp_async_16(tt_u32 dst, const void* src, int bytes, TT_AT) { emu::cp_async(dst, src, 16, bytes, at); }
TT_DEV void tt_cp_async_8(tt_u32 dst, const void* src, int bytes, TT_AT) { emu::cp_async(dst, src, 8, bytes, at); }
TT_DEV void tt_cp_async_4(tt_u32 dst, const void* src, int bytes, TT_AT) { emu::cp_async(dst, src, 4, bytes, at); }
TT_DEV void tt_copy_2(tt_u32 dst, const void* src, int bytes, TT_AT) {
  tt_u16 value = 0;
  if (bytes) emu::load(&value, src, 2, at);
  emu::store_shared(dst, &value, 2, at);
}
TT_DEV void tt_cp_async_commit(TT_AT) { emu::cp_async_commit(at); }
template <int PENDING> TT_DEV void tt_cp_async_wait(TT_AT) { emu::cp_async_wait(PENDING, at); }

// ---- sm_80: fragments and products
TT_DEV tt_u32 tt_load_shared_v1(tt_u32 address, TT_AT) {
  tt_u32 r;
  emu::load_shared(&r, address, 4, at);
  return r;
}
TT_DEV void tt_load_shared_v2(float& x, float& y, tt_u32 address, TT_AT) {
  float r[2];
  emu::load_shared(r, address, 8, at);
  x = r[0], y = r[1];
}
TT_DEV void tt_load_shared_v4(float (&r)[4], tt_u32 address, TT_AT) { emu::load_shared(r, address, 16, at); }
TT_DEV void tt_ldmatrix_x4(tt_u32 (&r)[4], tt_u32 address, TT_AT) { emu::ldmatrix(r, address, 4, false, at); }
TT_DEV void tt_ldmatrix_x4_trans(tt_u32 (&r)[4], tt_u32 address, TT_AT) { emu::ldmatrix(r, address, 4, true, at); }
TT_DEV void tt_mma_m16n8k16_f16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::f16, d, a, b0, b1, at);
}
TT_DEV void tt_mma_m16n8k16_bf16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::bf16, d, a, b0, b1, at);
}

TT_DEV void tt_mma_m16n8k8_tf32(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::tf32, d, a, b0, b1, at);
}
TT_DEV void tt_mma_m16n8k32_e4m3(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::e4m3, d, a, b0, b1, at);
}
TT_DEV void tt_mma_m16n8k32_e5m2(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::e5m2, d, a, b0, b1, at);
}

// ---- sm_90: one lane of the warp, matrices back to shared memory
TT_DEV bool tt_elect(TT_AT) { return emu::elect(at); }
TT_DEV void tt_stmatrix_x4(tt_u32 address, const tt_u32 (&r)[4], TT_AT) { emu::stmatrix(address, r, 4, false, at); }
TT_DEV void tt_stmatrix_x4_trans(tt_u32 address, const tt_u32 (&r)[4], TT_AT) { emu::stmatrix(address, r, 4, true, at); }

// ---- sm_90: blocks of a cluster
TT_DEV int tt_cluster_rank() { return emu::cluster_rank(); }
TT_DEV void tt_cluster_arrive(TT_AT) { emu::cluster_arrive(at); }
TT_DEV void tt_cluster_wait(TT_AT) { emu::cluster_wait(at); }
TT_DEV tt_u32 tt_map_shared(tt_u32 address, int rank, TT_AT) { return emu::address_in(address, rank, at); }
TT_DEV tt_u32 tt_load_cluster(tt_u32 address, TT_AT) {
  tt_u32 value;
  emu::load_shared(&value, address, 4, at);
  return value;
}
TT_DEV void tt_store_cluster(tt_u32 address, tt_u32 value, TT_AT) { emu::store_shared(address, &value, 4, at); }
TT_DEV void tt_mbarrier_arrive_cluster(tt_u32 barrier, TT_AT) { emu::barrier_arrive(barrier, 0, at); }

// ---- sm_90: the kernel before this one in the stream
TT_DEV void tt_grid_dependency_wait(TT_AT) { emu::grid_dependency_wait(at); }
TT_DEV void tt_grid_dependency_launch() {}

// ---- sm_90: barriers in shared memory
TT_DEV void tt_mbarrier_init(tt_u32 barrier, tt_u32 count, TT_AT) { emu::barrier_init(barrier, count, at); }
TT_DEV void tt_fence_mbarrier_init(TT_AT) { emu::fence_barrier_init(at); }
TT_DEV void tt_fence_proxy_async(TT_AT) { emu::fence_async(at); }
TT_DEV void tt_mbarrier_arrive(tt_u32 barrier, TT_AT) { emu::barrier_arrive(barrier, 0, at); }
TT_DEV void tt_mbarrier_arrive_expect_tx(tt_u32 barrier, tt_u32 bytes, TT_AT) { emu::barrier_arrive(barrier, bytes, at); }
TT_DEV void tt_mbarrier_expect_tx(tt_u32 barrier, tt_u32 bytes, TT_AT) { emu::barrier_expect(barrier, bytes, at); }
TT_DEV void tt_mbarrier_invalidate(tt_u32 barrier, TT_AT) { emu::barrier_invalidate(barrier, at); }
TT_DEV void tt_cp_async_arrive(tt_u32 barrier, TT_AT) { emu::cp_async_arrive(barrier, at); }
TT_DEV bool tt_mbarrier_try_wait_parity(tt_u32 barrier, tt_u32 parity, TT_AT) {
  emu::barrier_wait(barrier, parity, at);
  return true;
}
TT_DEV void tt_mbarrier_wait(tt_u32 barrier, tt_u32 parity, TT_AT) { emu::barrier_wait(barrier, parity, at); }

// ---- sm_90: boxes of a tensor map
TT_DEV void tt_prefetch_tensor_map(const tt_tensor_map*) {}
TT_DEV void tt_tma_load_2d(tt_u32 dst, const tt_tensor_map* map, int x, int y, tt_u32 barrier, TT_AT) {
  const int c[] = {x, y};
  emu::tma_load(dst, map, c, 2, barrier, 0, at);
}
TT_DEV void tt_tma_load_3d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, tt_u32 barrier, TT_AT) {
  const int c[] = {x, y, z};
  emu::tma_load(dst, map, c, 3, barrier, 0, at);
}
TT_DEV void tt_tma_load_4d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 barrier, TT_AT) {
  const int c[] = {x, y, z, w};
  emu::tma_load(dst, map, c, 4, barrier, 0, at);
}
TT_DEV void tt_tma_load_5d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 barrier, TT_AT) {
  const int c[] = {x, y, z, w, v};
  emu::tma_load(dst, map, c, 5, barrier, 0, at);
}

TT_DEV void tt_tma_load_2d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, tt_u32 barrier, tt_u16 blocks, TT_AT) {
  const int c[] = {x, y};
  emu::tma_load(dst, map, c, 2, barrier, blocks, at);
}
TT_DEV void tt_tma_load_3d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, tt_u32 barrier, tt_u16 blocks, TT_AT) {
  const int c[] = {x, y, z};
  emu::tma_load(dst, map, c, 3, barrier, blocks, at);
}
TT_DEV void tt_tma_load_4d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 barrier, tt_u16 blocks, TT_AT) {
  const int c[] = {x, y, z, w};
  emu::tma_load(dst, map, c, 4, barrier, blocks, at);
}
TT_DEV void tt_tma_load_5d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 barrier, tt_u16 blocks, TT_AT) {
  const int c[] = {x, y, z, w, v};
  emu::tma_load(dst, map, c, 5, barrier, blocks, at);
}
TT_DEV void tt_tma_load_im2col_4d(tt_u32 dst, const tt_tensor_map* map, int c, int w, int h, int n, tt_u16 dw, tt_u16 dh, tt_u32 barrier, TT_AT) {
  const int x[] = {c, w, h, n};
  const tt_u16 offsets[] = {dw, dh};
  emu::tma_load_im2col(dst, map, x, 4, offsets, barrier, 0, at);
}
TT_DEV void tt_bulk_load(tt_u32 dst, const void* src, tt_u32 bytes, tt_u32 barrier, TT_AT) { emu::bulk_load(dst, src, bytes, barrier, at); }

// ---- sm_90: from shared to global memory
TT_DEV void tt_tma_store_2d(const tt_tensor_map* map, int x, int y, tt_u32 src, TT_AT) {
  const int c[] = {x, y};
  emu::tma_store(map, c, 2, src, emu::Reduce::none, at);
}
TT_DEV void tt_tma_store_3d(const tt_tensor_map* map, int x, int y, int z, tt_u32 src, TT_AT) {
  const int c[] = {x, y, z};
  emu::tma_store(map, c, 3, src, emu::Reduce::none, at);
}
TT_DEV void tt_tma_store_4d(const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 src, TT_AT) {
  const int c[] = {x, y, z, w};
  emu::tma_store(map, c, 4, src, emu::Reduce::none, at);
}
TT_DEV void tt_tma_store_5d(const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 src, TT_AT) {
  const int c[] = {x, y, z, w, v};
  emu::tma_store(map, c, 5, src, emu::Reduce::none, at);
}
TT_DEV void tt_tma_add_2d(const tt_tensor_map* map, int x, int y, tt_u32 src, TT_AT) {
  const int c[] = {x, y};
  emu::tma_store(map, c, 2, src, emu::Reduce::add, at);
}
TT_DEV void tt_bulk_store(void* dst, tt_u32 src, tt_u32 bytes, TT_AT) { emu::bulk_store(dst, src, bytes, at); }
TT_DEV void tt_bulk_commit(TT_AT) { emu::bulk_commit(at); }
template <int PENDING> TT_DEV void tt_bulk_wait(TT_AT) { emu::bulk_wait(PENDING, false, at); }
template <int PENDING> TT_DEV void tt_bulk_wait_read(TT_AT) { emu::bulk_wait(PENDING, true, at); }

// ---- sm_90: registers and products of a warpgroup
template <int COUNT> TT_DEV void tt_setmaxnreg_inc(TT_AT) { emu::set_registers(COUNT, true, at); }
template <int COUNT> TT_DEV void tt_setmaxnreg_dec(TT_AT) { emu::set_registers(COUNT, false, at); }
TT_DEV void tt_wgmma_fence(TT_AT) { emu::wgmma_fence(at); }
TT_DEV void tt_wgmma_commit(TT_AT) { emu::wgmma_commit(at); }
template <int PENDING> TT_DEV void tt_wgmma_wait(TT_AT) { emu::wgmma_wait(PENDING, at); }
template <int N> TT_DEV void tt_wgmma_hold(float (&)[N]) {}
template <int N> TT_DEV void tt_wgmma_hold(tt_u32 (&)[N]) {}
TT_DEV tt_u64 tt_wgmma_descriptor(tt_u32 address, tt_u32 leading, tt_u32 stride, int swizzle) {
  const tt_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return (tt_u64)((address & 0x3ffff) >> 4) | (tt_u64)((leading & 0x3ffff) >> 4) << 16 | (tt_u64)((stride & 0x3ffff) >> 4) << 32 |
         mode << 62;
}
template <class T> struct tt_type_of;
template <> struct tt_type_of<tt_f16> { static constexpr emu::Type type = emu::Type::f16; };
template <> struct tt_type_of<tt_bf16> { static constexpr emu::Type type = emu::Type::bf16; };
template <> struct tt_type_of<float> { static constexpr emu::Type type = emu::Type::tf32; };
template <> struct tt_type_of<tt_e4m3> { static constexpr emu::Type type = emu::Type::e4m3; };
template <> struct tt_type_of<tt_e5m2> { static constexpr emu::Type type = emu::Type::e5m2; };
template <class T, int N, int TRANS_A, int TRANS_B> struct tt_wgmma_m64k16 {
  static void run(float (&d)[N / 2], tt_u64 a, tt_u64 b, int scale_d, TT_AT) {
    emu::wgmma({tt_type_of<T>::type, N, TRANS_A != 0, TRANS_B != 0, d, nullptr, a, b, scale_d != 0}, at);
  }
};

template <class T, int N, int TRANS_B> struct tt_wgmma_m64k16_rs {
  static void run(float (&d)[N / 2], const tt_u32 (&a)[4], tt_u64 b, int scale_d, TT_AT) {
    emu::wgmma({tt_type_of<T>::type, N, false, TRANS_B != 0, d, a, 0, b, scale_d != 0}, at);
  }
};
template <class T, int N> struct tt_wgmma_m64 {
  static void run(float (&d)[N / 2], tt_u64 a, tt_u64 b, int scale_d, TT_AT) {
    emu::wgmma({tt_type_of<T>::type, N, false, false, d, nullptr, a, b, scale_d != 0}, at);
  }
};

// ---- how a launch calls the kernel: arguments as an array of pointers to them
#define TT_UNCHECKED __attribute__((no_sanitize("thread")))
namespace emu {
template <size_t... I> struct Indices {};
template <size_t N, size_t... I> struct Count : Count<N - 1, N - 1, I...> {};
template <size_t... I> struct Count<0, I...> { typedef Indices<I...> type; };
template <class... A, size_t... I> TT_UNCHECKED inline void spread(void (*f)(A...), void* const* p, Indices<I...>) { f(*(A*)p[I]...); }
template <class... A> TT_UNCHECKED inline void invoke(void (*f)(A...), void* const* p) { spread(f, p, typename Count<sizeof...(A)>::type()); }
}  // namespace emu
#define TT_ENTRY(kernel) \
  extern "C" __attribute__((visibility("default"))) TT_UNCHECKED void emu_enter_##kernel(void* const* p) { emu::invoke(kernel, p); }
