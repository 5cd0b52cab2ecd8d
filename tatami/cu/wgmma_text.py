"""The wgmma instruction of one shape as a device function: N/2 accumulator operands written out (PTX has no arrays).

Part of the header text: a kernel gets the shapes it uses.
"""

from __future__ import annotations


def wgmma_function(dtype: str, n: int) -> str:
    """``tt_wgmma_m64k16<tt_f16, n, TRANS_A, TRANS_B>::run(acc, descA, descB, scale_d)``; dtype is f16 or bf16."""
    count = n // 2
    regs = [f"%{i}" for i in range(count)]
    lines = [", ".join(regs[i : i + 16]) for i in range(0, count, 16)]
    a, b, scale, ta, tb = (f"%{count + i}" for i in range(5))
    operands = [", ".join(f'"+f"(d[{i}])' for i in range(j, min(j + 8, count))) for j in range(0, count, 8)]
    body = ',\\n\\t"\n        "'.join(lines)
    outputs = ",\n          ".join(operands)
    return f"""\
template <int TRANS_A, int TRANS_B> struct tt_wgmma_m64k16<tt_{dtype}, {n}, TRANS_A, TRANS_B> {{
  static TT_DEV void run(float (&d)[{count}], tt_u64 a, tt_u64 b, int scale_d) {{
    asm volatile(
        "{{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, {scale}, 0;\\n\\t"
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{"
        "{body}}},\\n\\t{a}, {b}, p, 1, 1, {ta}, {tb};\\n\\t}}"
        : {outputs}
        : "l"(a), "l"(b), "r"(scale_d), "n"(TRANS_A), "n"(TRANS_B));
  }}
}};
"""
