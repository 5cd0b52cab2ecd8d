"""The unit of a routine whose body a user wrote: their text in a function of its own, and the wrapper that kernels call.

    #line 1 "body"          errors name the user's own lines
    static void tatami_body(const float* restrict tatami_in0, float* restrict tatami_out0, int64_t tatami_out0_n0)

Under a sanitizer (TATAMI_SANITIZE) each tensor is copied into a block of exactly its size, so that one element too far
is seen, wherever the tensor lies in the arena.
"""

from __future__ import annotations

from tatami.c.c_types import memory_type
from tatami.c.ir import Unit
from tatami.core.verbatim import VerbatimCode, as_code
from tatami.loop.ir import BufferParam, UserRoutine

USER_FILE = "body"
PREAMBLE_FILE = "preamble"
"""The names that the compiler's messages give the user's texts."""

_HEAD = "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n"
_REPORT = """
#ifdef TATAMI_SANITIZE
void __asan_set_error_report_callback(void (*)(const char*));
static volatile int tatami_reported; /* stays: a place is reported once */
static void tatami_report(const char* text) { (void)text; tatami_reported = 1; }
#endif
"""


def user_unit(routine: UserRoutine) -> Unit:
    ports = (*routine.inputs, *routine.outputs)
    params = [_param(p) for p in ports] + [f"const int64_t {s}" for s in routine.sizes]
    unused = "".join(f" (void){name};" for name in (*(p.name for p in ports), *routine.sizes))
    counters = "".join(f"  int64_t {c} = 0; (void){c};\n" for c in routine.counters)
    preamble = f'#line 1 "{PREAMBLE_FILE}"\n{as_code(routine.preamble)}\n\n#line 1 "wrapper"\n' if routine.preamble else ""
    text = (
        f"/* custom kernel */\n{_HEAD}{preamble}{_REPORT}"
        f"static void tatami_body({', '.join(params)}) {{\n {unused}\n{counters}  {{\n"
        f'#line 1 "{USER_FILE}"\n{as_code(routine.text)}\n\n#line 1 "wrapper"\n  }}\n}}\n{_wrapper(routine, ports)}'
    )
    return Unit(VerbatimCode(text), user=True)


def _param(p: BufferParam) -> str:
    return f"{'' if p.written else 'const '}{memory_type(p.dtype)}* restrict {p.name}"


def _wrapper(routine: UserRoutine, ports: tuple[BufferParam, ...]) -> str:
    sizes = [f"integers[{k}]" for k in range(len(routine.sizes))]
    plain = ", ".join([f"buffers[{k}]" for k in range(len(ports))] + sizes)
    exact = ", ".join([f"exact[{k}]" for k in range(len(ports))] + sizes)
    position = {name: k for k, name in enumerate(routine.sizes)}
    copies, backs = [], []
    for k, p in enumerate(ports):
        extents = [f"(size_t)integers[{position[s]}]" for s in routine.sizes if s.startswith(f"{p.name}_n")]
        size = " * ".join([f"sizeof({memory_type(p.dtype)})", *extents])
        copies.append(
            f"  bytes[{k}] = {size};\n  exact[{k}] = malloc(bytes[{k}]);\n  if (!exact[{k}]) return 2;\n"
            f"  if (bytes[{k}]) memcpy(exact[{k}], buffers[{k}], bytes[{k}]);\n"
        )
        backs.append(f"  if (bytes[{k}]) memcpy(buffers[{k}], exact[{k}], bytes[{k}]);\n" if p.written else "")
        backs.append(f"  free(exact[{k}]);\n")
    return (
        f"int {routine.name}(void* const* buffers, const int64_t* integers) {{\n"
        f"  (void)buffers; (void)integers;\n"
        f"#ifdef TATAMI_SANITIZE\n"
        f"  void* exact[{max(len(ports), 1)}];\n  size_t bytes[{max(len(ports), 1)}];\n{''.join(copies)}"
        f"  __asan_set_error_report_callback(tatami_report);\n"
        f"  tatami_body({exact});\n{''.join(backs)}  return tatami_reported ? 6 : 0;\n"
        f"#else\n  tatami_body({plain});\n  return 0;\n#endif\n}}\n"
    )
