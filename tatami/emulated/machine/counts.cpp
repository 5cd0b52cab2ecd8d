// What the warps of a launch do, counted: instructions, and what they ask of shared and of global memory.
//
// Shared memory has 32 banks of 4 bytes. A turn serves up to 128 bytes, one word of each bank: lanes whose words differ
// but share a bank take further turns. Global memory is read in lines of 128 bytes and written in sectors of 32.
#include <set>

#include "machine.h"

namespace emu {

constexpr int BANKS = 32, TURN_BYTES = 128, LINE_BYTES = 128, SECTOR_BYTES = 32;

Tally& tally_of(const Thread& t, const char* what) { return machine.tallies[{t.index / 32, what}]; }

static int turns(const uint64_t* address, int lanes, int bytes) {
  uint64_t words[BANKS][BANKS];
  int count[BANKS] = {}, most = 1;
  for (int lane = 0; lane < lanes; ++lane)
    for (uint64_t word = address[lane] / 4; word < (address[lane] + (uint64_t)bytes + 3) / 4; ++word) {
      const int bank = (int)(word % BANKS);
      bool known = false;
      for (int i = 0; i < count[bank]; ++i) known |= words[bank][i] == word;
      if (!known) words[bank][count[bank]++] = word;
      if (count[bank] > most) most = count[bank];
    }
  return most;
}

// Of lanes in order, as many at once as a turn has bytes for.
void count_turns(Tally& y, const uint64_t* address, int lanes, int bytes) {
  const int together = bytes <= 4 ? BANKS : bytes < TURN_BYTES ? TURN_BYTES / bytes : 1;
  for (int first = 0; first < lanes; first += together) {
    ++y.turns;
    y.conflicts += (uint64_t)turns(address + first, lanes - first < together ? lanes - first : together, bytes) - 1;
  }
}

static void count_lines(Tally& y, const uint64_t* address, int lanes, int bytes) {
  std::set<uint64_t> lines, sectors;
  for (int lane = 0; lane < lanes; ++lane)
    for (uint64_t at = address[lane] / SECTOR_BYTES; at <= (address[lane] + (uint64_t)bytes - 1) / SECTOR_BYTES; ++at)
      sectors.insert(at), lines.insert(at * SECTOR_BYTES / LINE_BYTES);
  y.lines += lines.size();
  y.sectors += sectors.size();
}

static void count_together(Tally& y, const LaneKey& key, const LaneAccess& access) {
  uint64_t there[32];
  int lanes = 0;
  for (int i = 0; i < 32; ++i)
    if (access.mask >> i & 1) there[lanes++] = access.address[i];
  if (key.side != Side::source) ++y.instructions, y.lanes += (uint64_t)lanes;
  const uint64_t bytes = (uint64_t)lanes * (uint64_t)key.bytes;
  if (key.side == Side::shared) y.shared += bytes, count_turns(y, there, lanes, key.bytes);
  if (key.side == Side::global || key.side == Side::source) y.global += bytes, count_lines(y, there, lanes, key.bytes);
}

// Threads run one after the other: an instruction of a warp is what its lanes do at one place for the same time.
void count_lane(Thread& t, const char* what, Side side, uint64_t address, int bytes, Site site) {
  if (!machine.launch.counts) return;
  Warp& warp = t.block->warps[(size_t)t.index / 32];
  LaneKey key{what, site.line, side, bytes, 0};
  key.nth = t.times[key]++;
  LaneAccess& access = warp.lanes[key];
  access.mask |= 1u << (t.index & 31);
  access.address[t.index & 31] = address;
  if (access.mask != 0xffffffffu) return;
  count_together(tally_of(t, what), key, access);
  warp.lanes.erase(key);
}

// Instructions that some lanes never came to.
void count_open_lanes(const Block& b) {
  for (size_t w = 0; w < b.warps.size(); ++w)
    for (const auto& [key, access] : b.warps[w].lanes) count_together(machine.tallies[{(int)w, key.what}], key, access);
}

void count_warp(Thread** threads, int count, const char* what) {
  if (!machine.launch.counts) return;
  for (int i = 0; i < count; ++i) {
    Tally& y = tally_of(*threads[i], what);
    ++y.lanes;
    if (i == 0 || threads[i]->index / 32 != threads[i - 1]->index / 32) ++y.instructions;
  }
}

// A line per warp and instruction, in the order of the fields of Tally.
static const char* text() {
  machine.report.clear();
  for (const auto& [key, y] : machine.tallies) {
    machine.report += std::to_string(key.first) + "\t" + key.second;
    for (uint64_t n : {y.instructions, y.lanes, y.flops, y.shared, y.turns, y.conflicts, y.global, y.lines, y.sectors}) machine.report += "\t" + std::to_string(n);
    machine.report += "\n";
  }
  return machine.report.c_str();
}

}  // namespace emu

extern "C" __attribute__((visibility("default"))) const char* emu_tallies() { return emu::text(); }
