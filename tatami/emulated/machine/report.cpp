// What is said of a fault. The first one ends the launch: what follows from it would only hide it.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "machine.h"

namespace emu {

static std::string formatted(const char* format, ...) __attribute__((format(printf, 1, 2)));
static std::string formatted(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

// `{{file:line}}`, or `{{@address}}` for the reader of the line table to translate.
std::string where(Site site) {
  if (!site.file) return formatted("{{@%llx}}", (unsigned long long)(site.line - 1 - load_address()));
  const char* name = strrchr(site.file, '/');
  return formatted("{{%s:%d}}", name ? name + 1 : site.file, (int)site.line);
}

static std::string block_name(const Block& b) { return formatted("block (%d, %d, %d)", b.index[0], b.index[1], b.index[2]); }

std::string thread_name(const Thread& t) {
  const std::string at = formatted("thread %d (warp %d, lane %d)", t.index, t.index / 32, t.index % 32);
  if (machine.clusters.size() < 2 && t.block->cluster->size() < 2) return at;
  return at + " of " + block_name(*t.block);
}

std::string who(uint32_t agent) {
  for (auto& c : machine.clusters)
    for (Block* b : c->blocks)
      for (auto& t : b->threads)
        if (t->agent == agent) return thread_name(*t);
  return agent < machine.agent_names.size() ? machine.agent_names[agent] : "?";
}

std::string shared_name(const Block& block, uint32_t offset) {
  for (const Label& l : block.labels)
    if (offset >= l.offset && offset < l.offset + l.bytes)
      return formatted("shared byte 0x%x (%s + %u)", offset + SHARED_BASE, l.name, offset - l.offset);
  return formatted("shared byte 0x%x", offset + SHARED_BASE);
}

std::string global_name(const void* p) {
  const Buffer* best = nullptr;
  int64_t distance = INT64_MAX;
  for (const Buffer* b : machine.active) {
    const int64_t before = b->memory - (const uint8_t*)p, after = (const uint8_t*)p - (b->memory + b->bytes) + 1;
    const int64_t d = std::max<int64_t>({before, after, 0});
    if (d < distance) best = b, distance = d;
  }
  if (!best || distance > (1 << 24)) return formatted("address %p, in no buffer", p);
  return formatted("byte %lld of %s (%zu bytes)", (long long)((const uint8_t*)p - best->memory), best->name.c_str(), best->bytes);
}

static void write_report(const char* kind, Site site, const char* format, va_list arguments) {
  if (machine.stopped) return;
  char text[4096];
  vsnprintf(text, sizeof text, format, arguments);
  const Thread* t = machine.current;
  std::string place;
  if (t) place = formatted("thread %d (warp %d, lane %d) of ", t->index, t->index / 32, t->index % 32) + block_name(*t->block);
  machine.report = std::string(kind) + "\x1f" + (site.file || site.line ? where(site) : "") + "\x1f" + place + "\x1f" + text;
  machine.stopped = true;
}

void note(const char* kind, Site site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_report(kind, site, format, arguments);
  va_end(arguments);
}

void fault(const char* kind, Site site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_report(kind, site, format, arguments);
  va_end(arguments);
  Fiber left;
  switch_to(left, machine.scheduler);  // nobody comes back
  __builtin_unreachable();
}

void data_fault(int, Site site) { fault("index", site, "an index points outside its data"); }

// One line per group of threads that wait for the same.
std::string deadlock_text() {
  std::map<std::string, std::vector<int>> waiting;
  for (auto& c : machine.clusters)
    for (Block* b : c->blocks)
      for (auto& owned : b->threads) {
        Thread& t = *owned;
        if (t.done) continue;
        std::string text = t.waits;
        if (!strcmp(t.waits, "mbarrier wait")) {
          uint32_t address = t.wait_address;
          const auto found = b->barriers.find(address - SHARED_BASE);
          const Barrier& m = found->second;
          text += formatted(" at %s on the barrier at %s for the end of a phase of parity %u; it is in phase %llu (parity %d), %u of %u arrivals missing, %lld bytes to come",
                            where(t.wait_site).c_str(), shared_name(*b, address - SHARED_BASE).c_str(), t.wait_parity,
                            (unsigned long long)m.phase, (int)(m.phase & 1), m.pending, m.count, (long long)m.bytes);
        } else if (t.wait_flag) {
          text += formatted(" at %s for a change of %s, which is %u", where(t.wait_site).c_str(), global_name(t.wait_flag).c_str(), t.seen_flag);
        } else if (!strcmp(t.waits, "__syncthreads") || !strcmp(t.waits, "bar.sync")) {
          const NamedBarrier& n = b->named[t.wait_address];
          text += formatted(" %u at %s, %d of %d threads there", t.wait_address, where(t.wait_site).c_str(), n.arrived, n.count > 0 ? n.count : b->live);
        } else {
          text += formatted(" at %s for the others", where(t.wait_site).c_str());
        }
        if (machine.clusters.size() > 1 || c->blocks.size() > 1)
          text = block_name(*b) + ": " + text;
        waiting[text].push_back(t.index);
      }
  std::string out;
  for (const auto& [text, threads] : waiting) {
    out += out.empty() ? "" : "; ";
    out += threads.size() == 1 ? "thread " : "threads ";
    int runs = 0;
    for (size_t i = 0; i < threads.size(); ++runs) {
      size_t j = i;
      while (j + 1 < threads.size() && threads[j + 1] == threads[j] + 1) ++j;
      if (runs == 4) {
        out += ", …";
        break;
      }
      out += formatted(runs ? ", %d" : "%d", threads[i]);
      if (j > i) out += formatted("–%d", threads[j]);
      i = j + 1;
    }
    out += ": " + text;
    if (out.size() > 3000) break;
  }
  return out;
}

}  // namespace emu
