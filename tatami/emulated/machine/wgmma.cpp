// The tensor core of a warpgroup: it reads shared memory and registers until the group is waited for.
#include <string.h>

#include <algorithm>

#include "machine.h"

namespace emu {

struct Operand {
  uint32_t start, leading, stride;
  int span;  // of the swizzle; 0: none
};

static Operand operand_of(uint64_t d, Site site, char name) {
  const int mode = (int)(d >> 62);
  if (d >> 49 & 7) fault("misuse", site, "wgmma at %s: the descriptor of %c has a base offset; start tiles at multiples of the swizzle's 8 rows", where(site).c_str(), name);
  return {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4, (uint32_t)(d >> 32 & 0x3fff) << 4, mode == 0 ? 0 : 256 >> mode};
}

// Shared address of the 16 bytes that start at (mn, k): elements along k, or with `transposed` along mn.
static uint32_t address_of(const Operand& o, bool transposed, int element, int mn, int k) {
  const uint32_t row = o.span ? (uint32_t)o.span : 16;
  const uint32_t u = (uint32_t)mn, v = (uint32_t)(k * element);
  uint32_t a;
  if (!transposed)
    a = o.start + u % 8 * row + u / 8 * o.stride + (o.span ? v : v / 16 * o.leading);
  else if (o.span)
    a = o.start + u % (row / 2) * 2 + u / (row / 2) * o.leading + (uint32_t)k % 8 * row + (uint32_t)k / 8 * o.stride;
  else
    a = o.start + u / 8 * o.stride + (uint32_t)k % 8 * 16 + (uint32_t)k / 8 * o.leading;
  return swizzled(a, o.span);
}

static int element_bytes(Type t) { return t == Type::tf32 ? 4 : t == Type::f16 || t == Type::bf16 ? 2 : 1; }

// Calls f(mn, k, address) for each 16 bytes of an operand with `extent` rows (A: 64, B: n); k covers 32 bytes.
template <class F> static void each_chunk(const Operand& o, bool transposed, int element, int extent, F f) {
  const int per = 16 / element;
  if (transposed) {
    for (int mn = 0; mn < extent; mn += per)
      for (int k = 0; k < 32 / element; ++k) f(mn, k, address_of(o, true, element, mn, k));
  } else {
    for (int mn = 0; mn < extent; ++mn)
      for (int k = 0; k < 32 / element; k += per) f(mn, k, address_of(o, false, element, mn, k));
  }
}

// What an operand's elements were copied from has to be an affine tile of one tensor.
static void check_source(const Block& b, const Operand& o, bool transposed, int element, int extent, char name, Site site) {
  const int per = 16 / element;
  auto at = [&](int mn, int k) { return b.source[(address_of(o, transposed, element, mn, k) - SHARED_BASE) / 16]; };
  const uint8_t* const origin = at(0, 0);
  const uint8_t* const next = transposed ? at(0, 1) : at(1, 0);
  if (!origin || !next) return;
  const int64_t pitch = next - origin;
  each_chunk(o, transposed, element, extent, [&](int mn, int k, uint32_t address) {
    const uint8_t* const found = b.source[(address - SHARED_BASE) / 16];
    const uint8_t* const wanted = transposed ? origin + mn / per * 16 + k * pitch : origin + mn * pitch + k / per * 16;
    if (found && found != wanted)
      fault("layout", site, "wgmma at %s: element (%s %d, k %d) of %c is taken from %s, which holds %s, but the tile needs %s there: the swizzle, the offsets or the transpose of the descriptor are wrong",
            where(site).c_str(), name == 'A' ? "m" : "n", mn, k, name, shared_name(b, address - SHARED_BASE).c_str(), global_name(found).c_str(), global_name(wanted).c_str());
  });
}

static void read_operand(const Access& a, Block& b, const Operand& o, bool transposed, int element, int extent, char name) {
  each_chunk(o, transposed, element, extent, [&](int, int, uint32_t address) { shared_offset(b, address, 16, 16, a.what, a.site); });
  if (machine.launch.check_layout) check_source(b, o, transposed, element, extent, name, a.site);
  each_chunk(o, transposed, element, extent, [&](int, int, uint32_t address) { read_shared(b, a, shared_offset(b, address, 16, 16, a.what, a.site), 16); });
}

static void load_operand(const Block& b, const Operand& o, bool transposed, Type type, int extent, float* to, int pitch) {
  const int element = element_bytes(type), per = 16 / element;
  each_chunk(o, transposed, element, extent, [&](int mn, int k, uint32_t address) {
    const uint8_t* const p = b.shared + address - SHARED_BASE;
    for (int e = 0; e < per; ++e) {
      uint32_t bits = 0;
      memcpy(&bits, p + e * element, (size_t)element);
      const float value = widen(type, bits);
      if (transposed) to[k * pitch + mn + e] = value;
      else to[(k + e) * pitch + mn] = value;
    }
  });
}

static void compute(Block& b, const PendingWgmma& w) {
  static float a[32][64], bb[32][256], d[64][256];
  const int n = w.op.n, element = element_bytes(w.op.type), depth = 32 / element;
  if (w.a.empty()) {
    load_operand(b, operand_of(w.op.a, w.site, 'A'), w.op.transposed_a, w.op.type, 64, &a[0][0], 64);
  } else {
    const int per = 4 / element;
    for (int t = 0; t < 128; ++t)
      for (int r = 0; r < 4; ++r)
        for (int e = 0; e < per; ++e) {
          const uint32_t word = w.a[(size_t)(4 * t + r)];
          a[r / 2 * 4 * per + t % 4 * per + e][t / 32 * 16 + t % 32 / 4 + 8 * (r % 2)] = widen(w.op.type, element == 4 ? word : word >> (8 * element * e));
        }
  }
  load_operand(b, operand_of(w.op.b, w.site, 'B'), w.op.transposed_b, w.op.type, n, &bb[0][0], 256);
  auto place = [](int t, int i) { return std::pair<int, int>(t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2), i / 4 * 8 + t % 4 * 2 + i % 2); };
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < n / 2; ++i) {
      const auto [row, column] = place(t, i);
      d[row][column] = w.op.add ? w.d[t][i] : 0.0f;
    }
  for (int row = 0; row < 64; ++row)
    for (int k = 0; k < depth; ++k) {
      const float x = a[k][row];
      for (int column = 0; column < n; ++column) d[row][column] += x * bb[k][column];
    }
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < n / 2; ++i) {
      const auto [row, column] = place(t, i);
      w.d[t][i] = d[row][column];
    }
}

