// Global memory: the buffers of the program, between zones that nobody may touch, and what happened to them.
#include <string.h>
#include <sys/mman.h>

#include "machine.h"

namespace emu {

constexpr size_t ZONE = 1 << 16;
static std::vector<std::unique_ptr<Buffer>> buffers;  // those that are left go when the library is closed

Buffer::~Buffer() {
  if (mapping) munmap(mapping, mapped);
}

Buffer* find_buffer(const void* p, size_t bytes) {
  for (Buffer* b : machine.active)
    if ((const uint8_t*)p >= b->memory && (const uint8_t*)p + bytes <= b->memory + b->bytes) return b;
  return nullptr;
}

Buffer& need_buffer(const void* p, size_t bytes, const char* what, bool write, Site site) {
  Buffer* b = find_buffer(p, bytes);
  if (!b)
    fault("out of bounds", site, "%s of %zu bytes at %s is out of bounds: %s", what, bytes, where(site).c_str(), global_name(p).c_str());
  if (write && !b->written)
    fault("out of bounds", site, "%s at %s into %s, which the kernel may only read", what, where(site).c_str(), global_name(p).c_str());
  if (machine.launch.overlaps_previous && (write ? b->used_before : b->written_before) && !machine.current->waited_for_grid)
    fault("race", site, "%s at %s touches %s, which the kernel before may still be %s: griddepcontrol.wait is missing", what, where(site).c_str(), global_name(p).c_str(),
          b->written_before ? "writing" : "reading");
  return *b;
}

uint32_t global_record(const Access& a, bool in_flight) {
  machine.global_records.push_back({a.agent, a.time, a.threads[0]->block->serial, a.site, a.what, in_flight, true});
  return (uint32_t)machine.global_records.size() - 1;
}

static void check_writer(const Buffer& b, const Access& a, uint32_t record, size_t offset, bool write) {
  const Record& r = machine.global_records[record];
  if (r.in_flight)
    fault("in flight", a.site, "%s at %s %s %s while the %s issued at %s is still in flight: a wait is missing or comes too early",
          a.what, where(a.site).c_str(), write ? "overwrites" : "reads", global_name(b.memory + offset).c_str(), r.what, where(r.site).c_str());
  const Thread& t = *a.threads[0];
  if (is_over(t, r.agent, r.time, r.serial)) return;
  if (r.serial != t.block->serial)
    fault("race", a.site, "%s at %s %s %s, which another block wrote (%s at %s), and nothing orders the two",
          a.what, where(a.site).c_str(), write ? "overwrites" : "reads", global_name(b.memory + offset).c_str(), r.what, where(r.site).c_str());
  fault("race", a.site, "%s at %s by %s %s %s, written by %s (%s at %s), and no barrier orders the two",
        a.what, where(a.site).c_str(), thread_name(t).c_str(), write ? "overwrites" : "reads", global_name(b.memory + offset).c_str(),
        who(r.agent).c_str(), r.what, where(r.site).c_str());
}

void read_global(Buffer& b, const Access& a, size_t offset, size_t bytes) {
  if (!b.unwritten.empty())
    for (size_t i = offset; i < offset + bytes; ++i)
      if (b.unwritten[i])
        fault("uninitialised", a.site, "%s at %s reads %s, which was never written", a.what, where(a.site).c_str(), global_name(b.memory + i).c_str());
  if (!b.written) return;
  uint32_t last_writer = 0, last_set = ~0u, next_set = 0;
  for (size_t i = offset; i < offset + bytes; ++i) {
    if (b.shadow.writer[i] != last_writer && (last_writer = b.shadow.writer[i])) check_writer(b, a, last_writer, i, false);
    if (b.shadow.readers[i] != last_set) next_set = with_reader(machine.global_readers, machine.global_reader_keys, last_set = b.shadow.readers[i], a);
    b.shadow.readers[i] = next_set;
  }
}

void write_global(Buffer& b, const Access& a, size_t offset, size_t bytes, uint32_t record) {
  uint32_t last_writer = 0, last_set = 0;
  const Thread& t = *a.threads[0];
  for (size_t i = offset; i < offset + bytes; ++i) {
    if (b.shadow.writer[i] != last_writer && (last_writer = b.shadow.writer[i])) check_writer(b, a, last_writer, i, true);
    if (b.shadow.readers[i] != last_set)
      for (uint32_t n = last_set = b.shadow.readers[i]; n; n = machine.global_readers[n].before) {
        const Reader& e = machine.global_readers[n].reader;
        if (!is_over(t, e.agent, e.time, e.serial))
          fault("race", a.site, "%s at %s overwrites %s, which %s may still be reading (%s): nothing orders the two", a.what, where(a.site).c_str(),
                global_name(b.memory + i).c_str(), e.serial == t.block->serial ? who(e.agent).c_str() : "another block", where(e.site).c_str());
      }
    b.shadow.writer[i] = record;
    b.shadow.readers[i] = 0;
  }
  if (!b.unwritten.empty())
    for (size_t i = offset; i < offset + bytes; ++i) b.unwritten[i] = false;
}

// ---- plain accesses, told by the compiler's instrumentation

static void check_held(uint8_t* p, uint32_t bytes, bool write, Site site) {
  for (const Held& h : machine.current->held)
    if (p < h.begin + h.bytes && p + bytes > h.begin && (write || !h.readable))
      fault("in flight", site, "a register of the wgmma issued at %s is %s at %s while it is in flight: wgmma.wait_group is missing or comes too early",
            where(h.site).c_str(), write ? "written" : "read", where(site).c_str());
}

static bool is_module_data(const uint8_t* p);

void touch(uint8_t* p, uint32_t bytes, bool write, bool aligned, Site site) {
  Thread* t = machine.current;
  if (!t) return;
  if (++machine.accesses % (1 << 18) == 0) pause_if_late();
  if ((size_t)(p - t->stack) < STACK_BYTES) {
    if (!t->held.empty()) check_held(p, bytes, write, site);
    return;
  }
  const char* const what = write ? "store" : "load";
  for (Block* b : *t->block->cluster) {
    if ((size_t)(p - b->shared) >= b->shared_bytes) continue;
    const uint32_t offset = (uint32_t)(p - b->shared);
    if (aligned && offset % bytes)
      fault("misuse", site, "%s of %u bytes at %s to %s, which is not aligned to it", what, bytes, where(site).c_str(), shared_name(*b, offset).c_str());
    shared_offset(*b, offset + SHARED_BASE, bytes, 1, what, site);
    if (!b->live) fault("misuse", site, "%s at %s to shared memory of a block of the cluster that has ended", what, where(site).c_str());
    if (write)
      plain_write_shared(*b, t, what, site, offset, bytes);
    else
      read_shared(*b, access_of(t, what, site), offset, bytes);
    count_lane(*t, write ? "st.shared" : "ld.shared", Side::shared, offset, (int)bytes, site);
    return;
  }
  if (!find_buffer(p, bytes) && is_module_data(p)) {
    if (write) fault("misuse", site, "store at %s to a variable that is neither shared nor global memory", where(site).c_str());
    return;
  }
  Buffer& b = need_buffer(p, bytes, what, write, site);
  if (aligned && (uintptr_t)p % bytes)
    fault("misuse", site, "%s of %u bytes at %s to %s, which is not aligned to it", what, bytes, where(site).c_str(), global_name(p).c_str());
  const size_t offset = (size_t)(p - b.memory);
  const Access a = access_of(t, what, site);
  count_lane(*t, write ? "st.global" : "ld.global", Side::global, (uint64_t)p, (int)bytes, site);
  if (!write) return read_global(b, a, offset, bytes);
  const Record& last = t->last_global;
  if (!(t->last_global_id && last.site == site && last.time == a.time)) {
    t->last_global_id = global_record(a, false);
    t->last_global = machine.global_records[t->last_global_id];
  }
  write_global(b, a, offset, bytes, t->last_global_id);
}

void load(void* to, const void* from, int bytes, Site site) {
  touch((uint8_t*)from, (uint32_t)bytes, false, true, site);
  memcpy(to, from, (size_t)bytes);
}

void store(void* to, const void* from, int bytes, Site site) {
  touch((uint8_t*)to, (uint32_t)bytes, true, true, site);
  memcpy(to, from, (size_t)bytes);
}

void grid_dependency_wait(Site) { machine.current->waited_for_grid = true; }

}  // namespace emu

