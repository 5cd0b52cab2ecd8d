// What the lanes of a warp, or the four warps of a warpgroup, do together: the last to arrive does it for all.
#include <string.h>

#include "machine.h"

namespace emu {

void meet_in_warp(const Collective& op, void* argument, uint32_t mask, Site site) {
  Thread& t = *machine.current;
  Block& b = *t.block;
  Warp& warp = b.warps[(size_t)t.index / 32];
  const int first = t.index & ~31, lane = t.index & 31;
  if (!(mask >> lane & 1)) fault("divergence", site, "%s at %s: lane %d is not in its own mask 0x%x", op.name, where(site).c_str(), lane, mask);
  WarpMeeting* m = nullptr;
  for (WarpMeeting& open : warp.open) {
    if (!(open.mask & mask)) continue;
    if (open.mask != mask || open.op != &op || open.site.line != site.line)
      fault("divergence", site, "%s at %s, while other lanes of the warp (mask 0x%x) are in %s at %s", op.name, where(site).c_str(), open.here, open.op->name, where(open.site).c_str());
    m = &open;
  }
  if (!m) {
    for (int i = 0; i < 32; ++i)
      if (mask >> i & 1 && (first + i >= b.threads_count || b.threads[(size_t)(first + i)]->done))
        fault("divergence", site, "%s at %s takes lane %d, which %s", op.name, where(site).c_str(), i, first + i >= b.threads_count ? "does not exist" : "has ended");
    warp.open.push_back({&op, mask, 0, site, {}});
    m = &warp.open.back();
  }
  m->argument[lane] = argument;
  m->here |= 1u << lane;
  if (m->here != mask) return wait(op.name, site);
  Thread* threads[32];
  void* arguments[32];
  int count = 0;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) threads[count] = b.threads[(size_t)(first + i)].get(), arguments[count++] = m->argument[i];
  warp.open.erase(warp.open.begin() + (m - warp.open.data()));
  count_warp(threads, count, op.name);
  op.run(threads, arguments, count, site);
  for (int i = 0; i < count; ++i) wake(threads[i]);
}

void meet_in_warpgroup(const Collective& op, void* argument, Site site) {
  Thread& t = *machine.current;
  Block& b = *t.block;
  if ((size_t)t.index / 128 >= b.warpgroups.size()) fault("divergence", site, "%s at %s by a thread outside any whole warpgroup", op.name, where(site).c_str());
  Warpgroup& g = b.warpgroups[(size_t)t.index / 128];
  if (g.op && (g.op != &op || g.site.line != site.line))
    fault("divergence", site, "%s at %s, while %d threads of the warpgroup are in %s at %s", op.name, where(site).c_str(), g.here, g.op->name, where(g.site).c_str());
  g.op = &op;
  g.site = site;
  g.argument[t.index & 127] = argument;
  if (++g.here < 128) return wait(op.name, site);
  Thread* threads[128];
  for (int i = 0; i < 128; ++i) threads[i] = b.threads[(size_t)(t.index & ~127) + (size_t)i].get();
  g.op = nullptr;
  g.here = 0;
  count_warp(threads, 128, op.name);
  op.run(threads, g.argument, 128, site);
  for (Thread* other : threads) wake(other);
}

// Nobody may end while others wait for him.
void leave_meetings(Thread& t) {
  Block& b = *t.block;
  for (WarpMeeting& m : b.warps[(size_t)t.index / 32].open)
    if (m.mask >> (t.index & 31) & 1)
      fault("divergence", m.site, "lane %d ends while other lanes of its warp (mask 0x%x) wait for it in %s at %s", t.index & 31, m.here, m.op->name, where(m.site).c_str());
  if ((size_t)t.index / 128 >= b.warpgroups.size()) return;
  const Warpgroup& g = b.warpgroups[(size_t)t.index / 128];
  if (g.op) fault("divergence", g.site, "a thread ends while %d others of its warpgroup wait for it in %s at %s", g.here, g.op->name, where(g.site).c_str());
}

// ---- exchanges of registers

struct Exchange {
  uint32_t value;
  int lane;
  uint32_t result;
};

static void exchange(Thread** threads, void** arguments, int count, Site site) {
  for (int i = 0; i < count; ++i) {
    Exchange& mine = *(Exchange*)arguments[i];
    const int wanted = mine.lane & 31;
    mine.result = mine.value;
    if (wanted == (threads[i]->index & 31)) continue;
    bool found = false;
    for (int j = 0; j < count; ++j)
      if ((threads[j]->index & 31) == wanted) mine.result = ((Exchange*)arguments[j])->value, found = true;
    if (!found)
      fault("divergence", site, "shfl.sync at %s: lane %d asks lane %d, which does not take part", where(site).c_str(), threads[i]->index & 31, wanted);
  }
}
static const Collective SHUFFLE{"shfl.sync", exchange};

