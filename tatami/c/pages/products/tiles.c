/* Products of narrow integers by tiles of AMX; c/products/amx_tiles.py says what buffers and sizes are. A tile is 16 rows of
   64 bytes: 16 columns of sums, or 16 groups of four numbers. Tiles 0 to 3 hold the sums of 32 x 32, 4 and 5 operand a, 6 and 7
   operand b.
   @DOT   the instruction for the signs of a and b
   @NAME  the routine
*/
#include <stdint.h>
typedef uint32_t T;
#define LOAD(tile, at, pitch) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((int64_t)(pitch)) : "memory")
#define STORE(tile, at, pitch) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((int64_t)(pitch)) : "memory")
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define DOT(c, a, b) __asm__ volatile("@DOT %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) */
static __attribute__((constructor)) void ask(void) {
  int64_t answer;
  __asm__ volatile("syscall" : "=a"(answer) : "a"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
}

static void configure(int64_t rows) {
  struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } shape = {1};
  for (int t = 0; t < 8; ++t) {
    shape.bytes[t] = 64;
    shape.rows[t] = t < 6 ? rows : 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(shape));
}
static void panel_1(int64_t steps, const char *a, int64_t ap, const T *b, const char *ends, const T *last,
                    int64_t rows, int64_t second, T *c, int64_t cp, int first) {
  if (first) { ZERO(0); ZERO(1); } else { LOAD(0, c + 0 * second * cp + 0, 4 * cp); LOAD(1, c + 0 * second * cp + 16, 4 * cp); }
  const int64_t each = (rows + steps) / (steps + 1);
  for (int64_t k = 0, i = 0; k < steps; ++k, a += 64, b += 512) {
    for (const int64_t next = i + each < rows ? i + each : rows; i < next; ++i) {
      __builtin_prefetch(c + i * cp, 1);
      __builtin_prefetch(c + i * cp + 16, 1);
    }
    LOAD(6, b + 0, 128); LOAD(7, b + 16, 128); LOAD(4, a + 0 * second * ap, ap); DOT(0, 4, 6); DOT(1, 4, 7);
  }
  if (last) {
    LOAD(6, last + 0, 128); LOAD(7, last + 16, 128);
    LOAD(4, ends + 0 * second * 64, 64); DOT(0, 4, 6); DOT(1, 4, 7);
  }
  STORE(0, c + 0 * second * cp + 0, 4 * cp); STORE(1, c + 0 * second * cp + 16, 4 * cp);
}
static void panel_2(int64_t steps, const char *a, int64_t ap, const T *b, const char *ends, const T *last,
                    int64_t rows, int64_t second, T *c, int64_t cp, int first) {
  if (first) {
    ZERO(0); ZERO(1); ZERO(2); ZERO(3);
  } else {
    LOAD(0, c + 0 * second * cp + 0, 4 * cp);
    LOAD(1, c + 0 * second * cp + 16, 4 * cp);
    LOAD(2, c + 1 * second * cp + 0, 4 * cp);
    LOAD(3, c + 1 * second * cp + 16, 4 * cp);
  }
  const int64_t each = (rows + steps) / (steps + 1);
  for (int64_t k = 0, i = 0; k < steps; ++k, a += 64, b += 512) {
    for (const int64_t next = i + each < rows ? i + each : rows; i < next; ++i) {
      __builtin_prefetch(c + i * cp, 1);
      __builtin_prefetch(c + i * cp + 16, 1);
    }
    LOAD(6, b + 0, 128); LOAD(7, b + 16, 128);
    LOAD(4, a + 0 * second * ap, ap); DOT(0, 4, 6); DOT(1, 4, 7);
    LOAD(5, a + 1 * second * ap, ap); DOT(2, 5, 6); DOT(3, 5, 7);
  }
  if (last) {
    LOAD(6, last + 0, 128); LOAD(7, last + 16, 128);
    LOAD(4, ends + 0 * second * 64, 64); DOT(0, 4, 6); DOT(1, 4, 7);
    LOAD(5, ends + 1 * second * 64, 64); DOT(2, 5, 6); DOT(3, 5, 7);
  }
  STORE(0, c + 0 * second * cp + 0, 4 * cp); STORE(1, c + 0 * second * cp + 16, 4 * cp);
  STORE(2, c + 1 * second * cp + 0, 4 * cp); STORE(3, c + 1 * second * cp + 16, 4 * cp);
}
int @NAME(void *const *buffers, const int64_t *sizes) {
  const int64_t rows = sizes[0], ap = sizes[1], k0 = sizes[2], k1 = sizes[3], sliver = 32 * sizes[4], cp = sizes[5];
  const int64_t panels = (rows + 31) / 32, slivers = (sizes[6] + 31) / 32;
  if (rows <= 0) return 0;
  const int64_t most = (rows + panels - 1) / panels, height = most > 16 ? (most + 1) / 2 : most;
  const int64_t steps = (k1 - k0) / 16, rest = (k1 - k0) % 16, whole = steps * 16;
  T ends[32][16] = {{0}}, last[16][32] = {{0}};
  configure(height);
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t at = rows * p / panels, r = rows * (p + 1) / panels - at;
    const char *a = (const char *)buffers[0] + 4 * k0 + at * ap;
    for (int64_t i = 0; rest && i < r; ++i) __builtin_memcpy(ends[i], a + 4 * whole + i * ap, 4 * rest);
    for (int64_t s = 0; s < slivers; ++s) {
      const T *b = (const T *)buffers[1] + s * sliver;
      T *c = (T *)buffers[2] + at * cp + s * 32;
      if (rest) __builtin_memcpy(last, b + whole * 32, rest * sizeof last[0]);
      const T *more = rest ? last[0] : 0;
      if (most > 16) panel_2(steps, a, ap, b, (const char *)ends, more, r, r - height, c, cp, k0 == 0);
      else panel_1(steps, a, ap, b, (const char *)ends, more, r, 0, c, cp, k0 == 0);
    }
  }
  __asm__ volatile("tilerelease" : :);
  return 0;
}
