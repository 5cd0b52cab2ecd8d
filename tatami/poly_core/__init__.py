"""poly_core: facts about one Region, and dependences between Regions that share a buffer (spec 3 §7, spec 5 §4).

Made from `region` by `analyse`, from the Regions' own maps; a Region document can be given alone. Every field is computed, and
``verify`` computes it again:

- parallel axes: of outputs, not scanned, not written at computed positions; reduce axes;
- tail axes: m, n, k of a contraction (else the innermost output axis and the reduced ones) unless the widest tile provably
divides their extent;
- affine closure: integer coefficients, constant divisors, no gather;
- compute_at per let: whether its consumers' tile may hold it, at what halo per axis and in bytes;
- least buffers (reg, smem_ring, gmem), barrier per architecture, bank conflicts counted bank by bank;
- contractions with roles of axes and epilogue; operations and bytes as size expressions (2*M*N*K for a matmul).

A dump::

    region r0 (contraction)
      {"analysis": {"parallel_axes": ["m", "n"], "reduce_axes": ["k"], "tail_axes": ["m", "n", "k"], …}}
    true dependence r0 -> r1 through n10
"""
