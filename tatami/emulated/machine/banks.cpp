// Shared memory has 32 banks of 4 bytes. A turn serves up to 128 bytes, one word of each bank: lanes whose words differ
// but share a bank take further turns.
#include "machine.h"

namespace emu {

constexpr int BANKS = 32, TURN_BYTES = 128;

static int turns(const uint32_t* address, int lanes, int bytes) {
  uint32_t words[BANKS][BANKS];
  int count[BANKS] = {}, most = 1;
  for (int lane = 0; lane < lanes; ++lane)
    for (uint32_t word = address[lane] / 4; word < (address[lane] + (uint32_t)bytes + 3) / 4; ++word) {
      const int bank = (int)(word % BANKS);
      bool known = false;
      for (int i = 0; i < count[bank]; ++i) known |= words[bank][i] == word;
      if (!known) words[bank][count[bank]++] = word;
      if (count[bank] > most) most = count[bank];
    }
  return most;
}

// Of lanes in order, as many at once as a turn has bytes for.
void count_turns(const uint32_t* address, int lanes, int bytes) {
  const int together = bytes > 4 ? TURN_BYTES / bytes : BANKS;
  for (int first = 0; first < lanes; first += together) {
    ++machine.bank_turns;
    machine.bank_conflicts += (uint64_t)turns(address + first, lanes - first < together ? lanes - first : together, bytes) - 1;
  }
}

static void count_read(const WarpRead& read, int bytes) {
  uint32_t there[32];
  int lanes = 0;
  for (int i = 0; i < 32; ++i)
    if (read.mask >> i & 1) there[lanes++] = read.address[i];
  count_turns(there, lanes, bytes);
}

// Threads run one after the other: what a warp reads at once is what its lanes read at one place for the same time.
void note_read(Thread& t, uint32_t address, int bytes, Site site) {
  Warp& warp = t.block->warps[(size_t)t.index / 32];
  const uintptr_t place = site.line * 32 + (uintptr_t)bytes;
  auto at = warp.reads.try_emplace({place, t.reads[place]++}).first;
  at->second.mask |= 1u << (t.index & 31);
  at->second.address[t.index & 31] = address;
  if (at->second.mask != 0xffffffffu) return;
  count_read(at->second, bytes);
  warp.reads.erase(at);
}

// Reads that some lanes never came to.
void count_open_reads(const Block& b) {
  for (const Warp& warp : b.warps)
    for (const auto& [key, read] : warp.reads) count_read(read, (int)(key.first % 32));
}

}  // namespace emu
