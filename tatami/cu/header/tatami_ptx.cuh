// The only place with inline PTX. Every function is one hardware operation under a name of its own.
#pragma once

typedef unsigned char tt_u8;
typedef unsigned short tt_u16;
typedef unsigned int tt_u32;
typedef unsigned long long tt_u64;
typedef long long tt_i64;

struct tt_f16 { tt_u16 bits; };
struct tt_bf16 { tt_u16 bits; };
struct tt_e4m3 { tt_u8 bits; };
struct tt_e5m2 { tt_u8 bits; };
struct __align__(64) tt_tensor_map { tt_u64 words[16]; };

#define TT_DEV __device__ __forceinline__
#define TT_MEMBER __device__ __forceinline__
#define TT_KERNEL(threads, ctas) extern "C" __global__ void __launch_bounds__(threads, ctas)
// In clusters of `blocks` along x, whoever launches it.
#define TT_KERNEL_CLUSTER(threads, blocks) TT_KERNEL(threads, 1) __cluster_dims__(blocks, 1, 1)
#define TT_GRID_CONSTANT const __grid_constant__
#define TT_DYNAMIC_SMEM(name) extern __shared__ __align__(1024) tt_u8 name[]
#define TT_SMEM_LABEL(address, bytes, label)
// Rows of this memory come from places that no formula ties together (pixels of a convolution, rows by an index).
#define TT_SMEM_GATHERED(address, bytes)
#define TT_UNROLL _Pragma("unroll")
#define TT_ROLLED _Pragma("unroll 1")
#define TT_PRAGMA(text) _Pragma(#text)
#define TT_UNROLL_BY(n) TT_PRAGMA(unroll n)