uint32_t shuffle(uint32_t value, int lane, uint32_t mask, Site site) {
  Exchange e{value, lane, 0};
  meet_in_warp(SHUFFLE, &e, mask, site);
  return e.result;
}

static void vote(Thread** threads, void** arguments, int count, Site) {
  uint32_t all = 0;
  for (int i = 0; i < count; ++i)
    if (((Exchange*)arguments[i])->value) all |= 1u << (threads[i]->index & 31);
  for (int i = 0; i < count; ++i) ((Exchange*)arguments[i])->result = all;
}
static const Collective VOTE{"vote.sync", vote};

uint32_t ballot(bool value, uint32_t mask, Site site) {
  Exchange e{value, 0, 0};
  meet_in_warp(VOTE, &e, mask, site);
  return e.result;
}

// Any lane may be the one; kernels may not count on lane 0.
static void choose(Thread**, void** arguments, int count, Site) {
  const int chosen = is_random() ? (int)(random_number() % (uint64_t)count) : 0;
  for (int i = 0; i < count; ++i) ((Exchange*)arguments[i])->result = i == chosen;
}
static const Collective ELECT{"elect.sync", choose};

bool elect(Site site) {
  Exchange e{};
  meet_in_warp(ELECT, &e, 0xffffffffu, site);
  return e.result != 0;
}

static void order_lanes(Thread** threads, void**, int count, Site) {
  Meeting m;
  for (int i = 0; i < count; ++i) release(*threads[i], m);
  const Knowledge learned = made(m);
  for (int i = 0; i < count; ++i) acquire(*threads[i], learned);
}
static const Collective SYNC_WARP{"bar.warp.sync", order_lanes};

void sync_warp(uint32_t mask, Site site) { meet_in_warp(SYNC_WARP, nullptr, mask, site); }

// ---- matrices of 8x8 elements of 16 bits between shared memory and registers

struct Matrices {
  uint32_t* r;
  uint32_t address;
  int count;
  bool transposed;
};

// The eight rows of a matrix come from places of global memory at equal distances, unless its layout is confused.
static void check_rows(const Block& b, const uint32_t* offset, Site site) {
  const uint8_t* from[8];
  for (int i = 0; i < 8; ++i) from[i] = b.source[offset[i] / 16];
  int first = -1, second = -1;
  for (int i = 0; i < 8; ++i)
    if (from[i]) (first < 0 ? first : second < 0 ? second : i) = i;
  if (second < 0) return;
  const int64_t distance = (from[second] - from[first]) / (second - first);
  for (int i = second; i < 8; ++i)
    if (from[i] && (from[i] - from[first]) != distance * (i - first))
      fault("layout", site, "ldmatrix at %s: row %d of a matrix is taken from %s, which holds %s, but row %d holds %s: the rows are not equally far apart, so the swizzle or the address is wrong",
            where(site).c_str(), i, shared_name(b, offset[i]).c_str(), global_name(from[i]).c_str(), first, global_name(from[first]).c_str());
}

static uint16_t half_of(const uint8_t* row, int i) {
  uint16_t h;
  memcpy(&h, row + 2 * i, 2);
  return h;
}

static void load_matrices(Thread** threads, void** arguments, int, Site site) {
  Block& b = *threads[0]->block;
  const Matrices& head = *(Matrices*)arguments[0];
  uint32_t offset[32];
  for (int l = 0; l < 8 * head.count; ++l) {
    offset[l] = shared_offset(b, ((Matrices*)arguments[l])->address, 16, 16, "ldmatrix", site);
  }
  if (machine.launch.check_layout)
    for (int m = 0; m < head.count; ++m) check_rows(b, offset + 8 * m, site);
  if (machine.launch.counts) {
    Tally& y = tally_of(*threads[0], "ldmatrix");
    uint64_t address[32];
    for (int l = 0; l < 8 * head.count; ++l) address[l] = offset[l];
    y.shared += 128 * (uint64_t)head.count;
    count_turns(y, address, 8 * head.count, 16);
  }
  for (int l = 0; l < 8 * head.count; ++l) {
    const int row = l % 8;
    Thread* readers[5] = {threads[l], threads[4 * row], threads[4 * row + 1], threads[4 * row + 2], threads[4 * row + 3]};
    read_shared(b, {readers, head.transposed ? 1 : 5, threads[l]->agent, threads[l]->now, false, site, "ldmatrix"}, offset[l], 16);
  }
  for (int m = 0; m < head.count; ++m) {
    const uint32_t* const rows = offset + 8 * m;
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, q = 2 * (l % 4);
      const uint16_t low = head.transposed ? half_of(b.shared + rows[q], g) : half_of(b.shared + rows[g], q);
      const uint16_t high = head.transposed ? half_of(b.shared + rows[q + 1], g) : half_of(b.shared + rows[g], q + 1);
      ((Matrices*)arguments[l])->r[m] = low | (uint32_t)high << 16;
    }
  }
}
static const Collective LDMATRIX{"ldmatrix", load_matrices};

