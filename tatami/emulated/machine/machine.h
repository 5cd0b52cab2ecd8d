// The state of the emulated GPU while one kernel runs.
//
// Resident blocks share one scheduler. A thread runs until it waits; what is asynchronous lands as late as it may, or
// at random moments. The checks ask what is known to have happened before (clock.h), so that they find a fault in any
// schedule, not only in one that makes the numbers wrong.
#pragma once
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "clock.h"
#include "emu.h"
#include "fiber.h"

namespace emu {

constexpr uint32_t SHARED_BASE = 0x400;   // shared address of dynamic byte 0; the first KB belongs to the system
constexpr uint32_t RANK_SHIFT = 24;       // shared::cluster address: rank + 1 above the offset, 0 for the own block
constexpr int MAX_BARRIERS = 16;

// Who wrote a byte last. Record 0 stands for: never written.
struct Record {
  uint32_t agent, time, serial;
  Site site;
  const char* what;
  bool in_flight, generic;
};
struct Reader {
  uint32_t agent, time, serial;
  Site site;
};

// A set of readers is a list from the last one back; nodes are shared. Node 0 ends it.
struct ReaderNode {
  Reader reader;
  uint32_t before;
};

// The history of a range of bytes: a write record and a set of readers each, both interned.
struct Shadow {
  std::vector<uint32_t> writer, readers;
  void reset(size_t bytes) { writer.assign(bytes, 0), readers.assign(bytes, 0); }
};

struct Buffer {
  std::string name;
  uint8_t* memory;
  size_t bytes;
  void* mapping = nullptr;
  size_t mapped = 0;
  std::vector<bool> unwritten;  // empty: all bytes have values
  bool active = false, written = false;
  bool used_before = false, written_before = false;  // by the launch before
  Shadow shadow;

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  ~Buffer();
};

// What passes through a meeting: what is known, what is known through the async proxy, and what is known of other
// clusters. The last is kept apart because agents are used again: what is known of an agent says nothing of those who
// were it before, in clusters that ended.
struct Knowledge {
  ClockId knows = 0, proxy = 0, foreign = 0;
};
struct Meeting {
  Gathered knows, proxy, foreign;
};

struct Thread;
struct Block;

struct Barrier {  // mbarrier
  uint32_t count = 0, pending = 0, agent = 0, base = 0;
  int64_t bytes = 0;
  uint64_t phase = 0;
  Meeting arrived;
  Knowledge done;  // of the last phase that ended
  std::vector<Thread*> waiting;
  uint32_t owner = 0, owner_time = 0, owner_serial = 0;  // who initialised it
  Site site;
};

struct NamedBarrier {
  int count = 0, arrived = 0;  // count -1: all live threads of the block
  Meeting meeting;
  std::vector<Thread*> waiting;
  Site site;
};

// An operation that lanes of a warp, or threads of a warpgroup, do together. Its address is its identity.
struct Collective {
  const char* name;
  void (*run)(Thread** threads, void** arguments, int count, Site);
};

struct WarpMeeting {
  const Collective* op = nullptr;
  uint32_t mask = 0, here = 0;
  Site site;
  void* argument[32];
};
// The memory that an instruction of a lane touches. `source`: the global side of a copy, which is counted where it writes.
enum class Side { none, shared, global, source };

// One place of the text, and how often the lane was there before.
struct LaneKey {
  const char* what;
  uintptr_t line;
  Side side;
  int bytes;
  uint32_t nth;
  bool operator<(const LaneKey& o) const { return std::tie(what, line, side, bytes, nth) < std::tie(o.what, o.line, o.side, o.bytes, o.nth); }
};
// What lanes of a warp touch at one place, each for the same time.
struct LaneAccess {
  uint32_t mask = 0;
  uint64_t address[32];
};
struct Warp {
  std::vector<WarpMeeting> open;
  std::map<LaneKey, LaneAccess> lanes;
};

// What a warp does by one kind of instruction: bytes of shared and of global memory, turns of shared memory without and
// because of bank conflicts, lines and sectors of global memory.
struct Tally {
  uint64_t instructions = 0, lanes = 0, flops = 0, shared = 0, turns = 0, conflicts = 0, global = 0, lines = 0, sectors = 0;
};

struct PendingWgmma {
  Wgmma op;
  float* d[128];
  std::vector<uint32_t> a;  // registers of A, read when the operation is issued: they may not change until it is over
  Site site;
};
struct Warpgroup {
  const Collective* op = nullptr;
  int here = 0;
  Site site;
  void* argument[128];
  std::vector<PendingWgmma> open;
  std::deque<std::vector<PendingWgmma>> groups;
  uint32_t committed = 0, done = 0, agent = 0, base = 0;
  bool fenced = false;
  int registers = 0;
};

// Registers that belong to the hardware until a group is over.
struct Held {
  uint8_t* begin;
  size_t bytes;
  uint32_t group;
  bool readable;
  Site site;
};

struct CopyPiece {
  uint32_t offset;
  const uint8_t* from;
  int size, bytes;
};
struct CopyGroup {
  std::vector<CopyPiece> pieces;
  std::vector<uint32_t> records;
};

struct TensorMap {
  uint64_t magic;
  const uint8_t* memory;
  int element, rank, swizzle;
  int64_t dims[5], strides[5];  // elements; bytes, strides[0] the element
  int box[5];
  int type;                     // of the elements, for reductions: 0 raw, 1 f16, 2 bf16, 3 f32, 4 i32, 5 u32; 6 tf32: loads round to it
  bool im2col;
  int lower[3], upper[3], steps[3], channels, pixels;
};

struct BulkStore {  // shared to global
  const TensorMap* map;
  int at[5];
  uint8_t* to;
  uint32_t from, bytes;
  Reduce reduce;
  std::vector<uint8_t> read;  // what shared memory held when it was read
  uint32_t record;
  Site site;
};
struct BulkGroup {
  std::vector<BulkStore> stores;
  bool is_read = false;
};

struct Label {
  uint32_t offset, bytes;
  const char* name;
};

struct Block {
  int rank, index[3], live, threads_count;
  uint32_t serial;
  std::vector<Block*>* cluster;
  std::vector<uint8_t> raw;
  uint8_t* shared;
  uint32_t shared_bytes;
  Shadow shadow;
  std::vector<const uint8_t*> source;  // per 16 bytes: the global address they came from, null where unknown
  std::map<uint32_t, Barrier> barriers;
  NamedBarrier named[MAX_BARRIERS];
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Label> labels, gathered;
  std::vector<uint32_t> agents;
  NamedBarrier* cluster_barrier;
};

struct Cluster {
  std::vector<Block*> blocks;
  std::vector<std::unique_ptr<Block>> owned;
  NamedBarrier barrier;
};

struct Thread {
  int index;
  uint32_t agent, now;
  Block* block;
  Fiber fiber;
  uint8_t* stack;
  ClockId knows = 0, proxy = 0, foreign = 0;
  bool done = false, blocked = false, waited_for_grid = false, cluster_arrived = false;
  const char* waits = "";
  Site wait_site{};
  uint32_t wait_address = 0, wait_parity = 0;
  ClockId heard = 0, fenced = 0, fenced_foreign = 0;  // from relaxed loads since the last fence; known at the last fence
  const void* wait_flag = nullptr;
  uint32_t seen_flag = 0;
  std::deque<CopyGroup> groups;
  CopyGroup open;
  std::deque<BulkGroup> bulk;
  BulkGroup bulk_open;
  uint32_t bulk_agent = 0, bulk_base = 0, bulk_committed = 0, bulk_done = 0;
  std::vector<Held> held;
  std::map<LaneKey, uint32_t> times;    // that it was at a place
  Record last_shared{}, last_global{};
  uint32_t last_shared_id = 0, last_global_id = 0;
};

struct TmaCopy {
  Thread* copier = nullptr;   // cp.async pieces of a thread that arrive at a barrier when they land
  CopyGroup group;
  const TensorMap* map;       // null: a plain run of bytes
  const uint8_t* from;
  int at[5];
  uint16_t offsets[3];
  uint32_t offset, bytes, barrier, mask;
  Block* issuer;
  uint32_t record[16];
  Site site;
};

struct Launch {
  void (*entry)(void* const*);
  void* const* arguments;
  int grid[3], threads, cluster[3];
  uint32_t shared_bytes;
  int schedule;    // 0: as late as allowed; else the seed of a random one
  bool check_layout, overlaps_previous;
  int resident;    // blocks that the machine holds at the same time
  bool counts;
};

struct Machine {
  Launch launch;
  Thread* current = nullptr;
  Fiber scheduler;
  std::deque<std::unique_ptr<Cluster>> clusters;
  std::deque<Thread*> ready;
  std::vector<TmaCopy> in_flight;
  Clocks clocks;
  std::vector<Record> records, global_records;
  std::vector<ReaderNode> readers, global_readers;
  std::unordered_map<uint64_t, uint32_t> reader_keys, global_reader_keys;
  std::vector<uint32_t> spare_agents, agent_times;
  std::vector<std::string> agent_names;
  std::map<const void*, Meeting> flags;   // what a release at this address made known
  std::vector<Buffer*> active;
  uint32_t serial = 0;
  int64_t next_cluster = 0;
  uint64_t random = 1;
  bool stopped = false, paused = false;
  std::chrono::steady_clock::time_point end;  // when Python wants to look whether the user interrupts
  std::string report;
  uint64_t switches = 0, accesses = 0;
  std::map<std::pair<int, std::string>, Tally> tallies;  // by warp of its block and instruction, if the launch counts
};
extern Machine machine;

// ---- scheduler.cpp
uint64_t random_number();
bool is_random();
void note_source(Block& block, uint32_t offset, const uint8_t* from);
uint32_t take_agent(Block& block, std::string name);
void wait(const char* what, Site site);
void wake(Thread* thread);
void pause_if_late();
void release(Thread& thread, Meeting& meeting);
Knowledge made(const Meeting& meeting);
void acquire(Thread& thread, const Knowledge& knowledge);

// ---- report.cpp
std::string where(Site site);
std::string who(uint32_t agent);
std::string thread_name(const Thread& thread);
std::string shared_name(const Block& block, uint32_t offset);
std::string global_name(const void* p);
void note(const char* kind, Site site, const char* format, ...) __attribute__((format(printf, 3, 4)));
[[noreturn]] void fault(const char* kind, Site site, const char* format, ...) __attribute__((format(printf, 3, 4)));
std::string deadlock_text();

// ---- shadow.cpp
struct Access {
  Thread* const* threads;  // who has to know of earlier writes
  int count;
  uint32_t agent, time;    // who is said to have read or written
  bool async;              // through the async proxy
  Site site;
  const char* what;
};
Access access_of(Thread*& thread, const char* what, Site site);
bool is_over(const Thread& t, uint32_t agent, uint32_t time, uint32_t serial);
uint32_t with_reader(std::vector<ReaderNode>& nodes, std::unordered_map<uint64_t, uint32_t>& keys, uint32_t set, const Access& access);
uint32_t record_of(const Access& access, bool in_flight, bool generic);
void read_shared(Block& block, const Access& access, uint32_t offset, uint32_t bytes);
void write_shared(Block& block, const Access& access, uint32_t offset, uint32_t bytes, uint32_t record);
void plain_write_shared(Block& block, Thread* thread, const char* what, Site site, uint32_t offset, uint32_t bytes);
uint32_t shared_offset(const Block& block, uint32_t address, uint32_t bytes, uint32_t alignment, const char* what, Site site);
Block& block_of(uint32_t& address, const char* what, Site site);

// ---- global.cpp
Buffer* find_buffer(const void* p, size_t bytes);
Buffer& need_buffer(const void* p, size_t bytes, const char* what, bool write, Site site);
void read_global(Buffer& buffer, const Access& access, size_t offset, size_t bytes);
void write_global(Buffer& buffer, const Access& access, size_t offset, size_t bytes, uint32_t record);
uint32_t global_record(const Access& access, bool in_flight);
uintptr_t load_address();  // of this library; addresses in its line table count from there
void touch(uint8_t* p, uint32_t bytes, bool write, bool aligned, Site site);

// ---- counts.cpp
Tally& tally_of(const Thread& thread, const char* what);
void count_turns(Tally& tally, const uint64_t* address, int lanes, int bytes);
void count_lane(Thread& thread, const char* what, Side side, uint64_t address, int bytes, Site site);
void count_warp(Thread** threads, int count, const char* what);
void count_open_lanes(const Block& block);

// ---- warp.cpp
void meet_in_warp(const Collective& op, void* argument, uint32_t mask, Site site);
void leave_meetings(Thread& thread);
void meet_in_warpgroup(const Collective& op, void* argument, Site site);

// ---- barrier.cpp
Barrier& barrier_at(Block& block, uint32_t address, const char* what, Site site);
void try_complete(Barrier& barrier);
void leave_barriers(Thread& thread);

// ---- copy.cpp, tma.cpp, wgmma.cpp
void land(size_t copy);
void land_group(Block& block, const CopyGroup& group, uint32_t time);
void finish_bulk(Thread& thread, size_t keep, bool reads_only);
uint32_t swizzled(uint32_t address, int span);
// Calls f(where coordinate 0 of the row lies, whether the tensor has the row) for each row of the box at `at`, in order.
template <class F> void each_row(const TensorMap& m, const int* at, F f) {
  int64_t rows = 1;
  for (int i = 1; i < m.rank; ++i) rows *= m.box[i];
  for (int64_t n = 0; n < rows; ++n) {
    int64_t rest = n, offset = 0;
    bool inside = true;
    for (int i = 1; i < m.rank; ++i) {
      const int64_t x = at[i] + rest % m.box[i];
      rest /= m.box[i];
      inside &= x >= 0 && x < m.dims[i];
      offset += x * m.strides[i];
    }
    f(m.memory + offset, inside);
  }
}
void check_exit(Thread& thread);

}  // namespace emu
