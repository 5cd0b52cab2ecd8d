"""runtime: compile, cache, load, bind and launch compiled text on this machine.

Made from: `c.ir.Source` or `cu.ir.Source` and an execution plan. The compiler is a subprocess run by argument list, in
its own process group, ended on time (`building/compiler`). The cache is addressed by content and checked before use: damage is
a miss (`building/cache`). Each distinct unit is compiled once, in parallel, and linked into one shared object
(`building/objects`), which is closed with its last holder (`building/library`). The thread pool stays: it gives every kernel
index ranges, and results do not depend on the number of threads (`cpu/pool`). `machine/host` is this machine as a Target
(spec 3 §12; design §3 runtime).

`cpu/program` is a loaded program: ConstPool, memory per tuple of sizes, calls of the entry; `python_steps` runs programs
with steps in Python (`host_steps`) segment by segment; `reference_program` is numpy with the same interface. `function` is
the caller's object; `arrays` converts arrays from and to the caller's kind. `stand_alone` writes the data of `main.c`.
"""
