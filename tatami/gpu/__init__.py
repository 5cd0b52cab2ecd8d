"""Kernels for SM80 and SM90: one MMA template per architecture, with parameters from the plan (spec 3 §9, spec 5 §6, D2.13).

Made from Regions and their plans. Tokens state which operations of a kernel are asynchronous, and `verify` proves that

- a TokLoad is consumed by a Wait before anything reads the slot (cp.async groups on SM80, mbarrier phases on SM90);
- a slot is refilled only after its TokFree;
- the epilogue runs on the accumulator after its TokCompute, the store after its TokEpilogue;
- nothing waits for ever, for every trip count and number of tiles;
- exactly the axes of `predicate_tail` are predicated.

    lower          a Region by its plan to a template; `plan_fields` names the plan's field behind each statement
    ir, statement_ir, stream_ir     a program and its launches; statements of products; phases of streams
    products/      one product: bodies for SM80, SM90 and plain threads, TMA descriptors, split k, stream-K
    pairs/         two products, the first of which gives the weights of the second, as in attention, in one kernel
    streaming/     Regions without a product: phases over the points of a group of threads, which is a thread, a part of a warp,
                   a warp or a block; long lines in parts if they are too few to fill the GPU; sorts; custom bodies
    proof/         what `verify` proves: derived work, registers, slots and phases for every trip count
    views/         questions that later layers ask too, such as the rings that a statement fills and reads
    cluster        CTAs that share an operand

How large a tile is and how deep a pipeline is decided one layer up, in `plan/gpu/` and `plan/pairs/`.

    kernel k0(p0: fp16, p1: fp16, p2: fp16, out p3: fp16) sm80 mma tile=[128, 64, 64] stages=2 threads=64
      C[s0, s2] += A * B over s1
      acc = 0
      tA[0] = CpAsync smA[0] of this tile, 8 elements each if m, k inside
      tB[0] = CpAsync smB[0] of this tile, 8 elements each if n, k inside
      CommitGroup
      for k in 0..KB:
        Wait(tA[k], tB[k]) by cp_async_group <= 0 pending
        tFree[k - 1] = SyncThreads
        tA[k + 1] = CpAsync smA[k + 1] of this tile, 8 elements each if m, k inside
        tB[k + 1] = CpAsync smB[k + 1] of this tile, 8 elements each if n, k inside
        CommitGroup
        LdMatrix smA[k] after tA[k]
        LdMatrix.trans smB[k] after tB[k]
        tMMA[k] = Mma acc m16n8k16 x 4 steps fp16_fp32acc
      tE[KB - 1] = Epilogue after tMMA[KB - 1]: v0 = add(acc, p2[n]); v1 = relu(v0)
      StGlobalVec p3[m*s2 + n] = v1, 8 wide if m, n inside after tE[KB - 1]
"""
