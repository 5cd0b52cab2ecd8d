// Copies that a thread starts and waits for by itself: cp.async, and bulk stores from shared to global memory.
#include <math.h>
#include <string.h>

#include "machine.h"

namespace emu {

void load_shared(void* to, uint32_t address, int bytes, Site site) {
  Block& b = block_of(address, "ld.shared", site);
  Thread* t = machine.current;
  const uint32_t offset = shared_offset(b, address, (uint32_t)bytes, (uint32_t)bytes, "ld.shared", site);
  read_shared(b, access_of(t, "ld.shared", site), offset, (uint32_t)bytes);
  count_lane(*t, "ld.shared", Side::shared, offset, bytes, site);
  memcpy(to, b.shared + offset, (size_t)bytes);
}

void store_shared(uint32_t address, const void* from, int bytes, Site site) {
  Block& b = block_of(address, "st.shared", site);
  const uint32_t offset = shared_offset(b, address, (uint32_t)bytes, (uint32_t)bytes, "st.shared", site);
  plain_write_shared(b, machine.current, "st.shared", site, offset, (uint32_t)bytes);
  count_lane(*machine.current, "st.shared", Side::shared, offset, bytes, site);
  memcpy(b.shared + offset, from, (size_t)bytes);
}

// ---- cp.async

void cp_async(uint32_t to, const void* from, int size, int bytes, Site site) {
  Thread* t = machine.current;
  Block& b = *t->block;
  if (bytes < 0 || bytes > size) fault("misuse", site, "cp.async of %d bytes at %s reads %d", size, where(site).c_str(), bytes);
  const uint32_t offset = shared_offset(b, to, (uint32_t)size, (uint32_t)size, "cp.async", site);
  if ((uintptr_t)from % (uintptr_t)size)
    fault("misuse", site, "cp.async at %s reads %s, which is no multiple of %d", where(site).c_str(), global_name(from).c_str(), size);
  const Access a = access_of(t, "cp.async", site);
  if (bytes) {
    Buffer& buffer = need_buffer(from, (size_t)bytes, "cp.async", false, site);
    read_global(buffer, a, (size_t)((const uint8_t*)from - buffer.memory), (size_t)bytes);
    count_lane(*t, "cp.async", Side::source, (uint64_t)from, bytes, site);
  }
  count_lane(*t, "cp.async", Side::shared, offset, size, site);
  auto& records = t->open.records;
  if (records.empty() || !(machine.records[records.back()].site == site)) records.push_back(record_of(a, true, true));
  write_shared(b, a, offset, (uint32_t)size, records.back());
  memset(b.shared + offset, 0xff, (size_t)size);
  b.source[offset / 16] = nullptr;
  t->open.pieces.push_back({offset, (const uint8_t*)from, size, bytes});
}

void cp_async_commit(Site site) {
  Thread& t = *machine.current;
  count_lane(t, "cp.async.commit_group", Side::none, 0, 0, site);
  t.groups.push_back(std::move(t.open));
  t.open = CopyGroup();
}

void land_group(Block& b, const CopyGroup& g, uint32_t time) {
  for (const CopyPiece& p : g.pieces) {
    uint8_t* const to = b.shared + p.offset;
    memcpy(to, p.from, (size_t)p.bytes);
    memset(to + p.bytes, 0, (size_t)(p.size - p.bytes));
    note_source(b, p.offset, p.size == 16 && p.bytes ? p.from : nullptr);
  }
  for (uint32_t r : g.records) {
    machine.records[r].in_flight = false;
    machine.records[r].time = time;
  }
}

void cp_async_wait(int pending, Site site) {
  Thread& t = *machine.current;
  count_lane(t, "cp.async.wait_group", Side::none, 0, 0, site);
  while ((int)t.groups.size() > pending) {
    land_group(*t.block, t.groups.front(), t.now);
    t.groups.pop_front();
  }
}

// The copies so far no longer wait for a group: they land by themselves, and then arrive.
void cp_async_arrive(uint32_t barrier, Site site) {
  Thread& t = *machine.current;
  barrier_at(*t.block, barrier, "cp.async.mbarrier.arrive", site);
  count_lane(t, "cp.async.mbarrier.arrive", Side::none, 0, 0, site);
  TmaCopy c{};
  c.copier = &t;
  c.barrier = barrier;
  c.site = site;
  c.issuer = t.block;
  c.offset = t.now++;  // the moment that whoever waits for the barrier learns of
  t.groups.push_back(std::move(t.open));
  t.open = CopyGroup();
  for (CopyGroup& g : t.groups) {
    c.group.pieces.insert(c.group.pieces.end(), g.pieces.begin(), g.pieces.end());
    c.group.records.insert(c.group.records.end(), g.records.begin(), g.records.end());
    g = CopyGroup();
  }
  machine.in_flight.push_back(std::move(c));
}

// ---- bulk stores: shared memory is read late, global memory is written late

static float number(const uint8_t* p, int type) {
  uint16_t half;
  float f;
  memcpy(&half, p, 2);
  if (type == 1 || type == 2) return widen(type == 1 ? Type::f16 : Type::bf16, half);
  memcpy(&f, p, 4);
  return f;
}

static void combine(uint8_t* to, const uint8_t* from, int element, int type, Reduce reduce) {
  if (reduce == Reduce::none) {
    memcpy(to, from, (size_t)element);
    return;
  }
  if (type == 4 || type == 5) {
    uint32_t x, y;
    memcpy(&x, to, 4);
    memcpy(&y, from, 4);
    const bool less = type == 4 ? (int32_t)y < (int32_t)x : y < x;
    const uint32_t z = reduce == Reduce::add ? x + y : (reduce == Reduce::min) == less ? y : x;
    memcpy(to, &z, 4);
    return;
  }
  const float x = number(to, type), y = number(from, type);
  const float z = reduce == Reduce::add ? x + y : reduce == Reduce::min ? fminf(x, y) : fmaxf(x, y);
  const uint16_t half = type == 1 ? narrow_f16(z) : narrow_bf16(z);
  memcpy(to, type == 3 ? (const void*)&z : (const void*)&half, (size_t)element);
}

// Calls f(byte of the tile in shared memory, byte of global memory) for each element inside the tensor.
template <class F> static void each_element(const BulkStore& s, F f) {
  const TensorMap& m = *s.map;
  uint32_t linear = s.from + SHARED_BASE;
  each_row(m, s.at, [&](const uint8_t* row, bool inside) {
    for (int64_t c = s.at[0]; c < s.at[0] + m.box[0]; ++c, linear += (uint32_t)m.element)
      if (inside && c >= 0 && c < m.dims[0]) f(swizzled(linear, m.swizzle) - SHARED_BASE - s.from, row + c * m.element);
  });
}

static void read_store(Block& b, BulkStore& s) { s.read.assign(b.shared + s.from, b.shared + s.from + s.bytes); }

static void write_store(BulkStore& s) {
  if (!s.map) {
    memcpy(s.to, s.read.data(), s.bytes);
  } else {
    each_element(s, [&](uint32_t at, const uint8_t* to) { combine(const_cast<uint8_t*>(to), &s.read[at], s.map->element, s.map->type, s.reduce); });
  }
  machine.global_records[s.record].in_flight = false;
}

static void start_store(BulkStore s, const char* what) {
  Thread* t = machine.current;
  Block& b = *t->block;
  if (!t->bulk_agent) {
    t->bulk_agent = take_agent(b, "bulk stores of " + thread_name(*t));
    t->bulk_base = machine.agent_times[t->bulk_agent];
  }
  const uint32_t time = t->bulk_base + t->bulk_committed + 1;
  const Access reads{&t, 1, t->bulk_agent, time, true, s.site, what};
  if (machine.launch.counts) {
    Tally& y = tally_of(*t, what);
    ++y.instructions, ++y.lanes, y.shared += s.bytes, y.global += s.bytes;
  }
  read_shared(b, reads, s.from, s.bytes);
  s.record = global_record({&t, 1, t->bulk_agent, time, true, s.site, what}, true);
  const Access writes{&t, 1, t->bulk_agent, time, true, s.site, what};
  if (!s.map) {
    Buffer& buffer = need_buffer(s.to, s.bytes, what, true, s.site);
    write_global(buffer, writes, (size_t)(s.to - buffer.memory), s.bytes, s.record);
  } else if (s.reduce == Reduce::none) {
    each_element(s, [&](uint32_t, const uint8_t* to) {
      Buffer& buffer = need_buffer(to, (size_t)s.map->element, what, true, s.site);
      write_global(buffer, writes, (size_t)(to - buffer.memory), (size_t)s.map->element, s.record);
    });
  } else {  // sums of several blocks are no race with each other
    each_element(s, [&](uint32_t, const uint8_t* to) { need_buffer(to, (size_t)s.map->element, what, true, s.site); });
  }
  t->bulk_open.stores.push_back(std::move(s));
}

void tma_store(const void* map, const int* at, int rank, uint32_t from, Reduce reduce, Site site) {
  const TensorMap* m = *(const TensorMap* const*)map;
  if (((const uint64_t*)map)[1] != 0x7461746d61700001ull || m->rank != rank) fault("misuse", site, "TMA store at %s with something that is no tensor map of rank %d", where(site).c_str(), rank);
  BulkStore s{};
  s.map = m;
  s.reduce = reduce;
  s.site = site;
  s.bytes = (uint32_t)m->element;
  for (int i = 0; i < rank; ++i) s.at[i] = at[i], s.bytes *= (uint32_t)m->box[i];
  s.from = shared_offset(*machine.current->block, from, s.bytes, 128, "TMA store", site);
  start_store(std::move(s), reduce == Reduce::none ? "TMA store" : "TMA reduce");
}

void bulk_store(void* to, uint32_t from, uint32_t bytes, Site site) {
  if (bytes % 16 || (uintptr_t)to % 16) fault("misuse", site, "cp.async.bulk at %s: size and addresses have to be multiples of 16", where(site).c_str());
  BulkStore s{};
  s.to = (uint8_t*)to;
  s.bytes = bytes;
  s.site = site;
  s.from = shared_offset(*machine.current->block, from, bytes, 16, "cp.async.bulk", site);
  start_store(std::move(s), "cp.async.bulk");
}

void bulk_commit(Site) {
  Thread& t = *machine.current;
  if (!t.bulk_open.stores.empty()) ++t.bulk_committed;
  t.bulk.push_back(std::move(t.bulk_open));
  t.bulk_open = BulkGroup();
}

void finish_bulk(Thread& t, size_t keep, bool reads_only) {
  for (size_t i = 0; i + keep < t.bulk.size(); ++i) {
    BulkGroup& g = t.bulk[i];
    if (g.is_read) continue;
    g.is_read = true;
    for (BulkStore& s : g.stores) read_store(*t.block, s);
    if (!g.stores.empty()) t.knows = machine.clocks.raised(t.knows, t.bulk_agent, t.bulk_base + ++t.bulk_done);
  }
  while (!reads_only && t.bulk.size() > keep) {
    for (BulkStore& s : t.bulk.front().stores) write_store(s);
    t.bulk.pop_front();
  }
}

void bulk_wait(int pending, bool reads_only, Site) { finish_bulk(*machine.current, (size_t)pending, reads_only); }

void check_exit(Thread& t) {
  bool copies = !t.open.pieces.empty();
  for (const CopyGroup& g : t.groups) copies |= !g.pieces.empty();
  if (copies) {
    const uint32_t record = !t.open.records.empty() ? t.open.records[0] : [&] {
      for (const CopyGroup& g : t.groups)
        if (!g.records.empty()) return g.records[0];
      return 0u;
    }();
    fault("in flight", machine.records[record].site, "a thread ends while its cp.async issued at %s is in flight", where(machine.records[record].site).c_str());
  }
  if (!t.bulk_open.stores.empty())
    fault("in flight", t.bulk_open.stores[0].site, "a thread ends without committing the store issued at %s", where(t.bulk_open.stores[0].site).c_str());
  for (const BulkGroup& g : t.bulk)
    if (!g.is_read && !g.stores.empty())
      fault("in flight", g.stores[0].site, "a thread ends while the store issued at %s may still read shared memory: cp.async.bulk.wait_group.read is missing",
            where(g.stores[0].site).c_str());
  finish_bulk(t, 0, false);
  if (!t.held.empty())
    fault("in flight", t.held[0].site, "a thread ends while the wgmma issued at %s is in flight", where(t.held[0].site).c_str());
}

}  // namespace emu
