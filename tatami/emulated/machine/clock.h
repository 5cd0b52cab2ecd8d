// Vector clocks, interned: threads that know the same share one. An agent is whoever acts in an order of its own: a
// thread, the wgmma unit of a warpgroup, the copies that complete on one barrier. Entry `agent` of a clock is the last
// moment of that agent that is known to be over.
#pragma once
#include <stdint.h>

#include <unordered_map>
#include <vector>

namespace emu {

using ClockId = uint32_t;  // 0: nothing is known

class Clocks {
 public:
  Clocks() { clear(); }
  void clear();
  uint32_t at(ClockId c, uint32_t agent) const { return agent < table_[c].size() ? table_[c][agent] : 0; }
  const std::vector<uint32_t>& entries(ClockId c) const { return table_[c]; }
  ClockId join(ClockId a, ClockId b);
  ClockId raised(ClockId c, uint32_t agent, uint32_t time);
  ClockId made(const std::vector<uint32_t>& entries);

 private:
  std::vector<std::vector<uint32_t>> table_;
  std::unordered_map<uint64_t, ClockId> joins_;
  std::unordered_map<uint64_t, std::vector<ClockId>> same_;
};

// What a barrier learns from those who arrive.
struct Gathered {
  std::vector<uint32_t> entries;
  ClockId last = 0;
  void add(const Clocks& clocks, ClockId c);
  void raise(uint32_t agent, uint32_t time);
};

}  // namespace emu
