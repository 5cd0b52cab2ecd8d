"""runtime: compile, cache, load, bind and launch compiled text on this machine (spec 3 §12; design §3 runtime).

Made from `c.ir.Source` or `cu.ir.Source` and an execution plan.

    building/      text to a loaded library. `compiler` runs as a subprocess by an argument list, in its own process group, and is
                   ended on time; `cache` is addressed by content and checked before use, and damage is a miss; `objects` compiles
                   each distinct unit once, in parallel, and links one shared object; `library` closes it with its last holder
    cpu/           `program`: a loaded program with its ConstPool, memory per tuple of sizes, and calls of the entry; `pool`: the
                   threads, which give every kernel index ranges, so that results do not depend on their number
    cuda/          the same on a GPU, by NVIDIA's driver
    emulated/      the same on the emulated GPU, whose machine is `tatami/emulated/`
    machine/       this machine as a Target: `host` describes it, `calibration` measures its rates
    function       the callable that a user gets: names, checks, sizes; `arrays`, `layouts` convert its arguments
    python_steps   programs with steps in Python (`host_steps`), segment by segment
    reference_program                    numpy with the same interface
    stand_alone    the data of `main.c`
    loaded, cores, memory, python_runs   what several of these share
    communication  exchanges with other processes, for programs that run without PyTorch: `tt.runtime.use_mpi`
"""

from __future__ import annotations

from importlib import import_module

_OFFERED = frozenset({"Collective", "CommunicationError", "Communicator", "Pending", "use_communicator", "use_mpi"})
"""Names of `communication` that `tt.runtime` offers."""


def __getattr__(name: str) -> object:
    if name in _OFFERED:
        found: object = getattr(import_module("tatami.runtime.communication"), name)
        return found
    raise AttributeError(f"module 'tatami.runtime' has no attribute {name!r}")
