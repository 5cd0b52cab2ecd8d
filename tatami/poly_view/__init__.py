"""Poly-View: the affine part of a program, for analysis only (spec 3 §5, §7; spec 5 §2).

Made from tiny and indexbook. It holds domains, accesses and facts about edges, but no arithmetic and no isl objects.

* A statement is a base value; movement exists only where it needs memory of its own (spec 3 §5.2, axis names kept).
* Guards that follow from the ranges of the axes or from each other are removed: gist, coalesce, remove_redundancies (spec 3
§5.2).
* A sum of a product of two operands is a ContractionPattern with its axes sorted into roles (spec 3 §5.2, §10(3)).
* Gathers and scatters are may-accesses of whole axes, so that dependences stay sound; calls are excluded (spec 3 §5.1).
* Every edge says whether one kernel may hold both ends, at what halo, and if not, by which rule (spec 3 §4.6, §7; D2.11).

    poly_view main
      n8  elementwise  [M, N, K] -> { n8[i0, i1, i2] : 0 <= i0 < M and 0 <= i1 < N and 0 <= i2 < K }
          reads        [M, N, K] -> { n8[i0, i1, i2] -> n0[i0, i2] }
      pattern n9 matmul  m:i0 n:i1 k:r0  lhs n0[i0, r0]  rhs n1[r0, i1]
      edge n9 -> n12  pointwise
"""
