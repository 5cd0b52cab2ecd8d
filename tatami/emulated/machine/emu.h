// What kernel text sees of the emulated GPU: plain functions that the header's device functions call.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emu {

// A place in kernel text: file and line, or (file null) the return address of an instrumented access.
struct Site {
  const char* file;
  uintptr_t line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, (uintptr_t)line};
  }
  bool operator==(const Site& other) const { return file == other.file && line == other.line; }
};

// ---- where am I; the same for the life of a thread
int thread_index() __attribute__((const));
int block_index(int axis) __attribute__((const));
int grid_size(int axis) __attribute__((const));
int cluster_rank() __attribute__((const));
uint8_t* shared_memory() __attribute__((const));
uint32_t shared_address(const void* p, Site);
uint32_t address_in(uint32_t address, int rank, Site);
void label(uint32_t address, size_t bytes, const char* name);
void gathered(uint32_t address, size_t bytes);

// ---- plain memory
void load(void* to, const void* from, int bytes, Site);
void store(void* to, const void* from, int bytes, Site);
void load_shared(void* to, uint32_t address, int bytes, Site);
void store_shared(uint32_t address, const void* from, int bytes, Site);

[[noreturn]] void data_fault(int code, Site);

// ---- global memory between blocks
enum class Order { relaxed, acquire, release, acquire_release };
enum class Change { add, max, add_f32 };
uint32_t atomic(void* p, uint32_t value, Change, Order, Site);
uint32_t compare_and_swap(void* p, uint32_t expected, uint32_t wanted, Order, Site);
uint32_t load_flag(const void* p, Order, Site);
void store_flag(void* p, uint32_t value, Order, Site);
void fence_device(Site);

// ---- meetings of threads
void sync_threads(Site);
void named_barrier(int id, int count, bool wait, Site);
void sync_warp(uint32_t mask, Site);
void cluster_arrive(Site);
void cluster_wait(Site);
uint32_t shuffle(uint32_t value, int lane, uint32_t mask, Site);
uint32_t ballot(bool value, uint32_t mask, Site);
bool elect(Site);
void ldmatrix(uint32_t* r, uint32_t address, int count, bool transposed, Site);
void stmatrix(uint32_t address, const uint32_t* r, int count, bool transposed, Site);

// ---- tensor cores
enum class Type { f16, bf16, tf32, e4m3, e5m2 };
void mma(Type, float* d, const uint32_t* a, uint32_t b0, uint32_t b1, Site);
struct Wgmma {
  Type type;
  int n;
  bool transposed_a, transposed_b;
  float* d;
  const uint32_t* a_registers;
  uint64_t a, b;
  bool add;
};
void wgmma(const Wgmma&, Site);
void wgmma_fence(Site);
void wgmma_commit(Site);
void wgmma_wait(int pending, Site);
void set_registers(int count, bool more, Site);

// ---- asynchronous copies
void cp_async(uint32_t to, const void* from, int size, int bytes, Site);
void cp_async_commit(Site);
void cp_async_wait(int pending, Site);
void cp_async_arrive(uint32_t barrier, Site);
void fence_async(Site);
void fence_barrier_init(Site);
void barrier_init(uint32_t barrier, uint32_t count, Site);
void barrier_invalidate(uint32_t barrier, Site);
void barrier_arrive(uint32_t barrier, uint32_t bytes, Site);
void barrier_expect(uint32_t barrier, uint32_t bytes, Site);
void barrier_wait(uint32_t barrier, uint32_t parity, Site);
void tma_load(uint32_t to, const void* map, const int* at, int rank, uint32_t barrier, uint32_t mask, Site);
void tma_load_im2col(uint32_t to, const void* map, const int* at, int rank, const uint16_t* offsets, uint32_t barrier,
                     uint32_t mask, Site);
enum class Reduce { none, add, min, max };
void tma_store(const void* map, const int* at, int rank, uint32_t from, Reduce, Site);
void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, Site);
void bulk_store(void* to, uint32_t from, uint32_t bytes, Site);
void bulk_commit(Site);
void bulk_wait(int pending, bool reads_only, Site);
void grid_dependency_wait(Site);

float widen(Type, uint32_t bits);
uint16_t narrow_f16(float);
uint16_t narrow_bf16(float);

}  // namespace emu
