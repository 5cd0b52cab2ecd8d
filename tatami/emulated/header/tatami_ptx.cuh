// The functions of the PTX header on the emulated GPU. The same kernel text includes either.
#pragma once
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
struct alignas(64) tt_tensor_map { tt_u64 words[16]; };

#define TT_DEV static inline __attribute__((always_inline, unused))
#define TT_MEMBER inline __attribute__((always_inline))
#define TT_KERNEL(threads, ctas) extern "C" __attribute__((visibility("default"))) void
#define TT_GRID_CONSTANT const
#define TT_DYNAMIC_SMEM(name) tt_u8* const name = emu::shared_memory()
#define TT_SMEM_LABEL(address, bytes, name) emu::label(address, bytes, name)
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
TT_DEV int tt_uniform(int value, TT_AT) { return (int)emu::shuffle((tt_u32)value, 0, 0xffffffffu, at); }

TT_DEV void tt_fault(int code, TT_AT) { emu::data_fault(code, at); }

// ---- conversions
TT_DEV float tt_to_f32(tt_f16 x) { return emu::widen(emu::Type::f16, x.bits); }
TT_DEV float tt_to_f32(tt_bf16 x) { return emu::widen(emu::Type::bf16, x.bits); }
TT_DEV tt_f16 tt_to_f16(float x) { return tt_f16{emu::narrow_f16(x)}; }
TT_DEV tt_bf16 tt_to_bf16(float x) { return tt_bf16{emu::narrow_bf16(x)}; }
TT_DEV float tt_bits_to_f32(tt_u32 bits) { return __builtin_bit_cast(float, bits); }
TT_DEV tt_u32 tt_f32_to_bits(float x) { return __builtin_bit_cast(tt_u32, x); }
TT_DEV tt_u32 tt_pack_f16(float lo, float hi) { return emu::narrow_f16(lo) | (tt_u32)emu::narrow_f16(hi) << 16; }
TT_DEV tt_u32 tt_pack_bf16(float lo, float hi) { return emu::narrow_bf16(lo) | (tt_u32)emu::narrow_bf16(hi) << 16; }

// ---- global memory
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
TT_DEV void tt_load_shared_v4(float (&r)[4], tt_u32 address, TT_AT) { emu::load_shared(r, address, 16, at); }
TT_DEV void tt_ldmatrix_x4(tt_u32 (&r)[4], tt_u32 address, TT_AT) { emu::ldmatrix(r, address, 4, false, at); }
TT_DEV void tt_ldmatrix_x4_trans(tt_u32 (&r)[4], tt_u32 address, TT_AT) { emu::ldmatrix(r, address, 4, true, at); }
TT_DEV void tt_mma_m16n8k16_f16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::f16, d, a, b0, b1, at);
}
TT_DEV void tt_mma_m16n8k16_bf16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, TT_AT) {
  emu::mma(emu::Type::bf16, d, a, b0, b1, at);
}

// ---- sm_90: barriers in shared memory
TT_DEV void tt_mbarrier_init(tt_u32 barrier, tt_u32 count, TT_AT) { emu::barrier_init(barrier, count, at); }
TT_DEV void tt_fence_mbarrier_init(TT_AT) { emu::fence_barrier_init(at); }
TT_DEV void tt_fence_proxy_async(TT_AT) { emu::fence_async(at); }
TT_DEV void tt_mbarrier_arrive(tt_u32 barrier, TT_AT) { emu::barrier_arrive(barrier, 0, at); }
TT_DEV void tt_mbarrier_arrive_expect_tx(tt_u32 barrier, tt_u32 bytes, TT_AT) { emu::barrier_arrive(barrier, bytes, at); }
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

// ---- sm_90: registers and products of a warpgroup
template <int COUNT> TT_DEV void tt_setmaxnreg_inc(TT_AT) { emu::set_registers(COUNT, true, at); }
template <int COUNT> TT_DEV void tt_setmaxnreg_dec(TT_AT) { emu::set_registers(COUNT, false, at); }
TT_DEV void tt_wgmma_fence(TT_AT) { emu::wgmma_fence(at); }
TT_DEV void tt_wgmma_commit(TT_AT) { emu::wgmma_commit(at); }
template <int PENDING> TT_DEV void tt_wgmma_wait(TT_AT) { emu::wgmma_wait(PENDING, at); }
template <int N> TT_DEV void tt_wgmma_hold(float (&)[N]) {}
TT_DEV tt_u64 tt_wgmma_descriptor(tt_u32 address, tt_u32 leading, tt_u32 stride, int swizzle) {
  const tt_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return (tt_u64)((address & 0x3ffff) >> 4) | (tt_u64)((leading & 0x3ffff) >> 4) << 16 | (tt_u64)((stride & 0x3ffff) >> 4) << 32 |
         mode << 62;
}
template <class T> struct tt_type_of;
template <> struct tt_type_of<tt_f16> { static constexpr emu::Type type = emu::Type::f16; };
template <> struct tt_type_of<tt_bf16> { static constexpr emu::Type type = emu::Type::bf16; };
template <class T, int N, int TRANS_A, int TRANS_B> struct tt_wgmma_m64k16 {
  static void run(float (&d)[N / 2], tt_u64 a, tt_u64 b, int scale_d, TT_AT) {
    emu::wgmma({tt_type_of<T>::type, N, TRANS_A != 0, TRANS_B != 0, d, nullptr, a, b, scale_d != 0}, at);
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