// ---- hooks that the compiler calls before every plain access (-fsanitize=thread, without its runtime)

#define AT (emu::Site{nullptr, (uintptr_t)__builtin_return_address(0)})
#define HOOKS(n)                                                                                                        \
  void __tsan_read##n(void* p) { emu::touch((uint8_t*)p, n, false, true, AT); }                                         \
  void __tsan_write##n(void* p) { emu::touch((uint8_t*)p, n, true, true, AT); }                                         \
  void __tsan_unaligned_read##n(void* p) { emu::touch((uint8_t*)p, n, false, false, AT); }                              \
  void __tsan_unaligned_write##n(void* p) { emu::touch((uint8_t*)p, n, true, false, AT); }                              \
  void __tsan_read_write##n(void* p) { emu::touch((uint8_t*)p, n, false, true, AT), emu::touch((uint8_t*)p, n, true, true, AT); }
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t n) { emu::touch((uint8_t*)p, (uint32_t)n, false, false, AT); }
void __tsan_write_range(void* p, size_t n) { emu::touch((uint8_t*)p, (uint32_t)n, true, false, AT); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  emu::touch((uint8_t*)from, (uint32_t)n, false, false, AT);
  emu::touch((uint8_t*)to, (uint32_t)n, true, false, AT);
  return memcpy(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  emu::touch((uint8_t*)to, (uint32_t)n, true, false, AT);
  return memset(to, value, n);
}
}

