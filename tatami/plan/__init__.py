"""plan: how each Region runs, and how each value lies in memory (spec 3 §8, §11, spec 5 §5).

Made in three steps. `choose` plans each Region for a Target, from the facts of `poly_core`; Regions that differ in names only
are planned once. `realise` rewrites the Regions as these plans want them: final layouts, conversions at boundaries, constant
operands packed in `setup`. `plan_realised` plans the Regions that `realise` has added. Invariants (``verify``, ``verify_plan``):

- one RegionPlan per Region, its last choice without conditions; the choices before it are for sizes that a guard names
  (`guards`);
- a schedule obeys the rules of `loops/schedule.py` (outer axes, passes, storage);
- tiles fit the registers, vectors the lanes; every refusal has both numbers (InvalidPlan, ResourceExceeded);
- a decision is obeyed or refused; a key that names no Region warns (StaleDecision).

    choose_cpu, cpu_kinds, cpu/              candidates for a CPU, by kind of plan (docs/cpu-plans.md)
    loops/                                   schedules of plain nests: rules, candidates, estimated seconds
    choose_gpu, gpu/, pairs/, simulation/    candidates for a GPU: one product and streams; two products in one kernel; the
                                             engine that estimates their pipelines (docs/gpu-plans.md)
    tuned, tuned_plans/                      tables of plans found by search, per chip
    guards, usual_sizes                      other plans of a Region for other sizes
    decide, key, rename                      plans that a user fixes, and the keys that name Regions
    memory/                                  layouts, packing, conversions
    block_reduces/                           rewrites Regions before they are planned: reductions that begin in a product
    views/                                   what one plan shows by itself, for later layers too

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