static Warpgroup& group_of(Thread& t) { return t.block->warpgroups[(size_t)t.index / 128]; }

static void hold(Thread& t, const void* p, size_t bytes, uint32_t group, bool readable, Site site) {
  for (Held& h : t.held)
    if (h.begin == p && h.readable == readable) {
      h.group = group;
      h.site = site;
      return;
    }
  t.held.push_back({(uint8_t*)p, bytes, group, readable, site});
}

static void issue(Thread** threads, void** arguments, int, Site site) {
  Block& b = *threads[0]->block;
  Warpgroup& g = group_of(*threads[0]);
  PendingWgmma w{*(Wgmma*)arguments[0], {}, {}, site};
  if (!g.fenced) fault("misuse", site, "wgmma at %s without a wgmma.fence since its registers were last touched", where(site).c_str());
  for (int i = 0; i < 128; ++i) {
    const Wgmma& mine = *(Wgmma*)arguments[i];
    if (mine.a != w.op.a || mine.b != w.op.b || mine.add != w.op.add)
      fault("divergence", site, "wgmma at %s: thread %d of the warpgroup has other descriptors than thread 0", where(site).c_str(), i);
    w.d[i] = mine.d;
    hold(*threads[i], mine.d, (size_t)mine.n / 2 * 4, g.committed + 1, false, site);
    if (mine.a_registers) {
      w.a.insert(w.a.end(), mine.a_registers, mine.a_registers + 4);
      hold(*threads[i], mine.a_registers, 16, g.committed + 1, true, site);
    }
  }
  const int element = element_bytes(w.op.type);
  const Operand B = operand_of(w.op.b, site, 'B');
  Access a{threads, 128, g.agent, g.base + g.committed + 1, true, site, "wgmma, for A,"};
  if (!w.op.a_registers) {
    const Operand A = operand_of(w.op.a, site, 'A');
    read_operand(a, b, A, w.op.transposed_a, element, 64, 'A');
  }
  a.what = "wgmma, for B,";
  read_operand(a, b, B, w.op.transposed_b, element, w.op.n, 'B');
  if (machine.launch.counts)  // a warp has 16 of the 64 rows, and all four share B
    for (int warp = 0; warp < 4; ++warp) {
      Tally& y = tally_of(*threads[32 * warp], "wgmma.mma_async");
      y.flops += 2 * 16 * (uint64_t)w.op.n * (uint64_t)(32 / element);
      y.shared += (w.op.a_registers ? 0 : 16 * 32) + 8 * (uint64_t)w.op.n;
    }
  g.open.push_back(std::move(w));
}
static const Collective ISSUE{"wgmma.mma_async", issue};

