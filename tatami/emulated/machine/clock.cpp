#include "clock.h"

#include <stddef.h>

#include <algorithm>

namespace emu {

void Clocks::clear() {
  table_.assign(1, {});
  joins_.clear();
  same_.clear();
}

ClockId Clocks::made(const std::vector<uint32_t>& entries) {
  size_t n = entries.size();
  while (n && entries[n - 1] == 0) --n;
  if (!n) return 0;
  uint64_t hash = n;
  for (size_t i = 0; i < n; ++i) hash = (hash ^ entries[i]) * 0x9E3779B97F4A7C15ull;
  auto& candidates = same_[hash];
  for (ClockId c : candidates)
    if (table_[c].size() == n && std::equal(table_[c].begin(), table_[c].end(), entries.begin())) return c;
  table_.emplace_back(entries.begin(), entries.begin() + (ptrdiff_t)n);
  candidates.push_back((ClockId)table_.size() - 1);
  return candidates.back();
}

ClockId Clocks::join(ClockId a, ClockId b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const uint64_t key = (uint64_t)std::min(a, b) << 32 | std::max(a, b);
  auto found = joins_.find(key);
  if (found != joins_.end()) return found->second;
  std::vector<uint32_t> all = table_[a];
  const auto& other = table_[b];
  if (all.size() < other.size()) all.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) all[i] = std::max(all[i], other[i]);
  return joins_[key] = made(all);
}

ClockId Clocks::raised(ClockId c, uint32_t agent, uint32_t time) {
  if (at(c, agent) >= time) return c;
  std::vector<uint32_t> all = table_[c];
  if (all.size() <= agent) all.resize(agent + 1);
  all[agent] = time;
  return made(all);
}

void Gathered::add(const Clocks& clocks, ClockId c) {
  if (c == 0 || c == last) return;
  last = c;
  const auto& other = clocks.entries(c);
  if (entries.size() < other.size()) entries.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) entries[i] = std::max(entries[i], other[i]);
}

void Gathered::raise(uint32_t agent, uint32_t time) {
  if (entries.size() <= agent) entries.resize(agent + 1);
  entries[agent] = std::max(entries[agent], time);
}

}  // namespace emu
