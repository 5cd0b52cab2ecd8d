"""Poly-View: the affine part of a program, for analysis only (spec 3 §5, §7; spec 5 §2).

Made from tiny and indexbook. It holds domains, accesses and facts about edges, but no arithmetic and no isl objects.

* A statement is a value that is computed, not moved. Movement is a part of the accesses of its readers; only movement that needs
  memory of its own is a statement (spec 3 §5.2).
* Guards that follow from the ranges of the axes or from other guards are removed, by isl's gist, coalesce and
  remove_redundancies (spec 3 §5.2).
* A sum of a product of two operands is a ContractionPattern with its axes sorted into roles (spec 3 §5.2, §10(3)).
* A gather or scatter counts as an access to any element along its axis, so that no dependence is missed; calls are excluded
  (spec 3 §5.1).
* Every edge says whether one kernel may hold producer and consumer, with what halo, and if not, by which rule (spec 3 §4.6, §7;
  D2.11).

    extract     statements and edges      patterns    contractions       edges    which edges may fuse, and at what halo
    guards      their reduction           isl_cache   isl objects of one run

    poly_view main
      n8  elementwise  [M, N, K] -> { n8[i0, i1, i2] : 0 <= i0 < M and 0 <= i1 < N and 0 <= i2 < K }
          reads        [M, N, K] -> { n8[i0, i1, i2] -> n0[i0, i2] }
      pattern n9 matmul  m:i0 n:i1 k:r0  lhs n0[i0, r0]  rhs n1[r0, i1]
      edge n9 -> n12  pointwise
"""
