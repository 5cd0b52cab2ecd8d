"""poly_core: facts about one Region, and dependences between Regions that share a buffer (spec 3 §7, spec 5 §4).

Made by `analyse` from the Regions' own maps, so that a Region document needs nothing else. Every field is computed, and
``verify`` computes it again:

- parallel_axes: axes of outputs, without those that a scan runs along and those written at computed positions; reduce_axes;
- tail_axes: axes whose last tile may be partial: m, n and k of a contraction, else the innermost output axis and the reduced
  axes, each unless the widest tile provably divides its extent;
- affine_closed: true if all index expressions have integer coefficients and constant divisors, and nothing is gathered;
- compute_at, per let: whether a tile of its consumers may hold it, with what halo per axis and in bytes;
- min_buffer, buffers: the nearest memory that can hold a value (reg, smem_ring, gmem) and its depth; barrier per architecture;
  bank conflicts, counted bank by bank;
- contractions with the roles of their axes and their epilogue; operations and bytes as expressions over sizes (2*M*N*K for a
  matmul).

A dump::

    region r0 (contraction)
      {"analysis": {"parallel_axes": ["m", "n"], "reduce_axes": ["k"], "tail_axes": ["m", "n", "k"], …}}
    true dependence r0 -> r1 through n10
"""
