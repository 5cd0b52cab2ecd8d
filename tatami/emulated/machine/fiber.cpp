#include "fiber.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

namespace emu {

static std::vector<uint8_t*> spare;

uint8_t* take_stack() {
  if (!spare.empty()) {
    uint8_t* stack = spare.back();
    spare.pop_back();
    return stack;
  }
  void* p = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (mprotect(p, 4096, PROT_NONE) != 0) {
    munmap(p, STACK_BYTES);
    return nullptr;
  }
  return (uint8_t*)p;
}

void give_stack(uint8_t* stack) { spare.push_back(stack); }

void drop_stacks() {
  for (uint8_t* stack : spare) munmap(stack, STACK_BYTES);
  spare.clear();
}

}  // namespace emu

#if defined(__x86_64__) && !defined(EMU_PORTABLE_FIBERS)

// Callee-saved registers go to the old stack, the new stack's come back. Leaving by a jump instead of a return keeps
// the processor from expecting the wrong address: a third of the time.
asm(R"(.text
.globl emu_switch_stack
.hidden emu_switch_stack
emu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.globl emu_first_step
.hidden emu_first_step
emu_first_step:
  callq *%rbx
  ud2
)");
extern "C" void emu_switch_stack(void** save, void* to);
extern "C" void emu_first_step();

namespace emu {

void prepare(Fiber& fiber, uint8_t* stack, void (*entry)()) {
  uint64_t* top = (uint64_t*)(stack + STACK_BYTES - 64);
  *--top = 0;
  *--top = 0;  // a call leaves the stack aligned
  *--top = (uint64_t)&emu_first_step;
  for (uint64_t saved : {(uint64_t)0, (uint64_t)entry, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0}) *--top = saved;
  fiber.pointer = top;
}

void switch_to(Fiber& from, Fiber& to) { emu_switch_stack(&from.pointer, to.pointer); }

}  // namespace emu

#else

#include <ucontext.h>

namespace emu {

static ucontext_t* context(Fiber& fiber) {
  if (!fiber.pointer) fiber.pointer = calloc(1, sizeof(ucontext_t));
  return (ucontext_t*)fiber.pointer;
}

void prepare(Fiber& fiber, uint8_t* stack, void (*entry)()) {
  // The context lies at the top of the stack that it describes, so that nothing has to be freed.
  fiber.pointer = stack + STACK_BYTES - (sizeof(ucontext_t) + 63) / 64 * 64;
  ucontext_t* c = context(fiber);
  getcontext(c);
  c->uc_stack.ss_sp = stack + 4096;
  c->uc_stack.ss_size = (size_t)((uint8_t*)fiber.pointer - stack) - 4096 - 64;
  c->uc_link = nullptr;
  makecontext(c, entry, 0);
}

void switch_to(Fiber& from, Fiber& to) { swapcontext(context(from), context(to)); }

}  // namespace emu

#endif
