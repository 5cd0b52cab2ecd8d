// Flags and counters in global memory, by which blocks wait for each other.
#include <string.h>

#include "machine.h"

namespace emu {

// Atomics race with nobody; ordinary accesses to the same bytes still do.
static void check(void* p, bool write, const char* what, Site site) {
  Buffer& b = need_buffer(p, 4, what, write, site);
  const size_t offset = (size_t)((uint8_t*)p - b.memory);
  if ((uintptr_t)p % 4) fault("misuse", site, "%s at %s to %s, which is not aligned to it", what, where(site).c_str(), global_name(p).c_str());
  for (size_t i = offset; i < offset + 4 && !b.unwritten.empty(); ++i)
    if (b.unwritten[i]) fault("uninitialised", site, "%s at %s reads %s, which was never written", what, where(site).c_str(), global_name(p).c_str());
  Thread& t = *machine.current;
  if (!b.written) return;
  const uint32_t record = b.shadow.writer[offset];
  if (!record) return;
  const Record& r = machine.global_records[record];
  if (r.in_flight || !is_over(t, r.agent, r.time, r.serial))
    fault("race", site, "%s at %s on %s, written by an ordinary %s at %s, and nothing orders the two", what, where(site).c_str(), global_name(p).c_str(), r.what,
          where(r.site).c_str());
}

static void learn(const void* p, Order order) {
  auto found = machine.flags.find(p);
  if (found == machine.flags.end()) return;
  Thread& t = *machine.current;
  const Knowledge told = made(found->second);
  if (order == Order::acquire || order == Order::acquire_release)
    acquire(t, {told.knows, 0, told.foreign});
  else
    t.heard = machine.clocks.join(t.heard, told.foreign);
}

static void teach(const void* p, Order order) {
  Thread& t = *machine.current;
  Meeting& flag = machine.flags[p];
  const bool releases = order == Order::release || order == Order::acquire_release;
  const ClockId told = releases ? machine.clocks.raised(t.knows, t.agent, t.now) : t.fenced;
  for (Gathered* g : {&flag.knows, &flag.foreign}) g->add(machine.clocks, told);
  flag.foreign.add(machine.clocks, releases ? t.foreign : t.fenced_foreign);
  if (releases) ++t.now;
  t.wait_flag = nullptr;
  for (auto& c : machine.clusters)
    for (Block* b : c->blocks)
      for (auto& other : b->threads)
        if (other->blocked && other->wait_flag == p) wake(other.get());
}

static uint32_t changed(uint32_t old, uint32_t value, Change change) {
  if (change == Change::add) return old + value;
  if (change == Change::max) return old > value ? old : value;
  float x, y;
  memcpy(&x, &old, 4);
  memcpy(&y, &value, 4);
  x += y;
  memcpy(&old, &x, 4);
  return old;
}

uint32_t atomic(void* p, uint32_t value, Change change, Order order, Site site) {
  check(p, true, "atomic", site);
  count_lane(*machine.current, "atom", Side::global, (uint64_t)p, 4, site);
  learn(p, order);
  uint32_t old;
  memcpy(&old, p, 4);
  value = changed(old, value, change);
  memcpy(p, &value, 4);
  teach(p, order);
  return old;
}

uint32_t compare_and_swap(void* p, uint32_t expected, uint32_t wanted, Order order, Site site) {
  check(p, true, "atomic", site);
  Thread& t = *machine.current;
  count_lane(t, "atom", Side::global, (uint64_t)p, 4, site);
  uint32_t old;
  memcpy(&old, p, 4);
  while (old != expected && t.wait_flag == p && t.seen_flag == old) {  // it spins: others have to run
    wait("waits", site);
    memcpy(&old, p, 4);
  }
  learn(p, order);
  if (old == expected) {
    memcpy(p, &wanted, 4);
    teach(p, order);
  } else {
    t.wait_flag = p;
    t.seen_flag = old;
  }
  return old;
}

// Who reads the same value of a flag twice waits for it to change: a thread that spins would keep the others from running.
uint32_t load_flag(const void* p, Order order, Site site) {
  Thread& t = *machine.current;
  check((void*)p, false, "load of a flag", site);
  count_lane(t, "ld.global of a flag", Side::global, (uint64_t)p, 4, site);
  uint32_t value;
  memcpy(&value, p, 4);
  while (t.wait_flag == p && t.seen_flag == value) {
    wait("waits", site);
    memcpy(&value, p, 4);
  }
  t.wait_flag = p;
  t.seen_flag = value;
  learn(p, order);
  return value;
}

void store_flag(void* p, uint32_t value, Order order, Site site) {
  Buffer& b = need_buffer(p, 4, "store of a flag", true, site);
  count_lane(*machine.current, "st.global of a flag", Side::global, (uint64_t)p, 4, site);
  memcpy(p, &value, 4);
  const size_t offset = (size_t)((uint8_t*)p - b.memory);
  for (size_t i = offset; i < offset + 4 && !b.unwritten.empty(); ++i) b.unwritten[i] = false;
  teach(p, order);
}

// Relaxed stores from here on pass on what is known now; relaxed loads before it count as seen now.
void fence_device(Site) {
  Thread& t = *machine.current;
  t.knows = machine.clocks.join(t.knows, t.heard);
  t.foreign = machine.clocks.join(t.foreign, t.heard);
  t.fenced = machine.clocks.raised(t.knows, t.agent, t.now);
  t.fenced_foreign = t.foreign;
  ++t.now;
}

}  // namespace emu
