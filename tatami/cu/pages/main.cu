/* main.cu: the host side of one compiled program, which runs by itself (cu/print_main.py).
   @KERNELS   the files of the kernels
   @NAMES     names of the outputs, to print
   @EXPECTED  what the reference says about each output
   @PROGRAMS  setup, where there is one, and run: main_program.cu
   @SETUP     memory of setup's buffers; empty without a setup
   @MEMORY    memory of run's buffers
   @MAP_TYPES the driver's types for tensor maps, in the order of the TT_ constants
   @FAULTY_DRIVER the last version of the driver that marks small tensors wrongly
   @SMALL_SPAN bytes below which a tensor is small
   @SMALL_BIT the bit of a map that such a driver sets wrongly
   @CHECKS    a comparison for each output, or its numbers where the reference says nothing
*/
// Runs the program of the other files on Philox inputs and compares with the reference.
// Build: nvcc -std=c++17 -gencode arch=compute_80,code=sm_80 main.cu -o main (for SM90: 90a in both places)
#include <cuda.h>
#include <cuda_runtime.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

@KERNELS

enum { TT_BOOL, TT_I8, TT_U8, TT_I16, TT_U16, TT_I32, TT_U32, TT_I64, TT_U64, TT_FP16, TT_BF16, TT_FP32, TT_FP64, TT_TF32 };
static const int item_bytes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};

static void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  exit(2);
}

// A buffer as whatever pointer the kernel takes.
struct Pointer {
  void* p;
  template <class T> operator T*() const { return (T*)p; }
};

static void* device_memory(long long bytes) {
  void* p = nullptr;
  must(cudaMalloc(&p, (size_t)bytes), "memory");
  must(cudaMemset(p, 0xff, (size_t)bytes), "memory");
  return p;
}

// Philox4x32-10: the four words of block `n` under `key`.
static void philox(uint64_t n, uint64_t key, uint32_t c[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  c[0] = (uint32_t)n, c[1] = (uint32_t)(n >> 32), c[2] = 0, c[3] = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
    const uint32_t a = (uint32_t)(q >> 32) ^ c[1] ^ k0, b = (uint32_t)(p >> 32) ^ c[3] ^ k1;
    c[0] = a, c[1] = (uint32_t)q, c[2] = b, c[3] = (uint32_t)p;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}

static uint16_t narrow(float x, int mantissa, int bias) {
  uint32_t u;
  memcpy(&u, &x, 4);
  const uint32_t sign = u >> 31 << 15, e = u >> 23 & 255, m = u & 0x7fffff;
  return (uint16_t)(e == 0 ? sign : sign | (e - 127 + (uint32_t)bias) << mantissa | m >> (23 - mantissa));
}

static double widen(uint16_t h, int mantissa, int bias) {
  const int sign = h >> 15, top = (1 << (15 - mantissa)) - 1, e = h >> mantissa & top, m = h & ((1 << mantissa) - 1);
  const double x = e == top ? (m ? NAN : INFINITY) : ldexp(e ? m + (1 << mantissa) : m, (e ? e : 1) - bias - mantissa);
  return sign ? -x : x;
}

// Floats are multiples of 1/64 in [-1, 1), integers and bools 0 or 1: exact in every dtype.
static void fill(void* device, int dtype, long long count, uint64_t key) {
  std::vector<unsigned char> host((size_t)count * item_bytes[dtype] + 8);
  void* p = host.data();
  for (long long i = 0; i < count; ++i) {
    uint32_t c[4];
    philox((uint64_t)i / 4, key, c);
    const uint32_t w = c[i % 4], bit = w & 1;
    const float x = (float)((int)(w >> 25) - 64) / 64;
    switch (dtype) {
      case TT_BOOL: case TT_I8: case TT_U8: ((uint8_t*)p)[i] = (uint8_t)bit; break;
      case TT_I16: case TT_U16: ((uint16_t*)p)[i] = (uint16_t)bit; break;
      case TT_I32: case TT_U32: ((uint32_t*)p)[i] = bit; break;
      case TT_I64: case TT_U64: ((uint64_t*)p)[i] = bit; break;
      case TT_FP16: ((uint16_t*)p)[i] = narrow(x, 10, 15); break;
      case TT_BF16: ((uint16_t*)p)[i] = narrow(x, 7, 127); break;
      case TT_FP32: ((float*)p)[i] = x; break;
      case TT_FP64: ((double*)p)[i] = x; break;
    }
  }
  must(cudaMemcpy(device, p, (size_t)count * item_bytes[dtype], cudaMemcpyHostToDevice), "input");
}

// Elements of a byte whose value is 0 or 1, which has the code `one`.
[[maybe_unused]] static void fill_codes(void* device, int one, long long count, uint64_t key) {
  std::vector<unsigned char> host((size_t)count + 8);
  for (long long i = 0; i < count; ++i) {
    uint32_t c[4];
    philox((uint64_t)i / 4, key, c);
    host[(size_t)i] = (unsigned char)(c[i % 4] & 1 ? one : 0);
  }
  must(cudaMemcpy(device, host.data(), (size_t)count, cudaMemcpyHostToDevice), "input");
}

[[maybe_unused]] static void read_constant(void* device, const char* folder, long long offset, long long bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/constants.bin", folder);
  FILE* file = fopen(path, "rb");
  std::vector<unsigned char> host((size_t)bytes + 1);
  if (!file || fseek(file, (long)offset, SEEK_SET) || fread(host.data(), 1, (size_t)bytes, file) != (size_t)bytes) {
    fprintf(stderr, "cannot read %s; give its folder as the argument\n", path);
    exit(2);
  }
  fclose(file);
  must(cudaMemcpy(device, host.data(), (size_t)bytes, cudaMemcpyHostToDevice), "constant");
}

static double element(const void* p, int dtype, long long i) {
  switch (dtype) {
    case TT_BOOL: case TT_U8: return ((const uint8_t*)p)[i];
    case TT_I8: return ((const int8_t*)p)[i];
    case TT_I16: return ((const int16_t*)p)[i];
    case TT_U16: return ((const uint16_t*)p)[i];
    case TT_I32: return ((const int32_t*)p)[i];
    case TT_U32: return ((const uint32_t*)p)[i];
    case TT_I64: return (double)((const int64_t*)p)[i];
    case TT_U64: return (double)((const uint64_t*)p)[i];
    case TT_FP16: return widen(((const uint16_t*)p)[i], 10, 15);
    case TT_BF16: return widen(((const uint16_t*)p)[i], 7, 127);
    case TT_FP32: return ((const float*)p)[i];
    default: return ((const double*)p)[i];
  }
}

@NAMES

static int check(int k, const void* device, int dtype, long long count, const long long* at, const double* want, int samples,
                 double relative, double absolute) {
  std::vector<unsigned char> host((size_t)count * item_bytes[dtype] + 8);
  must(cudaMemcpy(host.data(), device, (size_t)count * item_bytes[dtype], cudaMemcpyDeviceToHost), "output");
  double sum = 0, worst = 0;
  int bad = 0;
  for (long long i = 0; i < count; ++i) sum += element(host.data(), dtype, i);
  for (int i = 0; i < samples; ++i) {
    const double got = element(host.data(), dtype, at[i]), error = fabs(got - want[i]);
    if (error > worst) worst = error;
    const bool wrong = std::isnan(got) || std::isnan(want[i]) ? std::isnan(got) != std::isnan(want[i])
                                                              : got != want[i] && !(error <= relative * fabs(want[i]) + absolute);
    if (wrong && !bad++) printf("%s element %lld: %.9g, expected %.9g\n", output_names[k], at[i], got, want[i]);
  }
  printf("%s: largest error %.3g in %d of %lld elements, sum %.9g: %s\n", output_names[k], worst, samples, count, sum,
         bad ? "WRONG" : samples ? "ok" : "not compared");
  return bad;
}

struct Five { unsigned long long v[5]; };
struct Box { unsigned v[5]; };
// Of an im2col map over w and h, whose box is channels and pixels: lower and upper corner; no steps: a tiled map.
struct Walk { int corners[4], steps[2]; };

// One of the driver's own encoders, found at run time, so that nothing links libcuda.
template <class Encode> static Encode encoder(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how;
  must(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how), "tensor map");
  return (Encode)found;
}

