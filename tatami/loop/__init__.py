"""CPU kernels as loop nests, made from Regions and their plans (spec 1 "SIMD", design §3 loop).

    lower          by the kind of the plan, to a template; `opaque` is a call of a routine
    emit/          expressions to statements: `rename` gives a Region our own names (nothing a user wrote passes this
                   point), `flatten` leaves at most one loop-carried node in a let, `emitter` writes the value of an
                   expression at one point or at neighbouring points
    nests/         template of plain nests: `merge_axes` joins neighbouring axes where no address can tell, `schedule` has
                   phases of parallel loops, passes and storage, `rows` writes the phases, `nest` one pass: loops, lanes,
                   items (`reduces`, `arg_reduces`, `scans`), then `scatters`
    products/      packed panels, micro-kernels and parts of k; square tiles that transpose
    images/        convolutions and windows: rows of an image, planes of channels, Winograd's tiles
    attention/     two products in one pass over the keys
    passes/        statements to better statements with the same bits

Invariants (`verify`): registers have one type and one declaration; a Parallel sees no register from outside and is never
nested; no access leaves its buffer (a guarded read stands in its If, an index tensor is checked, D2.16); the order of
float additions depends on sizes alone, so results are the same for every number of threads.

    kernel tatami_ad2f… (p0: fp32, p1: fp32 out; s0, s1)  # CpuRows
      parallel z_1 < s0, grain max(1, 16384//max(1, s1))
        a2: fp32 = 0
        a3: fp32x16 = splat(0)
        for x_4 = 0 .. 16*(s1//16) by 16 simd
          v5: fp32x16 = p0[s1*z_1 + x_4 : 16]
          a3 = add(a3, v5)
        for x_6 = 16*(s1//16) .. s1
          v7: fp32 = p0[s1*z_1 + x_6]
          a2 = add(a2, v7)
        v8: fp32 = add(a2, across_sum(a3))
        p1[z_1] = v8
"""
