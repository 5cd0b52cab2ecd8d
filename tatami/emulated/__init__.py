"""cu -> C++ for an emulated GPU: the targets `emulated-sm80` and `emulated-sm90` (design §3 emulated).

Kernel text touches hardware only through the functions of `cu/header/tatami_ptx.cuh`. This folder has another header with the
same functions, in C++ for the CPU. The unchanged kernel text is compiled against it and runs on numpy arrays. The machine behind
the header watches every access; an asynchronous copy lands as late as it may (docs/emulator.md).

    header/    the functions of the PTX header on the machine
    machine/   the machine: threads, clocks, shadows of memory, barriers, copies, tensor cores
    sources    the texts that are compiled together
    report     what the machine says of a fault, as a diagnostic
    lines      the line table of a shared object: instruction address -> line of kernel text

These files make the machine; `runtime/emulated/` loads it and calls programs on it.
"""
