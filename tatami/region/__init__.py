"""region: kernels as value SSA, one Region is one kernel (spec 3 §6, spec 5 §3).

Made from `tiny`, `indexbook`, `poly_view` and a Partition by `lower` (form `region@explicit`: BroadcastInDim and Transpose
spelled out), then by `canonicalise` (form `region`: C-CON1, R0-R4, SRNF). `load` reads the documents of spec 3 §6.8.
Invariants (``verify``):

- a let is assigned once and uses earlier lets; axes in an expression are the let's or its reduce's;
- an axis and a size symbol never share a name;
- operands of one op have one dtype; only a product may widen to its accumulator or let (D2.21);
- a Reduce or Scan is the whole expression of its let and has a dtype (AccDtypeMissing); its axes are declared;
- every read is proved inside its tensor, by ranges or by the Within guards around it (UnguardedAccess);
- BroadcastInDim and Transpose have the shape of their let (BroadcastMismatch);
- yields cover their outputs; a scatter updates an input.

Where the guard of an access in a reduce does not hold, the reduce should get the neutral element of its operation (0 in a sum).
Another value is a warning, since a pad may mean it; in a document of the spec's form it is refused (NeutralInvalid).

    fusion/     chooses which values share a kernel             checks/     the rules of `verify`
    form/       makes a Region of them                          meaning/    the numpy meaning: parts of `run`
    rules/      rewrites it to normal form                      loading/    parts of `load`
    views/      facts that one finished Region shows by itself: its kind (`kinds` is the closed list), its key without names
                (`canonical_key`), its form, by which passes derive Regions that names alone tell apart once (`alike`), products,
                images, pairs

Later layers may import `ir`, `walk` (operands, accesses, dtypes) and `views/`.

A dump::

    region r0 (contraction)  m:M n:N | k:K
      in   n0 : fp32[M, K]
      in   n1 : fp32[K, N]
      n9[m, n] : fp32 = sum over k of n0[m, k] * n1[k, n]
      n10[m, n] : fp32 = relu(n9)
      n10 : fp32[M, N] <- n10
"""