// The TMA descriptor of a tensor.
[[maybe_unused]] static tt_tensor_map tensor_map(void* base, int dtype, int rank, Five dims, Five strides, Box box, int swizzle,
                                                 Walk walk = {}) {
  alignas(128) CUtensorMap map;
  cuuint64_t d[5], s[5];
  cuuint32_t x[5], one[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < 5; ++i) d[i] = dims.v[i], s[i] = strides.v[i], x[i] = box.v[i];
  static const CUtensorMapDataType types[] = {@MAP_TYPES};
  const CUtensorMapDataType type = types[dtype];
  const CUtensorMapSwizzle mode = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                  : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                  : CU_TENSOR_MAP_SWIZZLE_NONE;
  const auto promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  const auto fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  const auto plain = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUresult result;
  if (walk.steps[0]) {
    const int *lower = walk.corners, *upper = walk.corners + 2;
    for (int i = 0; i < 2; ++i) one[1 + i] = (cuuint32_t)walk.steps[i];
    static const auto encode = encoder<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    result = encode(&map, type, (cuuint32_t)rank, base, d, s, lower, upper, x[0], x[1], one, plain, mode, promotion, fill);
  } else {
    static const auto encode = encoder<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    result = encode(&map, type, (cuuint32_t)rank, base, d, s, x, one, plain, mode, promotion, fill);
  }
  if (result != CUDA_SUCCESS) {
    fprintf(stderr, "a tensor map was refused\n");
    exit(2);
  }
  tt_tensor_map out;
  memcpy(&out, &map, sizeof out);
  // Drivers up to 13.1 set a bit wrongly for tensors of less than 128 KiB (runtime/cuda/tensor_map.py).
  unsigned long long span = dims.v[0] * item_bytes[dtype == TT_TF32 ? TT_FP32 : dtype];
  for (int i = 1; i < rank; ++i) span += (dims.v[i] - 1) * strides.v[i - 1];
  int driver = 0;
  must(cudaDriverGetVersion(&driver), "driver");
  if (driver <= @FAULTY_DRIVER && span < @SMALL_SPAN) out.words[1] &= ~(1ull << @SMALL_BIT);
  return out;
}

@EXPECTED
@PROGRAMS

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : ".";
  (void)folder;
  int bad = 0;
@if SETUP
  @SETUP
  setup(s);
  must(cudaDeviceSynchronize(), "setup");
@end
  @MEMORY
  run(b);
  must(cudaDeviceSynchronize(), "run");
  @CHECKS
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i < 10; ++i) {
    float ms = 0;
    cudaEventRecord(begin), run(b), cudaEventRecord(end), cudaEventSynchronize(end);
    cudaEventElapsedTime(&ms, begin, end);
    if (ms < best) best = ms;
  }
  printf("best of 10 runs: %.3f ms\n", best);
  printf(bad ? "FAILED\n" : "ok\n");
  return bad ? 1 : 0;
}
