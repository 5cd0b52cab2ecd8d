"""indexbook: a side table of tiny: for each value its axes, its domain and the places it reads (spec 3 §4, spec 5 §1).

Made from `tiny` by `analyse`. Invariants (``verify``, the seven MUSTs of spec 3 §4.3):

1. maps are affine with floordiv, never %;
2. axes are named i0, i1, … in order, removed ones r0, r1, …;
3. a broadcast is a constant 0 in the map, never a condition;
4. a reduce records the ids of the axes it removes;
5. an access that is not affine carries `non_scop`;
6. denominators are positive and in lowest terms;
7. movement is composed away and stays simplified.

`analyse` makes it; `compose` follows a chain of movement to its base value, step by step. In a dump `'` marks an axis along which
the value is a broadcast: it has the axis, and no read depends on it. ``|`` stands before reduced axes, `view` before movement.

A dump::

    n6  i0:M i1:N' i2:K                     view x[i0, i2]
    n7  i0:M i1:N i2:K                      x[i0, i2]  w[i2, i1]
    n8  i0:M i1:N | r0:K                    n7[i0, i1, r0]  acc fp32
    n9  i0:M + 2                            n8[i0 - 1] if 0 <= i0 - 1 < M else 0
"""
