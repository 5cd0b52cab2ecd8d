// Boxes of a tensor map into shared memory: they land as late as they may, and complete on a barrier.
#include <string.h>

#include "machine.h"

namespace emu {

// The 16-byte chunks of a span are XORed with the row, both read from the absolute shared address.
uint32_t swizzled(uint32_t a, int span) {
  return span == 128 ? a ^ (a >> 7 & 7) << 4 : span == 64 ? a ^ (a >> 7 & 3) << 4 : span == 32 ? a ^ (a >> 7 & 1) << 4 : a;
}

static const TensorMap* map_of(const void* map, int rank, const char* what, Site site) {
  const uint64_t* words = (const uint64_t*)map;
  if (words[1] != 0x7461746d61700001ull) fault("misuse", site, "%s at %s with something that is no tensor map", what, where(site).c_str());
  const TensorMap* m = (const TensorMap*)words[0];
  if (m->rank != rank) fault("misuse", site, "%s of rank %d at %s with a tensor map of rank %d", what, rank, where(site).c_str(), m->rank);
  return m;
}

static void start(TmaCopy c, uint32_t to, const char* what) {
  Thread* t = machine.current;
  Block& own = *t->block;
  if (to >> RANK_SHIFT) fault("misuse", c.site, "%s at %s to another block's shared address: use multicast", what, where(c.site).c_str());
  c.issuer = &own;
  if (!c.mask) c.mask = 1u << own.rank;
  for (uint32_t r = 0; r < 16; ++r) {
    if (!(c.mask >> r & 1)) continue;
    if (r >= own.cluster->size()) fault("misuse", c.site, "%s at %s to block %u of a cluster of %zu", what, where(c.site).c_str(), r, own.cluster->size());
    Block& b = *(*own.cluster)[r];
    if (!b.live) fault("misuse", c.site, "%s at %s into block %u of the cluster, which has already ended", what, where(c.site).c_str(), r);
    c.offset = shared_offset(b, to, c.bytes, c.map ? 128 : 16, what, c.site);
    if (c.map && c.map->swizzle && (c.offset + SHARED_BASE) % (uint32_t)(8 * c.map->swizzle))
      fault("misuse", c.site, "%s at %s: with a swizzle of %d bytes %s has to be a multiple of %d", what, where(c.site).c_str(), c.map->swizzle,
            shared_name(b, c.offset).c_str(), 8 * c.map->swizzle);
    Barrier& m = barrier_at(b, c.barrier, what, c.site);
    if (machine.clocks.at(t->proxy, m.owner) < m.owner_time)
      fault("proxy fence", c.site, "%s at %s uses the barrier at %s, whose initialisation at %s is not fenced (fence.mbarrier_init or fence.proxy.async)", what,
            where(c.site).c_str(), shared_name(b, c.barrier - SHARED_BASE).c_str(), where(m.site).c_str());
    const uint32_t time = m.base + (uint32_t)m.phase + 1;
    const Access a{&t, 1, m.agent, time, false, c.site, what};
    c.record[r] = record_of(a, true, false);
    write_shared(b, a, c.offset, c.bytes, c.record[r]);
    memset(b.shared + c.offset, 0xff, c.bytes);
    for (uint32_t i = 0; i < c.bytes; i += 16) b.source[(c.offset + i) / 16] = nullptr;
  }
  if (machine.launch.counts) {
    Tally& y = tally_of(*t, what);
    ++y.instructions, ++y.lanes, y.global += c.bytes, y.shared += c.bytes * (uint64_t)__builtin_popcount(c.mask);
  }
  machine.in_flight.push_back(c);
}

// The elements of a box that exist have to lie in a buffer, with values that are known to be there.
static void read_box(const TmaCopy& c) {
  const TensorMap& m = *c.map;
  Thread* t = machine.current;
  const Access a = access_of(t, "TMA load", c.site);
  const int64_t first = c.at[0] > 0 ? c.at[0] : 0, last = c.at[0] + m.box[0] < m.dims[0] ? c.at[0] + m.box[0] : m.dims[0];
  if (last <= first) return;
  each_row(m, c.at, [&](const uint8_t* row, bool inside) {
    if (!inside) return;
    const uint8_t* from = row + first * m.element;
    const size_t bytes = (size_t)((last - first) * m.element);
    Buffer& b = need_buffer(from, bytes, "TMA load", false, c.site);
    read_global(b, a, (size_t)(from - b.memory), bytes);
  });
}

void tma_load(uint32_t to, const void* map, const int* at, int rank, uint32_t barrier, uint32_t mask, Site site) {
  TmaCopy c{};
  c.map = map_of(map, rank, "TMA load", site);
  c.bytes = (uint32_t)c.map->element;
  for (int i = 0; i < rank; ++i) c.at[i] = at[i], c.bytes *= (uint32_t)c.map->box[i];
  c.barrier = barrier;
  c.mask = mask;
  c.site = site;
  read_box(c);
  start(c, to, "TMA load");
}

// Of a walk over two coordinates; what is above, the instruction cuts off.
const uint16_t MOST_SHIFT = 254;

void tma_load_im2col(uint32_t to, const void* map, const int* at, int rank, const uint16_t* offsets, uint32_t barrier, uint32_t mask, Site site) {
  TmaCopy c{};
  c.map = map_of(map, rank, "TMA im2col load", site);
  if (!c.map->im2col) fault("misuse", site, "TMA im2col load at %s with a tiled tensor map", where(site).c_str());
  c.bytes = (uint32_t)(c.map->element * c.map->channels * c.map->pixels);
  for (int i = 0; i < rank; ++i) c.at[i] = at[i];
  for (int i = 0; i < rank - 2; ++i) {
    if (offsets[i] > MOST_SHIFT) fault("misuse", site, "TMA im2col load at %s shifts coordinate %d by %u; an instruction holds 0 to %u", where(site).c_str(), i + 1, (unsigned)offsets[i], (unsigned)MOST_SHIFT);
    c.offsets[i] = offsets[i];
  }
  c.barrier = barrier;
  c.mask = mask;
  c.site = site;
  start(c, to, "TMA im2col load");
}

void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, Site site) {
  if (bytes % 16 || (uintptr_t)from % 16) fault("misuse", site, "cp.async.bulk at %s: size and addresses have to be multiples of 16", where(site).c_str());
  Thread* t = machine.current;
  Buffer& buffer = need_buffer(from, bytes, "cp.async.bulk", false, site);
  read_global(buffer, access_of(t, "cp.async.bulk", site), (size_t)((const uint8_t*)from - buffer.memory), bytes);
  TmaCopy c{};
  c.from = (const uint8_t*)from;
  c.bytes = bytes;
  c.barrier = barrier;
  c.site = site;
  start(c, to, "cp.async.bulk");
}

