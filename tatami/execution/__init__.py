"""execution: the instructions of a program, their order and their buffers (spec 4, spec 1 "Program", spec 3 §12).

Made by `lower` from the realised Regions and the kernels of loop or gpu; for the target `reference` by `from_graph` from the
frontend graph, one operation per node (spec 4 §3). Invariants (``verify``, ``verify_calls``):

- each slice of a buffer has one writer, and is written before it is read;
- an instruction is in a later wave than those that it depends on;
- an input is written only where the signature updates it, after everything has read it;
- two buffers of the arena that live in the same wave do not overlap, unless one takes the other's place.

    waves, beside            order: dependences, waves; kernels of a wave that run in parallel
    frames, arena            memory: a program's slots, and their offsets for the sizes of a call
    in_place, joined         results in the place of an operand, and operands in their place in a concatenation
    extents                  sizes that data decide, read by compiled code
    run                      the meaning in numpy (target `reference`)
    views/                   what later layers ask too: what a reader calls the work of a kernel

A dump::

    program main (x: fp32[B, 64]) -> (y: fp32[B, 8])
      input   n0  fp32[B, 64]
      arena   n3  fp32[B, 64]  use 0..1
      output  n9  fp32[B, 8]
      wave 0
        n3 = k0(n0, n3; B)  # r0
      wave 1
        n9 = k1(n3, n9; B)  # r1
"""
