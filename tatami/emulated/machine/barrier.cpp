// Barriers: of the block, by number, of the cluster, and the counting barriers in shared memory (mbarrier).
#include "machine.h"

namespace emu {

static void open_for(NamedBarrier& n) {
  NamedBarrier done = std::move(n);
  n = NamedBarrier();
  const Knowledge learned = made(done.meeting);
  for (Thread* t : done.waiting) {
    acquire(*t, learned);
    wake(t);
  }
}

static void arrive(NamedBarrier& n, int count, int wanted, bool stays, const char* what, uint32_t id, Site site) {
  count_lane(*machine.current, what, Side::none, 0, 0, site);
  Thread& t = *machine.current;
  if (n.arrived == 0) {
    n.count = count;
    n.site = site;
  } else if (n.count != count) {
    fault("misuse", site, "%s %u at %s counts %d threads, the one at %s %d", what, id, where(site).c_str(), count < 0 ? t.block->live : count,
          where(n.site).c_str(), n.count < 0 ? t.block->live : n.count);
  }
  release(t, n.meeting);
  ++n.arrived;
  if (stays) n.waiting.push_back(&t);
  if (n.arrived == wanted) return open_for(n);
  if (!stays) return;
  t.wait_address = id;
  wait(what, site);
}

void sync_threads(Site site) {
  Block& b = *machine.current->block;
  arrive(b.named[0], -1, b.live, true, "__syncthreads", 0, site);
}

void named_barrier(int id, int count, bool stays, Site site) {
  if (id < 0 || id >= MAX_BARRIERS || count <= 0 || count % 32)
    fault("misuse", site, "barrier %d of %d threads at %s: numbers go to %d, counts are multiples of 32", id, count, where(site).c_str(), MAX_BARRIERS - 1);
  arrive(machine.current->block->named[id], count, count, stays, "bar.sync", (uint32_t)id, site);
}

static int live_threads() {
  int live = 0;
  for (const Block* b : *machine.current->block->cluster) live += b->live;
  return live;
}

void cluster_arrive(Site site) {
  Thread& t = *machine.current;
  if (t.cluster_arrived) fault("misuse", site, "barrier.cluster.arrive at %s, twice without a wait", where(site).c_str());
  count_lane(t, "barrier.cluster.arrive", Side::none, 0, 0, site);
  t.cluster_arrived = true;
  NamedBarrier& n = *t.block->cluster_barrier;
  release(t, n.meeting);
  ++n.arrived;
  n.waiting.push_back(&t);
  if (n.arrived == live_threads()) {
    for (Thread* other : n.waiting) other->cluster_arrived = false;
    open_for(n);
  }
}

void cluster_wait(Site site) {
  Thread& t = *machine.current;
  count_lane(t, "barrier.cluster.wait", Side::none, 0, 0, site);
  if (t.cluster_arrived) wait("barrier.cluster", site);
}

// A barrier of all threads counts those that still run.
void leave_barriers(Thread& t) {
  NamedBarrier& n = t.block->named[0];
  if (n.count == -1 && n.arrived && n.arrived == t.block->live) open_for(n);
  NamedBarrier& c = *t.block->cluster_barrier;
  if (c.arrived && c.arrived == live_threads()) {
    for (Thread* other : c.waiting) other->cluster_arrived = false;
    open_for(c);
  }
}

// ---- mbarrier

Barrier& barrier_at(Block& b, uint32_t address, const char* what, Site site) {
  const uint32_t offset = shared_offset(b, address, 8, 8, what, site);
  auto found = b.barriers.find(offset);
  if (found == b.barriers.end()) fault("misuse", site, "%s at %s on %s, where no barrier was initialised", what, where(site).c_str(), shared_name(b, offset).c_str());
  Barrier& m = found->second;
  const Thread& t = *machine.current;
  if (m.owner != t.agent && machine.clocks.at(t.knows, m.owner) < m.owner_time)
    fault("race", site, "%s at %s on the barrier at %s, which %s initialises at %s, and no barrier orders the two", what, where(site).c_str(),
          shared_name(b, offset).c_str(), who(m.owner).c_str(), where(m.site).c_str());
  return m;
}

void barrier_init(uint32_t address, uint32_t count, Site site) {
  Thread* t = machine.current;
  Block& b = *t->block;
  const uint32_t offset = shared_offset(b, address, 8, 8, "mbarrier.init", site);
  if (count == 0 || count >= 1 << 20) fault("misuse", site, "mbarrier.init at %s with a count of %u", where(site).c_str(), count);
  const Access a = access_of(t, "mbarrier.init", site);
  write_shared(b, a, offset, 8, record_of(a, false, true));
  auto found = b.barriers.find(offset);
  Barrier fresh;
  if (found != b.barriers.end()) {
    fresh.agent = found->second.agent;
    fresh.base = found->second.base + (uint32_t)found->second.phase + 1;
  } else {
    fresh.agent = take_agent(b, "copies that complete on the barrier at " + shared_name(b, offset));
    fresh.base = machine.agent_times[fresh.agent];
  }
  fresh.count = fresh.pending = count;
  fresh.owner = t->agent;
  fresh.owner_time = t->now;
  fresh.site = site;
  b.barriers[offset] = fresh;
  ++t->now;
}

void barrier_invalidate(uint32_t address, Site site) {
  Block& b = *machine.current->block;
  barrier_at(b, address, "mbarrier.inval", site);
  b.barriers.erase(address - SHARED_BASE);
}

void try_complete(Barrier& m) {
  if (m.pending || m.bytes) return;
  ++m.phase;
  m.pending = m.count;
  m.arrived.knows.raise(m.agent, m.base + (uint32_t)m.phase);
  m.done = made(m.arrived);
  for (Thread* t : m.waiting) wake(t);
  m.waiting.clear();
}

void barrier_expect(uint32_t address, uint32_t bytes, Site site) {
  Block& b = block_of(address, "mbarrier.expect_tx", site);
  Barrier& m = barrier_at(b, address, "mbarrier.expect_tx", site);
  m.bytes += bytes;
  if (m.bytes >= 1 << 20) fault("misuse", site, "mbarrier.expect_tx at %s: more than 2^20 bytes in one phase", where(site).c_str());
}

void barrier_arrive(uint32_t address, uint32_t bytes, Site site) {
  Block& b = block_of(address, "mbarrier.arrive", site);
  Barrier& m = barrier_at(b, address, "mbarrier.arrive", site);
  if (!m.pending)
    fault("misuse", site, "mbarrier.arrive at %s: more arrivals at %s than its count %u in one phase", where(site).c_str(), shared_name(b, address - SHARED_BASE).c_str(), m.count);
  m.bytes += bytes;
  if (m.bytes >= 1 << 20) fault("misuse", site, "mbarrier.arrive.expect_tx at %s: more than 2^20 bytes in one phase", where(site).c_str());
  count_lane(*machine.current, "mbarrier.arrive", Side::none, 0, 0, site);
  release(*machine.current, m.arrived);
  --m.pending;
  try_complete(m);
}

void barrier_wait(uint32_t address, uint32_t parity, Site site) {
  Thread& t = *machine.current;
  Block& b = *t.block;
  Barrier& m = barrier_at(b, address, "mbarrier.try_wait", site);
  if (parity > 1) fault("misuse", site, "mbarrier.try_wait at %s for parity %u", where(site).c_str(), parity);
  count_lane(t, "mbarrier.try_wait", Side::none, 0, 0, site);
  const uint64_t before = m.phase;
  while ((m.phase & 1) == parity) {
    m.waiting.push_back(&t);
    t.wait_address = address;
    t.wait_parity = parity;
    wait("mbarrier wait", site);
  }
  if (m.phase > before + 1)
    fault("misuse", site, "the barrier at %s passed %llu phases while a thread waited at %s for one: parities cannot tell them apart",
          shared_name(b, address - SHARED_BASE).c_str(), (unsigned long long)(m.phase - before), where(site).c_str());
  acquire(t, m.done);
}

// The ordinary memory that this thread knows of may from now on be used through the async proxy.
void fence_async(Site) {
  Thread& t = *machine.current;
  t.proxy = machine.clocks.join(t.proxy, machine.clocks.raised(t.knows, t.agent, t.now));
  ++t.now;
}

void fence_barrier_init(Site site) { fence_async(site); }

}  // namespace emu