// ---- landing

// fp32 to 10 fraction bits, ties to even, as TMA does for maps of tf32: Triton's pull request 11751 has it from a device of
// compute capability 12.0. Unchecked on Hopper.
static void round_to_tf32(uint8_t* p) {
  uint32_t bits;
  memcpy(&bits, p, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  else if (bits & 0x7fffffu) bits |= 0x400000u;  // a NaN may have its only ones in the bits that do not count
  memcpy(p, &bits, 4);
}

// Writes one row of a box; `inside` says whether the row exists at all. Elements outside arrive as zeros.
static void put_row(Block& b, const TensorMap& m, uint32_t& linear, const uint8_t* row, int64_t first, int count, int64_t limit, bool inside, bool traced) {
  for (int i = 0; i < count; ++i, linear += (uint32_t)m.element) {
    const uint32_t offset = swizzled(linear, m.swizzle) - SHARED_BASE;
    const int64_t c = first + i;
    if (linear % 16 == 0) note_source(b, offset, traced ? row + c * m.element : nullptr);
    if (inside && c >= 0 && c < limit) {
      memcpy(b.shared + offset, row + c * m.element, (size_t)m.element);
      if (m.type == 6) round_to_tf32(b.shared + offset);
    } else
      memset(b.shared + offset, 0, (size_t)m.element);
  }
}

static void land_tile(Block& b, const TmaCopy& c) {
  const TensorMap& m = *c.map;
  uint32_t linear = c.offset + SHARED_BASE;
  each_row(m, c.at, [&](const uint8_t* row, bool inside) { put_row(b, m, linear, row, c.at[0], m.box[0], m.dims[0], inside, true); });
}

// Pixels from the start along w, then h, then the image, inside a box that the filter's offsets move about.
static void land_im2col(Block& b, const TmaCopy& c) {
  const TensorMap& m = *c.map;
  const int spatial = m.rank - 2;
  uint32_t linear = c.offset + SHARED_BASE;
  int at[5];
  memcpy(at, c.at, sizeof at);
  for (int pixel = 0; pixel < m.pixels; ++pixel) {
    int64_t offset = at[m.rank - 1] * m.strides[m.rank - 1];
    bool inside = at[m.rank - 1] >= 0 && at[m.rank - 1] < m.dims[m.rank - 1];
    for (int i = 0; i < spatial; ++i) {
      const int64_t x = at[1 + i] + c.offsets[i];
      inside &= x >= 0 && x < m.dims[1 + i];
      offset += x * m.strides[1 + i];
    }
    put_row(b, m, linear, m.memory + offset, c.at[0], m.channels, m.dims[0], inside, false);
    for (int i = 0; i <= spatial; ++i) {
      if (i == spatial) {
        ++at[m.rank - 1];
        break;
      }
      at[1 + i] += m.steps[i];
      if (at[1 + i] < m.dims[1 + i] + m.upper[i]) break;
      at[1 + i] = m.lower[i];
    }
  }
}

void land(size_t which) {
  const TmaCopy c = machine.in_flight[which];
  machine.in_flight.erase(machine.in_flight.begin() + (ptrdiff_t)which);
  if (c.copier) {
    land_group(*c.issuer, c.group, c.offset);
    Barrier& m = c.issuer->barriers[c.barrier - SHARED_BASE];
    if (!m.pending)
      return note("misuse", c.site, "cp.async.mbarrier.arrive at %s: more arrivals at %s than its count %u in one phase", where(c.site).c_str(),
                  shared_name(*c.issuer, c.barrier - SHARED_BASE).c_str(), m.count);
    m.arrived.knows.raise(c.copier->agent, c.offset);
    --m.pending;
    return try_complete(m);
  }
  for (uint32_t r = 0; r < c.issuer->cluster->size(); ++r) {
    if (!(c.mask >> r & 1)) continue;
    Block& b = *(*c.issuer->cluster)[r];
    if (!c.map) {
      memcpy(b.shared + c.offset, c.from, c.bytes);
      for (uint32_t i = 0; i < c.bytes; i += 16) note_source(b, c.offset + i, c.from + i);
    } else if (c.map->im2col) {
      land_im2col(b, c);
    } else {
      land_tile(b, c);
    }
    Record& record = machine.records[c.record[r]];
    record.in_flight = false;
    auto found = b.barriers.find(c.barrier - SHARED_BASE);
    if (found == b.barriers.end()) return note("misuse", c.site, "the barrier of the %s issued at %s no longer exists when it lands", record.what, where(c.site).c_str());
    Barrier& m = found->second;
    if (m.base + (uint32_t)m.phase + 1 != record.time)
      return note("misuse", c.site, "the %s issued at %s lands in a later phase of the barrier at %s than the one it was issued in: the expected bytes are too few", record.what,
                  where(c.site).c_str(), shared_name(b, c.barrier - SHARED_BASE).c_str());
    m.bytes -= c.bytes;
    try_complete(m);
  }
}

}  // namespace emu
