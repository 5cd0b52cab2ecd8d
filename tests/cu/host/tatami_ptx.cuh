// The PTX header's functions on the host, for numeric tests of kernel text: one fiber per CUDA thread, copies land at
// once, collectives meet. It checks numbers, not synchronisation.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <map>
#include <vector>

typedef unsigned char tt_u8;
typedef unsigned short tt_u16;
typedef unsigned int tt_u32;
typedef unsigned long long tt_u64;
typedef long long tt_i64;
struct tt_f16 { tt_u16 bits; };
struct tt_bf16 { tt_u16 bits; };
struct tt_tensor_map { tt_u64 words[16]; };

#define TT_DEV static inline
#define TT_KERNEL(threads, ctas) extern "C" void
#define TT_GRID_CONSTANT const
#define TT_DYNAMIC_SMEM(name) tt_u8* const name = host::smem
#define TT_SMEM_LABEL(address, bytes, label)
#define TT_UNROLL
#define TT_ROLLED
#define TT_UNROLL_BY(n)

namespace host {
alignas(1024) static tt_u8 smem[232448];
constexpr tt_u32 BASE = 0x400;
struct Fiber { ucontext_t context; std::vector<char> stack; bool done; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current, threads, block[3], grid[3];
static void (*body)();
struct Meeting { int arrived = 0, generation = 0; };
static Meeting cta, warps[32];
struct Warp { tt_u32 words[32][6]; };
static Warp exchange[32];
struct Barrier { int count = 0, pending = 0, tx = 0, parity = 0; };
static std::map<tt_u32, Barrier> barriers;

inline void yield() { swapcontext(&fibers[current].context, &scheduler); }
inline void meet(Meeting& m, int count) {
  const int mine = m.generation;
  if (++m.arrived == count) { m.arrived = 0; ++m.generation; return; }
  while (m.generation == mine) yield();
}
inline void warp_sync() { meet(warps[current / 32], 32); }
inline void settle(Barrier& b) {
  if (b.pending == 0 && b.tx == 0) b.pending = b.count, b.parity ^= 1;
}
static void entry() { body(); fibers[current].done = true; swapcontext(&fibers[current].context, &scheduler); }

static int run_block(int count, void (*what)()) {
  threads = count, body = what;
  memset(smem, 0xff, sizeof smem);
  barriers.clear();
  cta = Meeting();
  for (auto& w : warps) w = Meeting();
  fibers.resize(count);
  for (auto& f : fibers) {
    f.stack.resize(1 << 16);
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data(), f.context.uc_stack.ss_size = f.stack.size(), f.context.uc_link = nullptr;
    makecontext(&f.context, entry, 0);
  }
  for (long rounds = 0;; ++rounds) {
    bool alive = false;
    for (current = 0; current < count; ++current)
      if (!fibers[current].done) alive = true, swapcontext(&scheduler, &fibers[current].context);
    if (!alive) return 0;
    if (rounds > 2000000) return 1;
  }
}
inline float f16(tt_u16 h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
inline float bf16(tt_u16 h) { const tt_u32 u = (tt_u32)h << 16; float x; memcpy(&x, &u, 4); return x; }
inline tt_u16 half_at(tt_u32 address) { tt_u16 h; memcpy(&h, smem + (address - BASE), 2); return h; }
}  // namespace host

TT_DEV int tt_thread() { return host::current; }
TT_DEV int tt_block_x() { return host::block[0]; }
TT_DEV int tt_block_y() { return host::block[1]; }
TT_DEV int tt_block_z() { return host::block[2]; }
TT_DEV int tt_grid_x() { return host::grid[0]; }
TT_DEV tt_u32 tt_smem_address(const void* p) { return (tt_u32)((const tt_u8*)p - host::smem) + host::BASE; }
TT_DEV void tt_sync_threads() { host::meet(host::cta, host::threads); }
TT_DEV tt_u32 tt_shuffle_xor(tt_u32 value, int mask) {
  auto& e = host::exchange[host::current / 32];
  e.words[host::current % 32][0] = value;
  host::warp_sync();
  const tt_u32 got = e.words[(host::current % 32) ^ mask][0];
  host::warp_sync();
  return got;
}
TT_DEV int tt_uniform(int value) { return value; }

TT_DEV float tt_to_f32(tt_f16 x) { return host::f16(x.bits); }
TT_DEV float tt_to_f32(tt_bf16 x) { return host::bf16(x.bits); }
TT_DEV tt_f16 tt_to_f16(float x) { const _Float16 h = (_Float16)x; tt_f16 r; memcpy(&r, &h, 2); return r; }
TT_DEV tt_bf16 tt_to_bf16(float x) {
  tt_u32 u; memcpy(&u, &x, 4);
  if (x != x) return {0x7fff};
  return {(tt_u16)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
TT_DEV float tt_bits_to_f32(tt_u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
TT_DEV tt_u32 tt_f32_to_bits(float x) { tt_u32 u; memcpy(&u, &x, 4); return u; }
TT_DEV tt_u32 tt_pack_f16(float lo, float hi) { return tt_to_f16(lo).bits | (tt_u32)tt_to_f16(hi).bits << 16; }
TT_DEV tt_u32 tt_pack_bf16(float lo, float hi) { return tt_to_bf16(lo).bits | (tt_u32)tt_to_bf16(hi).bits << 16; }
TT_DEV void host_aligned(const void* p, size_t n) { if ((uintptr_t)p % n) { fprintf(stderr, "misaligned %zu\n", n); abort(); } }
TT_DEV void tt_store_global_v4(void* p, tt_u32 a, tt_u32 b, tt_u32 c, tt_u32 d) {
  host_aligned(p, 16); const tt_u32 v[4] = {a, b, c, d}; memcpy(p, v, 16);
}
TT_DEV void tt_store_global_v2(void* p, tt_u32 a, tt_u32 b) { host_aligned(p, 8); const tt_u32 v[2] = {a, b}; memcpy(p, v, 8); }
TT_DEV void tt_store_global_v1(void* p, tt_u32 a) { host_aligned(p, 4); memcpy(p, &a, 4); }

TT_DEV void host_copy(tt_u32 dst, const void* src, int bytes, int width) {
  host_aligned(src, width);
  tt_u8* to = host::smem + (dst - host::BASE);
  host_aligned(to, width);
  memset(to, 0, width);
  if (bytes) memcpy(to, src, bytes);
}
TT_DEV void tt_cp_async_16(tt_u32 dst, const void* src, int bytes) { host_copy(dst, src, bytes, 16); }
TT_DEV void tt_cp_async_8(tt_u32 dst, const void* src, int bytes) { host_copy(dst, src, bytes, 8); }
TT_DEV void tt_cp_async_4(tt_u32 dst, const void* src, int bytes) { host_copy(dst, src, bytes, 4); }
TT_DEV void tt_copy_2(tt_u32 dst, const void* src, int bytes) { host_copy(dst, src, bytes, 2); }
TT_DEV void tt_cp_async_commit() {}
template <int PENDING> TT_DEV void tt_cp_async_wait() {}

TT_DEV void host_ldmatrix(tt_u32 (&r)[4], tt_u32 address, bool trans) {
  auto& e = host::exchange[host::current / 32];
  const int lane = host::current % 32, g = lane / 4, q = lane % 4 * 2;
  e.words[lane][0] = address;
  host::warp_sync();
  for (int i = 0; i < 4; ++i) {
    tt_u16 lo, hi;
    if (trans) {
      lo = host::half_at(e.words[8 * i + q][0] + 2 * g), hi = host::half_at(e.words[8 * i + q + 1][0] + 2 * g);
    } else {
      lo = host::half_at(e.words[8 * i + g][0] + 2 * q), hi = host::half_at(e.words[8 * i + g][0] + 2 * q + 2);
    }
    r[i] = lo | (tt_u32)hi << 16;
  }
  host::warp_sync();
}
TT_DEV void tt_ldmatrix_x4(tt_u32 (&r)[4], tt_u32 address) { host_ldmatrix(r, address, false); }
TT_DEV void tt_ldmatrix_x4_trans(tt_u32 (&r)[4], tt_u32 address) { host_ldmatrix(r, address, true); }

TT_DEV void host_mma(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1, float (*value)(tt_u16)) {
  auto& e = host::exchange[host::current / 32];
  const int lane = host::current % 32;
  memcpy(e.words[lane], a, 16);
  e.words[lane][4] = b0, e.words[lane][5] = b1;
  host::warp_sync();
  auto part = [&](int from, int reg, int half) { return value((tt_u16)(e.words[from][reg] >> (16 * half))); };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < 16; ++k)
      d[i] += part(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8), k % 2) * part(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
  }
  host::warp_sync();
}
TT_DEV void tt_mma_m16n8k16_f16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) { host_mma(d, a, b0, b1, host::f16); }
TT_DEV void tt_mma_m16n8k16_bf16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) { host_mma(d, a, b0, b1, host::bf16); }

TT_DEV void tt_mbarrier_init(tt_u32 barrier, tt_u32 count) { host::barriers[barrier] = {(int)count, (int)count, 0, 0}; }
TT_DEV void tt_fence_mbarrier_init() {}
TT_DEV void tt_mbarrier_arrive(tt_u32 barrier) { auto& b = host::barriers.at(barrier); --b.pending; host::settle(b); }
TT_DEV void tt_mbarrier_arrive_expect_tx(tt_u32 barrier, tt_u32 bytes) {
  auto& b = host::barriers.at(barrier); b.tx += (int)bytes; --b.pending; host::settle(b);
}
TT_DEV void tt_mbarrier_wait(tt_u32 barrier, tt_u32 parity) { while (host::barriers.at(barrier).parity == (int)parity) host::yield(); }

// words: base, rank, then dims (5), strides of dims 1.. (4), box (5) packed as 16-bit each behind, swizzle
struct HostMap { const tt_u8* base; int rank; long long dim[5], stride[5]; int box[5], swizzle; };
TT_DEV void host_tma(tt_u32 dst, const tt_tensor_map* map, const int* at, tt_u32 barrier) {
  const HostMap& m = *(const HostMap*)map->words[0];
  int total = 1;
  for (int i = 0; i < m.rank; ++i) total *= m.box[i];
  for (int n = 0; n < total; ++n) {
    long long rest = n, offset = 0;
    bool inside = true;
    for (int i = 0; i < m.rank; ++i) {
      const long long c = at[i] + rest % m.box[i];
      rest /= m.box[i];
      inside = inside && c >= 0 && c < m.dim[i];
      offset += c * (i ? m.stride[i] : 2);
    }
    const tt_u32 linear = dst + 2 * n, span = m.swizzle == 128 ? 7 : m.swizzle == 64 ? 3 : 1;
    const tt_u32 to = linear ^ ((linear >> 7 & span) << 4);
    tt_u16 h = 0;
    if (inside) memcpy(&h, m.base + offset, 2);
    memcpy(host::smem + (to - host::BASE), &h, 2);
  }
  auto& b = host::barriers.at(barrier);
  b.tx -= 2 * total;
  host::settle(b);
}
TT_DEV void tt_tma_load_2d(tt_u32 d, const tt_tensor_map* m, int x, int y, tt_u32 b) { const int c[] = {x, y}; host_tma(d, m, c, b); }
TT_DEV void tt_tma_load_3d(tt_u32 d, const tt_tensor_map* m, int x, int y, int z, tt_u32 b) { const int c[] = {x, y, z}; host_tma(d, m, c, b); }
template <int COUNT> TT_DEV void tt_setmaxnreg_inc() {}
template <int COUNT> TT_DEV void tt_setmaxnreg_dec() {}
TT_DEV void tt_wgmma_fence() {}
TT_DEV void tt_wgmma_commit() {}
template <int PENDING> TT_DEV void tt_wgmma_wait() {}
template <int N> TT_DEV void tt_wgmma_hold(float (&)[N]) {}
TT_DEV tt_u64 tt_wgmma_descriptor(tt_u32 address, tt_u32 leading, tt_u32 stride, int swizzle) {
  const tt_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return (tt_u64)((address & 0x3ffff) >> 4) | (tt_u64)((leading & 0x3ffff) >> 4) << 16 | (tt_u64)((stride & 0x3ffff) >> 4) << 32 | mode << 62;
}
TT_DEV float host_value(tt_f16 x) { return host::f16(x.bits); }
TT_DEV float host_value(tt_bf16 x) { return host::bf16(x.bits); }
// Element (mn, k) of an operand by its descriptor: canonical swizzled layouts, XOR on the absolute address.
TT_DEV tt_u16 host_operand(tt_u64 desc, bool trans, int mn, int k) {
  const tt_u32 start = (desc & 0x3fff) << 4, leading = (desc >> 16 & 0x3fff) << 4, stride = (desc >> 32 & 0x3fff) << 4;
  const int mode = (int)(desc >> 62), width = mode == 1 ? 128 : mode == 2 ? 64 : 32;
  const tt_u32 linear = trans ? start + mn % (width / 2) * 2 + mn / (width / 2) * leading + k % 8 * width + k / 8 * stride
                              : start + mn % 8 * width + mn / 8 * stride + 2 * k;
  return host::half_at(linear ^ ((linear >> 7 & (width / 16 - 1)) << 4));
}
template <class T, int N, int TRANS_A, int TRANS_B> struct tt_wgmma_m64k16 {
  static void run(float (&d)[N / 2], tt_u64 a, tt_u64 b, int scale_d) {
    const int t = host::current % 128;
    for (int i = 0; i < N / 2; ++i) {
      const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (t % 4) + i % 2;
      float sum = scale_d ? d[i] : 0.0f;
      for (int k = 0; k < 16; ++k)
        sum += host_value(T{host_operand(a, TRANS_A, row, k)}) * host_value(T{host_operand(b, TRANS_B, column, k)});
      d[i] = sum;
    }
  }
};
