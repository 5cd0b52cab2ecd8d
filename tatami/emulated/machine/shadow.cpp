// Shared memory: who wrote and read each byte, and whether that is known to whoever touches it next.
#include "machine.h"

namespace emu {

Access access_of(Thread*& thread, const char* what, Site site) {
  return {&thread, 1, thread->agent, thread->now, false, site, what};
}

uint32_t record_of(const Access& a, bool in_flight, bool generic) {
  machine.records.push_back({a.agent, a.time, a.threads[0]->block->serial, a.site, a.what, in_flight, generic});
  return (uint32_t)machine.records.size() - 1;
}

static void check_writer(const Block& block, const Access& a, uint32_t record, uint32_t offset, bool write) {
  if (record == 0) {
    if (!write) fault("uninitialised", a.site, "%s at %s reads %s, which was never written", a.what, where(a.site).c_str(), shared_name(block, offset).c_str());
    return;
  }
  const Record& r = machine.records[record];
  if (r.in_flight)
    fault("in flight", a.site, "%s at %s %s %s while the %s issued at %s is still in flight: a wait is missing or comes too early",
          a.what, where(a.site).c_str(), write ? "overwrites" : "reads", shared_name(block, offset).c_str(), r.what, where(r.site).c_str());
  for (int i = 0; i < a.count; ++i) {
    const Thread& t = *a.threads[i];
    const bool through_proxy = a.async && r.generic;
    if (i && t.knows == a.threads[i - 1]->knows && t.proxy == a.threads[i - 1]->proxy && r.agent != a.threads[i - 1]->agent) continue;
    if (!through_proxy && r.agent == t.agent) continue;
    if (machine.clocks.at(through_proxy ? t.proxy : t.knows, r.agent) >= r.time) continue;
    if (through_proxy && (r.agent == t.agent || machine.clocks.at(t.knows, r.agent) >= r.time))
      fault("proxy fence", a.site, "%s at %s %s %s through the async proxy, which %s wrote as ordinary memory (%s at %s): fence.proxy.async is missing between them",
            a.what, where(a.site).c_str(), write ? "overwrites" : "reads", shared_name(block, offset).c_str(), who(r.agent).c_str(), r.what, where(r.site).c_str());
    fault("race", a.site, "%s at %s by %s %s %s, written by %s (%s at %s), and no barrier orders the two",
          a.what, where(a.site).c_str(), thread_name(t).c_str(), write ? "overwrites" : "reads", shared_name(block, offset).c_str(), who(r.agent).c_str(), r.what, where(r.site).c_str());
  }
}

bool is_over(const Thread& t, uint32_t agent, uint32_t time, uint32_t serial) {
  if (serial != t.block->serial) return machine.clocks.at(t.foreign, agent) >= time;
  return agent == t.agent || machine.clocks.at(t.knows, agent) >= time;
}

// The set of readers with one more. Readers that are known to be over are dropped: who waits for this one waits for them.
uint32_t with_reader(std::vector<ReaderNode>& nodes, std::unordered_map<uint64_t, uint32_t>& keys, uint32_t set, const Access& a) {
  const Thread& t = *a.threads[0];
  const Reader mine{a.agent, a.time, t.block->serial, a.site};
  const Reader head = nodes[set].reader;
  if (set && head.agent == mine.agent && head.time == mine.time && head.serial == mine.serial) return set;
  const uint64_t key = ((uint64_t)set << 32 | a.agent) * 0x9E3779B97F4A7C15ull ^ ((uint64_t)mine.serial << 32 | a.time) * 0xD1B54A32D192ED03ull;
  auto found = keys.find(key);
  if (found != keys.end()) return found->second;
  uint32_t kept = set;
  if (set && is_over(t, head.agent, head.time, head.serial)) {
    std::vector<Reader> left;
    for (uint32_t n = nodes[set].before; n; n = nodes[n].before)
      if (!is_over(t, nodes[n].reader.agent, nodes[n].reader.time, nodes[n].reader.serial)) left.push_back(nodes[n].reader);
    kept = 0;
    for (size_t i = left.size(); i-- > 0;) {
      nodes.push_back({left[i], kept});
      kept = (uint32_t)nodes.size() - 1;
    }
  }
  nodes.push_back({mine, kept});
  return keys[key] = (uint32_t)nodes.size() - 1;
}

void read_shared(Block& block, const Access& a, uint32_t offset, uint32_t bytes) {
  uint32_t* const writer = &block.shadow.writer[offset];
  uint32_t* const readers = &block.shadow.readers[offset];
  uint32_t last_writer = ~0u, last_set = ~0u, next_set = 0;
  for (uint32_t i = 0; i < bytes; ++i) {
    if (writer[i] != last_writer) check_writer(block, a, last_writer = writer[i], offset + i, false);
    if (readers[i] != last_set) next_set = with_reader(machine.readers, machine.reader_keys, last_set = readers[i], a);
    readers[i] = next_set;
  }
}

void write_shared(Block& block, const Access& a, uint32_t offset, uint32_t bytes, uint32_t record) {
  uint32_t* const writer = &block.shadow.writer[offset];
  uint32_t* const readers = &block.shadow.readers[offset];
  uint32_t last_writer = ~0u, last_set = ~0u;
  const Thread& t = *a.threads[0];
  for (uint32_t i = 0; i < bytes; ++i) {
    if (writer[i] != last_writer) check_writer(block, a, last_writer = writer[i], offset + i, true);
    if (readers[i] != last_set)
      for (uint32_t n = last_set = readers[i]; n; n = machine.readers[n].before) {
        const Reader& e = machine.readers[n].reader;
        if (!is_over(t, e.agent, e.time, e.serial))
          fault("race", a.site, "%s at %s by %s overwrites %s, which %s may still be reading (%s): no barrier orders the two",
                a.what, where(a.site).c_str(), thread_name(t).c_str(), shared_name(block, offset + i).c_str(), who(e.agent).c_str(), where(e.site).c_str());
      }
    writer[i] = record;
    readers[i] = 0;
  }
}

void plain_write_shared(Block& block, Thread* thread, const char* what, Site site, uint32_t offset, uint32_t bytes) {
  const Access a = access_of(thread, what, site);
  for (auto it = block.barriers.lower_bound(offset < 7 ? 0 : offset - 7); it != block.barriers.end() && it->first < offset + bytes; ++it)
    fault("misuse", site, "%s at %s overwrites the barrier at %s", what, where(site).c_str(), shared_name(block, it->first).c_str());
  const Record& last = thread->last_shared;
  if (!(thread->last_shared_id && last.site == site && last.time == a.time)) {
    thread->last_shared_id = record_of(a, false, true);
    thread->last_shared = machine.records[thread->last_shared_id];
  }
  write_shared(block, a, offset, bytes, thread->last_shared_id);
  for (uint32_t chunk = offset / 16; chunk <= (offset + bytes - 1) / 16; ++chunk) block.source[chunk] = nullptr;
}

uint32_t shared_offset(const Block& block, uint32_t address, uint32_t bytes, uint32_t alignment, const char* what, Site site) {
  if (address < SHARED_BASE || (uint64_t)address + bytes > (uint64_t)SHARED_BASE + block.shared_bytes)
    fault("out of bounds", site, "%s at %s of %u bytes at shared address 0x%x; the block has 0x%x to 0x%x", what, where(site).c_str(), bytes, address,
          SHARED_BASE, SHARED_BASE + block.shared_bytes);
  if (address % alignment)
    fault("misuse", site, "%s at %s: shared address 0x%x is no multiple of %u", what, where(site).c_str(), address, alignment);
  return address - SHARED_BASE;
}

// The block whose memory a shared::cluster address names; the address becomes an address of that block.
Block& block_of(uint32_t& address, const char* what, Site site) {
  Block& own = *machine.current->block;
  const uint32_t rank = address >> RANK_SHIFT;
  if (rank == 0) return own;
  address &= (1u << RANK_SHIFT) - 1;
  if (rank > own.cluster->size())
    fault("out of bounds", site, "%s at %s: block %u of a cluster of %zu", what, where(site).c_str(), rank - 1, own.cluster->size());
  Block& other = *(*own.cluster)[rank - 1];
  if (!other.live) fault("misuse", site, "%s at %s: block %u of the cluster has already ended", what, where(site).c_str(), rank - 1);
  return other;
}

}  // namespace emu
