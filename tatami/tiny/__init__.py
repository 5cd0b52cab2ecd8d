"""tiny: a program as a table of primitive operations (UOps), one per line: movement, elementwise, reduce (spec 2, spec 3 §3).
Made from `frontend` by `lower`, or loaded from a document.

Invariants (``verify``):

- ids are unique, every src is an earlier node: a DAG in topological order (spec 2 §0);
- dtype and shape of each node are those that `infer` gives from its op and operands (spec 2 §3);
- no implicit cast; a REDUCE names its accumulation dtype and removes its axes (spec 2 §3);
- normalised: operands of one op have one shape, CONST is rank 0, constant-only subgraphs stand in `setup`.

`lower` makes the form ``tiny@imported``, and `normalize` turns it into the form ``tiny``, which later layers read.

    lowering/    the rules of `lower`, a file per family of operations        meaning/    parts of `run`: native routines, products
    passes/      the steps of `normalize`                                     loading/    parts of `load`, which reads documents
    checks/      rules of `verify` that others ask too                        views/      facts that a program shows by itself

A dump::

    main(x: fp32[M, K], w: fp32[K, N]) -> y: fp32[M, N] = n7
    n0   INPUT    x                                            fp32[M, K]
    n2   RESHAPE  n0       [M, 1, K]                           fp32[M, 1, K]
    n7   REDUCE   n6       SUM axes=[2] fp32                   fp32[M, N]
"""
