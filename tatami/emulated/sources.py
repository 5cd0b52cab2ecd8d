"""Texts that are compiled for a program: the machine's own files, and each kernel with the entry that a launch calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from tatami.cu.ir import Unit

MACHINE_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-w")
"""Compiler flags for the machine, which is not watched and therefore optimised."""
KERNEL_FLAGS = (
    "-std=c++17",
    "-O1",
    "-g1",
    "-gdwarf-4",
    "-ffp-contract=off",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",
    "-fsanitize=thread",
)
"""Compiler flags for kernel text. -fsanitize=thread makes the compiler call a hook before every access; the machine defines
the hooks, and nothing is linked with the sanitizer. Function entries need none."""
CLOSED_WHEN_DROPPED = {"gcc": ("-fno-gnu-unique",)}
"""Compiler -> further flags of both, so that a library can be closed: gcc makes tables in the standard library's headers
symbols of the whole process, which would keep the library mapped."""
NO_ENTRY_HOOKS = {
    "gcc": ("--param", "tsan-instrument-func-entry-exit=0"),
    "clang": ("-mllvm", "-tsan-instrument-func-entry-exit=0"),
    "zig": ("-mllvm", "-tsan-instrument-func-entry-exit=0", "-fno-sanitize=undefined"),
}
"""Compiler -> flags that leave out the sanitizer's hooks at function entry and exit."""


@lru_cache(maxsize=1)
def machine_files() -> Mapping[str, str]:
    """The machine's files, name -> text."""
    folder = files("tatami.emulated") / "machine"
    return {f.name: f.read_text() for f in sorted(folder.iterdir(), key=lambda f: f.name)}


def machine_text() -> str:
    """All of the machine as one translation unit, which reads the standard library's headers once: half the time."""
    return "".join(f'#include "{name}"\n' for name in machine_files() if name.endswith(".cpp"))


def kernel_headers(shared: Mapping[str, str]) -> Mapping[str, str]:
    """Headers that kernel text includes, name -> text: the emulated PTX header, and the arithmetic `shared` with the GPU."""
    own = (files("tatami.emulated") / "header" / "tatami_ptx.cuh").read_text()
    return {**shared, "tatami_ptx.cuh": own, "emu.h": machine_files()["emu.h"]}


def kernel_text(unit: Unit) -> str:
    """The text of one kernel as C++: its own, unchanged, and the entry that a launch calls."""
    return f'#line 1 "{unit.symbol}.cu"\n{unit.text}\nTT_ENTRY({unit.symbol})\n'
