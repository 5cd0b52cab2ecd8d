// Which thread runs next, which blocks are resident, and when something asynchronous lands.
#include <stdio.h>
#include <string.h>

#include <chrono>

#include "machine.h"

namespace emu {

Machine machine;

uint64_t random_number() {
  machine.random ^= machine.random << 13;
  machine.random ^= machine.random >> 7;
  machine.random ^= machine.random << 17;
  return machine.random;
}

bool is_random() { return machine.launch.schedule != 0; }

int thread_index() { return machine.current->index; }
int block_index(int axis) { return machine.current->block->index[axis]; }
int grid_size(int axis) { return machine.launch.grid[axis]; }
int cluster_rank() { return machine.current->block->rank; }
uint8_t* shared_memory() { return machine.current->block->shared; }

uint32_t shared_address(const void* p, Site site) {
  const Block& b = *machine.current->block;
  const int64_t offset = (const uint8_t*)p - b.shared;
  if (offset < 0 || offset > (int64_t)b.shared_bytes)
    fault("misuse", site, "the shared address of %s is asked for at %s", global_name(p).c_str(), where(site).c_str());
  return SHARED_BASE + (uint32_t)offset;
}

uint32_t address_in(uint32_t address, int rank, Site site) {
  if (rank < 0 || rank >= (int)machine.current->block->cluster->size())
    fault("out of bounds", site, "mapa at %s: block %d of a cluster of %zu", where(site).c_str(), rank, machine.current->block->cluster->size());
  return (address & ((1u << RANK_SHIFT) - 1)) | (uint32_t)(rank + 1) << RANK_SHIFT;
}

void label(uint32_t address, size_t bytes, const char* name) {
  Thread& t = *machine.current;
  if (t.index == 0) t.block->labels.push_back({address - SHARED_BASE, (uint32_t)bytes, name});
}

void gathered(uint32_t address, size_t bytes) {
  Thread& t = *machine.current;
  if (t.index == 0) t.block->gathered.push_back({address - SHARED_BASE, (uint32_t)bytes, ""});
}

// Remembers where 16 bytes of shared memory came from, unless their place follows no formula.
void note_source(Block& b, uint32_t offset, const uint8_t* from) {
  for (const Label& g : b.gathered)
    if (offset >= g.offset && offset < g.offset + g.bytes) from = nullptr;
  b.source[offset / 16] = from;
}

uint32_t take_agent(Block& block, std::string name) {
  uint32_t agent;
  if (machine.spare_agents.empty()) {
    agent = (uint32_t)machine.agent_times.size();
    machine.agent_times.push_back(0);
    machine.agent_names.push_back("");
  } else {
    agent = machine.spare_agents.back();
    machine.spare_agents.pop_back();
  }
  machine.agent_names[agent] = std::move(name);
  block.agents.push_back(agent);
  return agent;
}

void wait(const char* what, Site site) {
  Thread& t = *machine.current;
  t.blocked = true;
  t.waits = what;
  t.wait_site = site;
  ++machine.switches;
  switch_to(t.fiber, machine.scheduler);
}

// A thread that runs on and on without a wait lets Python look once in a while; it goes on where it was.
void pause_if_late() {
  if (std::chrono::steady_clock::now() < machine.end) return;
  machine.paused = true;
  machine.ready.push_front(machine.current);
  switch_to(machine.current->fiber, machine.scheduler);
}

void wake(Thread* t) {
  if (!t->blocked) return;
  t->blocked = false;
  machine.ready.push_back(t);
}

void release(Thread& t, Meeting& m) {
  m.knows.add(machine.clocks, t.knows);
  m.knows.raise(t.agent, t.now);
  m.proxy.add(machine.clocks, t.proxy);
  m.foreign.add(machine.clocks, t.foreign);
  ++t.now;
}

Knowledge made(const Meeting& m) {
  return {machine.clocks.made(m.knows.entries), machine.clocks.made(m.proxy.entries), machine.clocks.made(m.foreign.entries)};
}

void acquire(Thread& t, const Knowledge& k) {
  t.knows = machine.clocks.join(t.knows, k.knows);
  t.proxy = machine.clocks.join(t.proxy, k.proxy);
  t.foreign = machine.clocks.join(t.foreign, k.foreign);
}

// ---- threads and blocks

static void thread_body() {
  machine.launch.entry(machine.launch.arguments);
  Thread& t = *machine.current;
  check_exit(t);
  leave_meetings(t);
  t.done = true;
  --t.block->live;
  leave_barriers(t);
  Fiber left;
  switch_to(left, machine.scheduler);
}

static bool start_block(Cluster& cluster, int rank, const int (&index)[3]) {
  const Launch& l = machine.launch;
  auto made = std::make_unique<Block>();
  Block& b = *made;
  cluster.owned.push_back(std::move(made));
  cluster.blocks.push_back(&b);
  b.rank = rank;
  memcpy(b.index, index, sizeof b.index);
  b.live = b.threads_count = l.threads;
  b.serial = machine.serial;
  b.cluster = &cluster.blocks;
  b.cluster_barrier = &cluster.barrier;
  b.shared_bytes = l.shared_bytes;
  b.raw.assign(l.shared_bytes + 2048, 0xff);
  b.shared = (uint8_t*)(((uintptr_t)b.raw.data() + 1023) & ~(uintptr_t)1023);
  b.shadow.reset(l.shared_bytes);
  b.source.assign(l.shared_bytes / 16 + 1, nullptr);
  b.warps.resize((size_t)(l.threads + 31) / 32);
  b.warpgroups.resize((size_t)l.threads / 128);
  for (size_t i = 0; i < b.warpgroups.size(); ++i) {
    b.warpgroups[i].agent = take_agent(b, "the wgmma of warpgroup " + std::to_string(i));
    b.warpgroups[i].base = machine.agent_times[b.warpgroups[i].agent];
  }
  for (int i = 0; i < l.threads; ++i) {
    auto t = std::make_unique<Thread>();
    t->index = i;
    t->block = &b;
    t->agent = take_agent(b, "");
    t->now = machine.agent_times[t->agent] + 1;
    t->stack = take_stack();
    if (!t->stack) return false;
    prepare(t->fiber, t->stack, thread_body);
    machine.ready.push_back(t.get());
    b.threads.push_back(std::move(t));
  }
  return true;
}

static int64_t cluster_count() {
  const Launch& l = machine.launch;
  return (int64_t)(l.grid[0] / l.cluster[0]) * (l.grid[1] / l.cluster[1]) * (l.grid[2] / l.cluster[2]);
}

static bool admit() {
  const Launch& l = machine.launch;
  if (machine.next_cluster >= cluster_count()) return false;
  const int size = l.cluster[0] * l.cluster[1] * l.cluster[2];
  if (!machine.clusters.empty() && ((int)machine.clusters.size() + 1) * size > l.resident) return false;
  const int64_t n = machine.next_cluster++, nx = l.grid[0] / l.cluster[0], ny = l.grid[1] / l.cluster[1];
  const int at[3] = {(int)(n % nx), (int)(n / nx % ny), (int)(n / nx / ny)};
  auto cluster = std::make_unique<Cluster>();
  ++machine.serial;
  for (int r = 0; r < size; ++r) {
    const int in[3] = {r % l.cluster[0], r / l.cluster[0] % l.cluster[1], r / l.cluster[0] / l.cluster[1]};
    const int index[3] = {at[0] * l.cluster[0] + in[0], at[1] * l.cluster[1] + in[1], at[2] * l.cluster[2] + in[2]};
    if (!start_block(*cluster, r, index)) {
      note("misuse", {}, "there is no memory for the stacks of %d threads", l.threads);
      return false;
    }
  }
  machine.clusters.push_back(std::move(cluster));
  return true;
}

static void end_block(Block& b) {
  if (machine.launch.counts) count_open_lanes(b);
  for (auto& t : b.threads) {
    machine.agent_times[t->agent] = t->now;
    if (t->bulk_agent) machine.agent_times[t->bulk_agent] = t->bulk_base + t->bulk_committed;
    give_stack(t->stack);
  }
  for (Warpgroup& g : b.warpgroups) machine.agent_times[g.agent] = g.base + g.committed;
  for (auto& [offset, m] : b.barriers) machine.agent_times[m.agent] = m.base + (uint32_t)m.phase + 1;
  if (machine.flags.empty())  // else somebody may still learn of them
    machine.spare_agents.insert(machine.spare_agents.end(), b.agents.begin(), b.agents.end());
}

static bool is_over(const Cluster& c) {
  for (const Block* b : c.blocks)
    if (b->live) return false;
  return true;
}

static void retire() {
  for (size_t i = 0; i < machine.clusters.size();) {
    if (!is_over(*machine.clusters[i])) {
      ++i;
      continue;
    }
    for (Block* b : machine.clusters[i]->blocks) {
      for (const TmaCopy& c : machine.in_flight)
        if (c.issuer == b) return note("in flight", c.site, "a block ends while the TMA load issued at %s is in flight", where(c.site).c_str());
      for (auto& [offset, m] : b->barriers)
        if (m.bytes && !machine.stopped)
          return note("misuse", m.site, "the barrier at %s still expects %lld bytes when its block ends", shared_name(*b, offset).c_str(), (long long)m.bytes);
    }
    for (Block* b : machine.clusters[i]->blocks) end_block(*b);
    machine.clusters.erase(machine.clusters.begin() + (ptrdiff_t)i);
  }
  if (machine.clusters.empty()) {
    machine.records.resize(1);
    machine.readers.resize(1);
    machine.reader_keys.clear();
    machine.clocks.clear();  // only what flags say survives the blocks
    for (auto& [address, m] : machine.flags) m.knows.last = m.proxy.last = m.foreign.last = 0;
  }
}

// Nothing can run: what is in flight lands, else another cluster becomes resident, else this is the end.
static bool advance() {
  if (!machine.in_flight.empty()) {
    land(is_random() ? random_number() % machine.in_flight.size() : 0);
    return true;
  }
  retire();
  if (machine.stopped) return false;
  if (admit()) return true;
  if (!machine.clusters.empty() && !machine.stopped)
    note("deadlock", {}, "the threads wait for each other, and nothing is in flight: %s", deadlock_text().c_str());
  return false;
}

static void clean() {
  for (auto& c : machine.clusters)
    for (Block* b : c->blocks) end_block(*b);
  machine.clusters.clear();
  drop_stacks();
  machine.ready.clear();
  machine.in_flight.clear();
  machine.records.assign(1, {});
  machine.global_records.assign(1, {});
  machine.readers.assign(1, {});
  machine.global_readers.assign(1, {});
  machine.reader_keys.clear();
  machine.global_reader_keys.clear();
  machine.flags.clear();
  machine.clocks.clear();
  machine.spare_agents.clear();
  machine.agent_times.assign(1, 0);  // agent 0 is nobody
  machine.agent_names.assign(1, "");
  machine.current = nullptr;
}

// 0: the time is over and the launch is not; 1: it ended well; 2: there is a report.
static int run(double seconds) {
  machine.end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  machine.paused = false;
  for (uint64_t step = 1; !machine.stopped; ++step) {
    if (machine.paused || (step % 4096 == 0 && std::chrono::steady_clock::now() > machine.end)) return 0;
    if (is_random()) {
      if (!machine.in_flight.empty() && random_number() % 64 == 0) land(random_number() % machine.in_flight.size());
      if (random_number() % 256 == 0) admit();
      if (machine.ready.size() > 1 && random_number() % 4 == 0) std::swap(machine.ready[0], machine.ready[random_number() % machine.ready.size()]);
    }
    if (machine.ready.empty()) {
      if (!advance()) break;
      continue;
    }
    machine.current = machine.ready.front();
    machine.ready.pop_front();
    switch_to(machine.scheduler, machine.current->fiber);
    machine.current = nullptr;
  }
  clean();
  return machine.stopped ? 2 : 1;
}

}  // namespace emu

