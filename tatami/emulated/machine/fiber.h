// A CUDA thread runs on a stack of its own and leaves it only where it waits.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emu {

constexpr size_t STACK_BYTES = 256 << 10;

struct Fiber {
  void* pointer = nullptr;  // saved stack pointer, or a context
};

uint8_t* take_stack();              // its lowest page cannot be touched
void give_stack(uint8_t* stack);    // for the next thread of the launch
void drop_stacks();                 // after it: a process has some ten thousand mappings for all its machines together
void prepare(Fiber& fiber, uint8_t* stack, void (*entry)());
void switch_to(Fiber& from, Fiber& to);

}  // namespace emu