static void fence_registers(Thread** threads, void**, int, Site) { group_of(*threads[0]).fenced = true; }
static const Collective FENCE{"wgmma.fence", fence_registers};

static void commit(Thread** threads, void**, int, Site) {
  Warpgroup& g = group_of(*threads[0]);
  g.groups.push_back(std::move(g.open));
  g.open.clear();
  ++g.committed;
}
static const Collective COMMIT{"wgmma.commit_group", commit};

static void wait_groups(Thread** threads, void** arguments, int, Site) {
  Block& b = *threads[0]->block;
  Warpgroup& g = group_of(*threads[0]);
  const size_t pending = (size_t)*(int*)arguments[0];
  while (g.groups.size() > pending) {
    for (const PendingWgmma& w : g.groups.front()) compute(b, w);
    g.groups.pop_front();
    ++g.done;
  }
  for (int i = 0; i < 128; ++i) {
    Thread& t = *threads[i];
    t.knows = machine.clocks.raised(t.knows, g.agent, g.base + g.done);
    t.held.erase(std::remove_if(t.held.begin(), t.held.end(), [&](const Held& h) { return h.group <= g.done; }), t.held.end());
  }
  if (g.groups.empty() && g.open.empty()) g.fenced = false;
}
static const Collective WAIT{"wgmma.wait_group", wait_groups};

static void set_count(Thread** threads, void** arguments, int, Site site) {
  Block& b = *threads[0]->block;
  const int count = *(int*)arguments[0];
  if (count % 8 || count < 24 || count > 256) fault("misuse", site, "setmaxnreg at %s to %d registers: multiples of 8 from 24 to 256", where(site).c_str(), count);
  group_of(*threads[0]).registers = count;
  int total = 0;
  for (const Warpgroup& g : b.warpgroups) {
    if (!g.registers) return;
    total += 128 * g.registers;
  }
  if (total > 65536) fault("misuse", site, "setmaxnreg at %s: the warpgroups then have %d registers, a block has 65536", where(site).c_str(), total);
}
static const Collective SET_COUNT{"setmaxnreg", set_count};

void wgmma(const Wgmma& w, Site site) { meet_in_warpgroup(ISSUE, const_cast<Wgmma*>(&w), site); }
void wgmma_fence(Site site) { meet_in_warpgroup(FENCE, nullptr, site); }
void wgmma_commit(Site site) { meet_in_warpgroup(COMMIT, nullptr, site); }
void wgmma_wait(int pending, Site site) { meet_in_warpgroup(WAIT, &pending, site); }
void set_registers(int count, bool, Site site) { meet_in_warpgroup(SET_COUNT, &count, site); }

}  // namespace emu
