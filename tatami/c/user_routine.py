"""The unit of a routine whose body a user wrote: their text in a function of its own, and the wrapper that kernels call.

    #line 1 "body"          errors name the user's own lines
    static void tatami_body(const float* restrict tatami_in0, float* restrict tatami_out0, int64_t tatami_out0_n0)

Under a sanitizer (TATAMI_SANITIZE) each tensor is copied into a block of exactly its size, so that an access one element
beyond is detected, wherever the tensor lies in the arena.
"""

from __future__ import annotations

from tatami.c.ir import Unit
from tatami.c.kernels.c_types import memory_type
from tatami.core.custom.verbatim import VerbatimCode, as_code
from tatami.core.page import page
from tatami.loop.ir import BufferParam, UserRoutine

USER_FILE = "body"
"""Name of the user's body in the compiler's messages."""
PREAMBLE_FILE = "preamble"
"""Name of the user's preamble in the compiler's messages."""


def user_unit(routine: UserRoutine) -> Unit:
    """The unit of a routine whose body a user wrote."""
    ports = (*routine.inputs, *routine.outputs)
    names = (*(p.name for p in ports), *routine.sizes)
    sizes = [f"integers[{k}]" for k in range(len(routine.sizes))]
    preamble = f'#line 1 "{PREAMBLE_FILE}"\n{as_code(routine.preamble)}\n\n#line 1 "wrapper"' if routine.preamble else ""
    text = page("tatami.c", "user_routine.c").fill(
        PREAMBLE=preamble,
        PARAMETERS=", ".join([_param(p) for p in ports] + [f"const int64_t {s}" for s in routine.sizes]),
        UNUSED=" ".join(f"(void){name};" for name in names),
        COUNTERS=[f"int64_t {c} = 0; (void){c};" for c in routine.counters],
        TEXT=f"{as_code(routine.text)}\n",
        NAME=routine.name,
        PORTS=max(len(ports), 1),
        COPIES=_copies(routine, ports),
        EXACT=", ".join([f"exact[{k}]" for k in range(len(ports))] + sizes),
        BACKS=_backs(ports),
        FILE=USER_FILE,
        PLAIN=", ".join([f"buffers[{k}]" for k in range(len(ports))] + sizes),
    )
    return Unit(VerbatimCode(text), user=True)


def _param(p: BufferParam) -> str:
    return f"{'' if p.written else 'const '}{memory_type(p.dtype)}*{' restrict' if p.noalias else ''} {p.name}"


def _copies(routine: UserRoutine, ports: tuple[BufferParam, ...]) -> list[str]:
    """C lines that copy each tensor into a block of exactly its size."""
    position = {name: k for k, name in enumerate(routine.sizes)}
    out: list[str] = []
    for k, p in enumerate(ports):
        extents = [f"(size_t)integers[{position[s]}]" for s in routine.sizes if s.startswith(f"{p.name}_n")]
        out += [
            f"bytes[{k}] = {' * '.join([f'sizeof({memory_type(p.dtype)})', *extents])};",
            f"exact[{k}] = malloc(bytes[{k}]);",
            f"if (!exact[{k}]) return 2;",
            f"if (bytes[{k}]) memcpy(exact[{k}], buffers[{k}], bytes[{k}]);",
        ]
    return out


def _backs(ports: tuple[BufferParam, ...]) -> list[str]:
    """C lines that copy results back and free the blocks."""
    out: list[str] = []
    for k, p in enumerate(ports):
        if p.written:
            out.append(f"if (bytes[{k}]) memcpy(buffers[{k}], exact[{k}], bytes[{k}]);")
        out.append(f"free(exact[{k}]);")
    return out
