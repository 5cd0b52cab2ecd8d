"""plan: how each Region runs, and how each value lies in memory (spec 3 §8, §11, spec 5 §5).

Made from `region`, `poly_core` and a Target by `choose`; equal Regions (modulo names and layout) are planned once. `realise`
then gives the Regions their final layouts, puts conversions at boundaries and packs constant operands in `setup`;
`plan_realised` plans the Regions that this added. Invariants (``verify``, ``verify_plan``):

- one RegionPlan per Region, its last choice without conditions; the choices before it are for sizes that a guard names
  (`guards`);
- a schedule obeys the rules of `loops/schedule.py` (outer axes, passes, storage), which stand there in full;
- tiles fit the registers, vectors the lanes; every refusal has both numbers (InvalidPlan, ResourceExceeded);
- a decision is obeyed or refused; a key that names no Region warns (StaleDecision).

The folders: `views` has what one plan shows by itself, `loops` schedules of plain nests, `cpu` the CPU's templates, `gpu`
products and streams of a GPU, `pairs` two products in one GPU kernel, `simulation` the engine that estimates GPU pipelines,
`memory` layouts, packing and conversions; `block_reduces` rewrites Regions before they are planned, so that reductions begin
in a product if the target can begin them.

A dump::

    region r0  key 8c9dfef5…@cpu:avx512
      plan
        cpu_rows width 16
          parallel for i0
            for i1 by vectors: n1
            for i1 by vectors: n5 (row), n6
            for i1 by vectors: n9
        estimate compute 4.15 us, memory 10.9 us, launch 0.3 us, total 11.2 us  (at M=128, N=128)
      rejected scalar: slower: 123 us against 11.2 us
"""