// ---- what Python sees

#define EXPORT extern "C" __attribute__((visibility("default")))

// numbers: grid x 3, threads, cluster x 3, shared bytes, schedule, check layout, overlaps previous, resident blocks, counts
EXPORT void emu_start(void (*entry)(void* const*), void* const* arguments, const int* numbers) {
  using namespace emu;
  clean();
  Launch& l = machine.launch;
  l.entry = entry;
  l.arguments = arguments;
  memcpy(l.grid, numbers, sizeof l.grid);
  l.threads = numbers[3];
  memcpy(l.cluster, numbers + 4, sizeof l.cluster);
  l.shared_bytes = (uint32_t)numbers[7];
  l.schedule = numbers[8];
  l.check_layout = numbers[9] != 0;
  l.overlaps_previous = numbers[10] != 0;
  l.resident = numbers[11];
  l.counts = numbers[12] != 0;
  machine.random = (uint64_t)l.schedule * 0x9E3779B97F4A7C15ull + 1;
  machine.next_cluster = 0;
  machine.serial = 0;
  machine.stopped = false;
  machine.report.clear();
  machine.switches = machine.accesses = 0;
  machine.tallies.clear();
}
EXPORT int emu_run(double seconds) { return emu::run(seconds); }
EXPORT void emu_abandon() { emu::clean(); }
EXPORT const char* emu_report() { return emu::machine.report.c_str(); }
EXPORT uint64_t emu_count(int what) {
  const emu::Machine& m = emu::machine;
  const uint64_t counts[] = {m.switches, m.accesses};
  return counts[what];
}
EXPORT void* emu_tensor_map_make(void) { return new emu::TensorMap(); }
EXPORT void emu_tensor_map_drop(void* map) { delete (emu::TensorMap*)map; }
EXPORT void emu_tensor_map_set(void* to, void* memory, int element, int rank, int swizzle, int type, const int64_t* dims,
                               const int64_t* strides, const int* box) {
  emu::TensorMap& m = *(emu::TensorMap*)to;
  m = {};
  m.magic = 0x7461746d61700001ull;
  m.memory = (const uint8_t*)memory;
  m.element = element;
  m.rank = rank;
  m.swizzle = swizzle;
  m.type = type;
  m.strides[0] = element;
  for (int i = 0; i < rank; ++i) m.dims[i] = dims[i], m.box[i] = box[i];
  for (int i = 1; i < rank; ++i) m.strides[i] = strides[i - 1];
}
EXPORT void emu_tensor_map_im2col(void* to, const int* lower, const int* upper, const int* steps, int channels, int pixels) {
  emu::TensorMap& m = *(emu::TensorMap*)to;
  m.im2col = true;
  for (int i = 0; i < m.rank - 2; ++i) m.lower[i] = lower[i], m.upper[i] = upper[i], m.steps[i] = steps[i];
  m.channels = channels;
  m.pixels = pixels;
}
