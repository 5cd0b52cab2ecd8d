"""execution: the instructions of a program, their order and their buffers (spec 4, spec 1 "Program", spec 3 §12).

Made from the realised Regions and the kernels of a code layer (`lower`), or straight from a frontend graph, one
reference operation per node (`from_graph`, spec 4 §3).

Holds: one writer per disjoint slice; definition before use; waves rise across each dependence; inputs are written
only by updates, last; no instruction for an input; live ranges in the arena never overlap.

    program main (x: fp32[B, 64]) -> (y: fp32[B, 8])
      input   n0  fp32[B, 64]
      arena   n3  fp32[B, 64]  use 0..1
      output  n9  fp32[B, 8]
      wave 0
        n3 = k0(n0, n3; B)  # r0
      wave 1
        n9 = k1(n3, n9; B)  # r1

`extents` lets compiled code read the sizes that data decide, `waves` orders, `frames` and `arena` lay out memory for concrete sizes, `run` is target `reference`.
"""