void ldmatrix(uint32_t* r, uint32_t address, int count, bool transposed, Site site) {
  Matrices m{r, address, count, transposed};
  meet_in_warp(LDMATRIX, &m, 0xffffffffu, site);
}

static void store_matrices(Thread** threads, void** arguments, int, Site site) {
  Block& b = *threads[0]->block;
  const Matrices& head = *(Matrices*)arguments[0];
  for (int m = 0; m < head.count; ++m) {
    uint32_t offset[8];
    for (int i = 0; i < 8; ++i) {
      offset[i] = shared_offset(b, ((Matrices*)arguments[8 * m + i])->address, 16, 16, "stmatrix", site);
      // Element q, q+1 of row g is lane 4g + q/2's to write.
      for (int q = 0; q < 4; ++q)
        plain_write_shared(b, threads[head.transposed ? 4 * q + i / 2 : 4 * i + q], "stmatrix", site, offset[i] + 4 * (uint32_t)q, 4);
    }
    if (machine.launch.counts) {
      Tally& y = tally_of(*threads[0], "stmatrix");
      uint64_t address[8];
      for (int i = 0; i < 8; ++i) address[i] = offset[i];
      y.shared += 128;
      count_turns(y, address, 8, 16);
    }
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, q = 2 * (l % 4);
      const uint32_t word = ((Matrices*)arguments[l])->r[m];
      const uint16_t low = (uint16_t)word, high = (uint16_t)(word >> 16);
      memcpy(b.shared + (head.transposed ? offset[q] + 2 * (uint32_t)g : offset[g] + 2 * (uint32_t)q), &low, 2);
      memcpy(b.shared + (head.transposed ? offset[q + 1] + 2 * (uint32_t)g : offset[g] + 2 * (uint32_t)q + 2), &high, 2);
    }
  }
}
static const Collective STMATRIX{"stmatrix", store_matrices};

void stmatrix(uint32_t address, const uint32_t* r, int count, bool transposed, Site site) {
  Matrices m{const_cast<uint32_t*>(r), address, count, transposed};
  meet_in_warp(STMATRIX, &m, 0xffffffffu, site);
}

// ---- mma.sync: rows of A and of D by lane / 4, columns by lane % 4; k by registers and halves

struct Mma {
  Type type;
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};

static void multiply(Thread** threads, void** arguments, int, Site) {
  const Type type = ((Mma*)arguments[0])->type;
  const int bits = type == Type::tf32 ? 32 : type == Type::e4m3 || type == Type::e5m2 ? 8 : 16;
  const int per = 32 / bits, depth = 8 * per;  // elements of a register; k of the instruction
  if (machine.launch.counts) tally_of(*threads[0], "mma.sync").flops += 2 * 16 * 8 * (uint64_t)depth;
  float a[16][32], b[32][8], d[16][8];
  for (int l = 0; l < 32; ++l) {
    const Mma& m = *(Mma*)arguments[l];
    const int g = l / 4, q = l % 4;
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < per; ++e) a[g + 8 * (r % 2)][(r / 2) * 4 * per + q * per + e] = widen(type, bits == 32 ? m.a[r] : m.a[r] >> (bits * e));
    for (int r = 0; r < 2; ++r)
      for (int e = 0; e < per; ++e) b[r * 4 * per + q * per + e][g] = widen(type, bits == 32 ? m.b[r] : m.b[r] >> (bits * e));
    for (int i = 0; i < 4; ++i) d[g + 8 * (i / 2)][2 * q + i % 2] = m.d[i];
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < depth; ++k)
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) ((Mma*)arguments[l])->d[i] = d[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
}
static const Collective MMA{"mma.sync", multiply};

void mma(Type type, float* d, const uint32_t* a, uint32_t b0, uint32_t b1, Site site) {
  Mma m{type, d, a, {b0, b1}};
  meet_in_warp(MMA, &m, 0xffffffffu, site);
}

}  // namespace emu