// ---- where am I
TT_DEV int tt_thread() { return (int)(threadIdx.x + threadIdx.y * blockDim.x); }
TT_DEV int tt_block_x() { return (int)blockIdx.x; }
TT_DEV int tt_block_y() { return (int)blockIdx.y; }
TT_DEV int tt_block_z() { return (int)blockIdx.z; }
TT_DEV int tt_grid_x() { return (int)gridDim.x; }
TT_DEV tt_u32 tt_smem_address(const void* p) { return (tt_u32)__cvta_generic_to_shared(p); }
TT_DEV void tt_sync_threads() { __syncthreads(); }
TT_DEV tt_u32 tt_shuffle_xor(tt_u32 value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
// The value of lane `which` of each lane's quad.
TT_DEV float tt_quad_at(float value, int which) { return __shfl_sync(0xffffffffu, value, which, 4); }
// The same value for all lanes of a warp, known as such to the compiler.
TT_DEV int tt_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// An index out of range, or another fault that data cause: remembered, reported after the launch. 1: an index.
__device__ int tt_fault_code;
TT_DEV void tt_fault(int code) { atomicMax(&tt_fault_code, code); }

TT_DEV tt_u32 tt_ballot(bool value) { return __ballot_sync(0xffffffffu, value); }
TT_DEV void tt_sync_warp() { __syncwarp(); }
// Barriers 1 to 15 of the block, for `threads` threads (a multiple of 32): those who wait and those who only arrive.
TT_DEV void tt_named_sync(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
TT_DEV void tt_named_arrive(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// ---- flags and counters that blocks share; a relaxed one orders nothing by itself
TT_DEV tt_u32 tt_atomic_add(tt_u32* p, tt_u32 value) {
  tt_u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(value) : "memory");
  return old;
}
TT_DEV tt_u32 tt_atomic_add_acq_rel(tt_u32* p, tt_u32 value) {
  tt_u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(value) : "memory");
  return old;
}
TT_DEV tt_u32 tt_atomic_max(tt_u32* p, tt_u32 value) {
  tt_u32 old;
  asm volatile("atom.relaxed.gpu.global.max.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(value) : "memory");
  return old;
}
TT_DEV tt_u32 tt_atomic_cas(tt_u32* p, tt_u32 expected, tt_u32 wanted) {
  tt_u32 old;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(p), "r"(expected), "r"(wanted) : "memory");
  return old;
}
TT_DEV void tt_atomic_add_f32(float* p, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(value) : "memory");
}
TT_DEV tt_u32 tt_load_acquire(const tt_u32* p) {
  tt_u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
TT_DEV tt_u32 tt_load_relaxed(const tt_u32* p) {
  tt_u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
TT_DEV void tt_store_release(tt_u32* p, tt_u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
TT_DEV void tt_store_relaxed(tt_u32* p, tt_u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
TT_DEV void tt_fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ---- conversions
TT_DEV float tt_to_f32(tt_f16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
TT_DEV float tt_to_f32(tt_bf16 x) { return __uint_as_float((tt_u32)x.bits << 16); }
TT_DEV tt_f16 tt_to_f16(float x) { tt_f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
TT_DEV tt_bf16 tt_to_bf16(float x) { tt_bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
TT_DEV float tt_bits_to_f32(tt_u32 bits) { return __uint_as_float(bits); }
TT_DEV tt_u32 tt_f32_to_bits(float x) { return __float_as_uint(x); }
// Rounded to 10 fraction bits, ties away from zero; the low 13 bits do not count.
TT_DEV tt_u32 tt_to_tf32(float x) { tt_u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }
// lo in the low half.
TT_DEV tt_u32 tt_pack_f16(float lo, float hi) {
  tt_u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r;
}
TT_DEV tt_u32 tt_pack_bf16(float lo, float hi) {
  tt_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r;
}
// 2^x to two units in the last place; results below 2^-126 are 0.
TT_DEV float tt_exp2_approx(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// ---- global memory
TT_DEV void tt_load_global_v4(tt_u32 (&r)[4], const void* p) {
  const uint4 v = *(const uint4*)p;
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
TT_DEV void tt_load_global_v2(tt_u32 (&r)[2], const void* p) {
  const uint2 v = *(const uint2*)p;
  r[0] = v.x, r[1] = v.y;
}
TT_DEV void tt_load_global_v1(tt_u32 (&r)[1], const void* p) { r[0] = *(const tt_u32*)p; }
TT_DEV void tt_store_global_v4(void* p, tt_u32 a, tt_u32 b, tt_u32 c, tt_u32 d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
TT_DEV void tt_store_global_v2(void* p, tt_u32 a, tt_u32 b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}
TT_DEV void tt_store_global_v1(void* p, tt_u32 a) { asm volatile("st.global.b32 [%0], %1;" ::"l"(p), "r"(a) : "memory"); }

// ---- sm_80: asynchronous copies of 16, 8 or 4 bytes; `bytes` read, the rest written as zero
TT_DEV void tt_cp_async_16(tt_u32 dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
TT_DEV void tt_cp_async_8(tt_u32 dst, const void* src, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
TT_DEV void tt_cp_async_4(tt_u32 dst, const void* src, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
// Not asynchronous: one element of 2 bytes, where a row's pitch allows nothing wider.
TT_DEV void tt_copy_2(tt_u32 dst, const void* src, int bytes) {
  const tt_u16 value = bytes ? *(const tt_u16*)src : (tt_u16)0;
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(dst), "h"(value) : "memory");
}
TT_DEV void tt_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> TT_DEV void tt_cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

TT_DEV tt_u32 tt_load_shared_v1(tt_u32 address) {
  tt_u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
  return r;
}
// Two neighbouring floats, 8-byte aligned.
TT_DEV void tt_load_shared_v2(float& x, float& y, tt_u32 address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}
// Four neighbouring floats, 16-byte aligned.
TT_DEV void tt_load_shared_v4(float (&r)[4], tt_u32 address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(address) : "memory");
}

// ---- sm_80: four 8x8 matrices of 16-bit elements; lane l gives the address of row l%8 of matrix l/8
TT_DEV void tt_ldmatrix_x4(tt_u32 (&r)[4], tt_u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
TT_DEV void tt_ldmatrix_x4_trans(tt_u32 (&r)[4], tt_u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
TT_DEV void tt_mma_m16n8k16_f16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TT_DEV void tt_mma_m16n8k16_bf16(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// fp32 registers of which the upper 19 bits count
TT_DEV void tt_mma_m16n8k8_tf32(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
TT_DEV void tt_mma_m16n8k32_e4m3(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TT_DEV void tt_mma_m16n8k32_e5m2(float (&d)[4], const tt_u32 (&a)[4], tt_u32 b0, tt_u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// ---- sm_90: one lane of the warp, and four 8x8 matrices back to shared memory
TT_DEV bool tt_elect() {
  tt_u32 chosen;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(chosen));
  return chosen != 0;
}
TT_DEV void tt_stmatrix_x4(tt_u32 address, const tt_u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
TT_DEV void tt_stmatrix_x4_trans(tt_u32 address, const tt_u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// ---- sm_90: blocks of a cluster; an address of another block comes from tt_map_shared
TT_DEV int tt_cluster_rank() { int r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
TT_DEV void tt_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TT_DEV void tt_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TT_DEV tt_u32 tt_map_shared(tt_u32 address, int rank) {
  tt_u32 r; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r;
}
TT_DEV tt_u32 tt_load_cluster(tt_u32 address) {
  tt_u32 value; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory"); return value;
}
TT_DEV void tt_store_cluster(tt_u32 address, tt_u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
// Says that this thread's reads are over; what it wrote is released to its own block only: a release to the cluster is a
// fence of the whole GPU (MEMBAR.ALL.GPU), which a loop cannot afford.
TT_DEV void tt_mbarrier_arrive_cluster(tt_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// ---- sm_90: the kernel before this one in the stream
TT_DEV void tt_grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TT_DEV void tt_grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- sm_90: barriers in shared memory
TT_DEV void tt_mbarrier_init(tt_u32 barrier, tt_u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
TT_DEV void tt_fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TT_DEV void tt_fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
TT_DEV void tt_mbarrier_arrive(tt_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
TT_DEV void tt_mbarrier_arrive_expect_tx(tt_u32 barrier, tt_u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
TT_DEV void tt_mbarrier_expect_tx(tt_u32 barrier, tt_u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
TT_DEV void tt_mbarrier_invalidate(tt_u32 barrier) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }
// Arrives, as one of the barrier's count, when the cp.async of this thread so far have landed.
TT_DEV void tt_cp_async_arrive(tt_u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
TT_DEV bool tt_mbarrier_try_wait_parity(tt_u32 barrier, tt_u32 parity) {
  tt_u32 done;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
#ifdef TT_WAIT_MILLISECONDS
// A debug build: a wait that does not end in time ends the kernel, which the host then sees as a fault instead of a hang.
TT_DEV void tt_mbarrier_wait(tt_u32 barrier, tt_u32 parity) {
  unsigned long long began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  while (!tt_mbarrier_try_wait_parity(barrier, parity)) {
    asm volatile("{\n\t.reg .pred p;\n\tmov.u64 %0, %%globaltimer;\n\tsetp.gt.u64 p, %0, %1;\n\t@p trap;\n\t}"
                 : "=&l"(now) : "l"(began + TT_WAIT_MILLISECONDS * 1000000ull));
  }
}
#else
TT_DEV void tt_mbarrier_wait(tt_u32 barrier, tt_u32 parity) { while (!tt_mbarrier_try_wait_parity(barrier, parity)) {} }
#endif

// ---- sm_90: boxes of a tensor map to shared memory; x is the innermost coordinate
TT_DEV void tt_prefetch_tensor_map(const tt_tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
TT_DEV void tt_tma_load_2d(tt_u32 dst, const tt_tensor_map* map, int x, int y, tt_u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
TT_DEV void tt_tma_load_3d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, tt_u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
TT_DEV void tt_tma_load_4d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier) : "memory");
}
TT_DEV void tt_tma_load_5d(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 barrier) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier) : "memory");
}

TT_DEV void tt_tma_load_2d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, tt_u32 barrier, tt_u16 blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks) : "memory");
}
TT_DEV void tt_tma_load_3d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, tt_u32 barrier, tt_u16 blocks) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks) : "memory");
}
TT_DEV void tt_tma_load_4d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 barrier, tt_u16 blocks) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(blocks) : "memory");
}
TT_DEV void tt_tma_load_5d_multicast(tt_u32 dst, const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 barrier, tt_u16 blocks) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "h"(blocks) : "memory");
}
// An im2col map: pixels from (w, h, n) on, each shifted by the filter's (dw, dh); c is the first channel.
TT_DEV void tt_tma_load_im2col_4d(tt_u32 dst, const tt_tensor_map* map, int c, int w, int h, int n, tt_u16 dw, tt_u16 dh, tt_u32 barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
               ::"r"(dst), "l"(map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier), "h"(dw), "h"(dh) : "memory");
}
TT_DEV void tt_bulk_load(tt_u32 dst, const void* src, tt_u32 bytes, tt_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(dst), "l"(src), "r"(bytes), "r"(barrier) : "memory");
}

// ---- sm_90: from shared to global memory, in groups of the thread that asks
TT_DEV void tt_tma_store_2d(const tt_tensor_map* map, int x, int y, tt_u32 src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(src) : "memory");
}
TT_DEV void tt_tma_store_3d(const tt_tensor_map* map, int x, int y, int z, tt_u32 src) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(src) : "memory");
}
TT_DEV void tt_tma_store_4d(const tt_tensor_map* map, int x, int y, int z, int w, tt_u32 src) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
               ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(src) : "memory");
}
TT_DEV void tt_tma_store_5d(const tt_tensor_map* map, int x, int y, int z, int w, int v, tt_u32 src) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];"
               ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(src) : "memory");
}
TT_DEV void tt_tma_add_2d(const tt_tensor_map* map, int x, int y, tt_u32 src) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(src) : "memory");
}
TT_DEV void tt_bulk_store(void* dst, tt_u32 src, tt_u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
TT_DEV void tt_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// At most PENDING newer groups still write global memory, or (read) still read shared memory.
template <int PENDING> TT_DEV void tt_bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory"); }
template <int PENDING> TT_DEV void tt_bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory"); }

// ---- sm_90: registers of a warpgroup
template <int COUNT> TT_DEV void tt_setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> TT_DEV void tt_setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

// ---- sm_90: warpgroup MMA
TT_DEV void tt_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TT_DEV void tt_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> TT_DEV void tt_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// Keeps the compiler from moving accumulators across the asynchronous part.
template <int N> TT_DEV void tt_wgmma_hold(float (&d)[N]) {
  TT_UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Keeps a product's operand in its registers for as long.
template <int N> TT_DEV void tt_wgmma_hold(tt_u32 (&a)[N]) {
  TT_UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+r"(a[i])::"memory");
}
// Descriptor of a swizzled tile: `leading` and `stride` in bytes, swizzle span 128, 64 or 32 bytes.
TT_DEV tt_u64 tt_wgmma_descriptor(tt_u32 address, tt_u32 leading, tt_u32 stride, int swizzle) {
  const tt_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return (tt_u64)((address & 0x3ffff) >> 4) | (tt_u64)((leading & 0x3ffff) >> 4) << 16 | (tt_u64)((stride & 0x3ffff) >> 4) << 32 |
         mode << 62;
}
// The instructions tt_wgmma<type, N> follow; only the shapes that a kernel uses are written out.
template <class T, int N, int TRANS_A, int TRANS_B> struct tt_wgmma_m64k16;
// The same with A in registers: its rows lie as in mma_m16n8k16, a warp has 16 of the 64.
template <class T, int N, int TRANS_B> struct tt_wgmma_m64k16_rs;
// Elements of 4 bytes (float, of which tf32 counts) and of 1 byte (tt_e4m3, tt_e5m2): both operands along k.
template <class T, int N> struct tt_wgmma_m64;
#endif
