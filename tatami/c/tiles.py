"""Products of narrow integers by tiles of AMX: 16 rows of 64 bytes, multiplied and added to 16 x 16 sums by one instruction.

    tatami_tiles_<a><b>    buffers a, b, c; sizes rows, pitch of a, k0, k1, depth of b, pitch of c, columns
        c[rows][columns] += a * b over k0 <= k < k1 (k0 = 0: c is overwritten), where k counts groups of four numbers of 8
        bits, an element of 32 bits: u8 or i8 in a, u8 or i8 in b. a is a matrix [rows][pitch], its pitch in bytes. b is slivers
        [depth][32], of which k1-k0 rows are read; c has a pitch in elements, and whole slivers are written.

Four tiles hold the sums of 32 x 32, two of a and two of b are multiplied each with each; a panel of rows goes along all
slivers, so that what it writes is few pages, fetched under the products before. The last groups of k, fewer than 16, are
copied and filled up with zeros. Panels of rows are balanced; both tiles of one have the same number of rows, so that one
configuration serves all: they overlap in a row or two, whose sums are then made twice and are the same.

Tiles are state that Linux gives a process on demand: the unit asks when it is loaded, so that programs of their own have them.
`runtime/host.py` has asked before a plan wants them. The instructions are written as such, as in c/dots.py.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.core.verbatim import VerbatimCode

TILE = 16
"""Rows of a tile, columns of sums, and groups of k that its 64 bytes hold."""
BLOCK = 2 * TILE
"""Rows and columns of sums that are held together."""
_NAME = re.compile(r"tatami_tiles_([iu]8)([iu]8)")


def tile_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`, or None when the name is not of this file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    dot = "tdpb" + "".join("s" if t == "i8" else "u" for t in found.groups()) + "d"
    return Unit(
        VerbatimCode(f"{_HEAD.replace('@DOT', dot)}\n{_panel_text(1)}\n{_panel_text(2)}\n{_ROUTINE.replace('@NAME', name)}")
    )


def _panel_text(down: int) -> str:
    """A panel of one tile of rows or two, `second` rows apart: tiles 0 to 3 are sums, 4 and 5 of a, 6 and 7 of b. `ends` and
    `last`: the last groups of k of both, none where all are whole."""
    sums = [(i, v, 2 * i + v) for i in range(down) for v in range(2)]
    at_c = {t: f"c + {i} * second * cp + {v * TILE}, 4 * cp" for i, v, t in sums}
    loads = " ".join(f"LOAD({t}, {place});" for t, place in at_c.items())
    zeros = " ".join(f"ZERO({t});" for t in at_c)
    stores = " ".join(f"STORE({t}, {place});" for t, place in at_c.items())

    def step(a: str, pitch: str, b: str) -> str:
        out = [f"LOAD({6 + v}, {b} + {v * TILE}, {4 * BLOCK});" for v in range(2)]
        for i in range(down):
            out.append(f"LOAD({4 + i}, {a} + {i} * second * {pitch}, {pitch});")
            out += [f"DOT({2 * i + v}, {4 + i}, {6 + v});" for v in range(2)]
        return " ".join(out)

    return f"""static void panel_{down}(int64_t steps, const char *a, int64_t ap, const T *b, const char *ends, const T *last,
                    int64_t rows, int64_t second, T *c, int64_t cp, int first) {{
  if (first) {{ {zeros} }} else {{ {loads} }}
  const int64_t each = (rows + steps) / (steps + 1);
  for (int64_t k = 0, i = 0; k < steps; ++k, a += {4 * TILE}, b += {TILE * BLOCK}) {{
    for (const int64_t next = i + each < rows ? i + each : rows; i < next; ++i) {{
      __builtin_prefetch(c + i * cp, 1);
      __builtin_prefetch(c + i * cp + {TILE}, 1);
    }}
    {step("a", "ap", "b")}
  }}
  if (last) {{ {step("ends", str(4 * TILE), "last")} }}
  {stores}
}}"""


_HEAD = """#include <stdint.h>
typedef uint32_t T;
#define LOAD(tile, at, pitch) \\
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((int64_t)(pitch)) : "memory")
#define STORE(tile, at, pitch) \\
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
}"""

_ROUTINE = f"""int @NAME(void *const *buffers, const int64_t *sizes) {{
  const int64_t rows = sizes[0], ap = sizes[1], k0 = sizes[2], k1 = sizes[3], sliver = {BLOCK} * sizes[4], cp = sizes[5];
  const int64_t panels = (rows + {BLOCK - 1}) / {BLOCK}, slivers = (sizes[6] + {BLOCK - 1}) / {BLOCK};
  if (rows <= 0) return 0;
  const int64_t most = (rows + panels - 1) / panels, height = most > {TILE} ? (most + 1) / 2 : most;
  const int64_t steps = (k1 - k0) / {TILE}, rest = (k1 - k0) % {TILE}, whole = steps * {TILE};
  T ends[{BLOCK}][{TILE}] = {{{{0}}}}, last[{TILE}][{BLOCK}] = {{{{0}}}};
  configure(height);
  for (int64_t p = 0; p < panels; ++p) {{
    const int64_t at = rows * p / panels, r = rows * (p + 1) / panels - at;
    const char *a = (const char *)buffers[0] + 4 * k0 + at * ap;
    for (int64_t i = 0; rest && i < r; ++i) __builtin_memcpy(ends[i], a + 4 * whole + i * ap, 4 * rest);
    for (int64_t s = 0; s < slivers; ++s) {{
      const T *b = (const T *)buffers[1] + s * sliver;
      T *c = (T *)buffers[2] + at * cp + s * {BLOCK};
      if (rest) __builtin_memcpy(last, b + whole * {BLOCK}, rest * sizeof last[0]);
      const T *more = rest ? last[0] : 0;
      if (most > {TILE}) panel_2(steps, a, ap, b, (const char *)ends, more, r, r - height, c, cp, k0 == 0);
      else panel_1(steps, a, ap, b, (const char *)ends, more, r, 0, c, cp, k0 == 0);
    }}
  }}
  __asm__ volatile("tilerelease" : :);
  return 0;
}}
"""