// ---- what Python sees of buffers

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int emu_buffer_make(const char* name, size_t bytes) {
  auto b = std::make_unique<emu::Buffer>();
  b->name = name;
  b->bytes = bytes;
  b->mapped = (bytes + 2 * emu::ZONE + 4095) / 4096 * 4096;
  void* mapping = mmap(nullptr, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return -1;
  b->mapping = mapping;
  b->memory = (uint8_t*)b->mapping + emu::ZONE;
  memset(b->memory, 0xff, bytes);
  b->unwritten.assign(bytes, true);
  for (size_t i = 0; i < emu::buffers.size(); ++i)
    if (!emu::buffers[i]) {
      emu::buffers[i] = std::move(b);
      return (int)i;
    }
  emu::buffers.push_back(std::move(b));
  return (int)emu::buffers.size() - 1;
}
EXPORT void* emu_buffer_memory(int id) { return emu::buffers[(size_t)id]->memory; }
EXPORT void emu_buffer_filled(int id, size_t offset, size_t bytes) {
  auto& b = *emu::buffers[(size_t)id];
  if (b.unwritten.empty()) return;
  if (bytes == b.bytes) return b.unwritten.clear();
  for (size_t i = offset; i < offset + bytes; ++i) b.unwritten[i] = false;
}
EXPORT void emu_buffer_drop(int id) { emu::buffers[(size_t)id].reset(); }
// The buffers of the next launch: `written` says which it may write.
EXPORT void emu_use_buffers(const int* ids, const int* written, int count) {
  using namespace emu;
  for (auto& b : buffers)
    if (b) {
      b->used_before = b->active;
      b->written_before = b->active && b->written;
      b->active = b->written = false;
    }
  machine.active.clear();  // some of them may be dropped by now
  for (int i = 0; i < count; ++i) {
    Buffer* b = buffers[(size_t)ids[i]].get();
    b->written |= written[i] != 0;
    if (!b->active) machine.active.push_back(b);
    b->active = true;
  }
  for (Buffer* b : machine.active)
    if (b->written) b->shadow.reset(b->bytes);
    else b->shadow = {};
}

#if defined(__linux__)
#include <link.h>
#endif

namespace emu {

#if defined(__linux__)
struct Own {
  uintptr_t base = 0;
  std::vector<std::pair<const uint8_t*, const uint8_t*>> ranges;
};

static const Own& own() {
  static Own found;
  if (found.ranges.empty())
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {
          Own made{(uintptr_t)info->dlpi_addr, {}};
          bool mine = false;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
            const uint8_t* begin = (const uint8_t*)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            made.ranges.push_back({begin, begin + info->dlpi_phdr[i].p_memsz});
            mine |= (const uint8_t*)&machine >= begin && (const uint8_t*)&machine < begin + info->dlpi_phdr[i].p_memsz;
          }
          if (mine) *(Own*)to = made;
          return mine ? 1 : 0;
        },
        &found);
  return found;
}

uintptr_t load_address() { return own().base; }

// Constants of this library (tables of a kernel) may be read.
static bool is_module_data(const uint8_t* p) {
  for (auto [begin, end] : own().ranges)
    if (p >= begin && p < end) return true;
  return false;
}
#else
uintptr_t load_address() { return 0; }
static bool is_module_data(const uint8_t*) { return false; }
#endif

}  // namespace emu
