"""cu -> C++ for an emulated GPU: the targets `emulated-sm80` and `emulated-sm90` (design §3 emulated).

Kernel text touches hardware only through `cu/header/tatami_ptx.cuh`. Here is a second header with the same functions:
the unchanged text compiles as C++ against it and runs on numpy arrays, on a machine with adversarial timing that
watches every access (docs/emulator.md).

    header/    the functions of the PTX header on the machine
    machine/   the machine: threads, clocks, shadows of memory, barriers, copies, tensor cores
    sources    the texts that are compiled together
    report     what the machine says of a fault, as a diagnostic
    lines      the line table of a shared object: instruction address -> line of kernel text
"""
