"""The wgmma instruction of one shape as a device function: N/2 accumulator operands written out (PTX has no arrays).

Part of the header text: a kernel gets the shapes it uses.
"""

from __future__ import annotations

from typing import Literal

from tatami.core.dtype import DType
from tatami.core.page import page

Form = Literal["shared", "registers", "narrow"]
"""Where operands are: both in shared memory; A in registers; types other than 16 bits, whose operands have no transposed
form."""
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
"""Type of an instruction -> its steps of k."""
KIND = {DType.fp16: "f16", DType.bf16: "bf16", DType.fp32: "tf32", DType.f8e4m3fn: "e4m3", DType.f8e5m2: "e5m2"}
"""Type of an operand -> type of the instruction."""
OPERAND = {"tf32": "float"} | {d: f"tt_{d}" for d in ("f16", "bf16", "e4m3", "e5m2")}
"""Type of an instruction -> its C type in the header."""


def wgmma_function(dtype: str, n: int, form: Form = "shared") -> str:
    """The function of one shape.

    shared: ``tt_wgmma_m64k16<tt_f16, n, TRANS_A, TRANS_B>::run(acc, descA, descB, scale_d)``; dtype is f16 or bf16;

    registers: ``tt_wgmma_m64k16_rs<tt_f16, n, TRANS_B>::run(acc, a, descB, scale_d)`` with a[4];
    narrow: ``tt_wgmma_m64<tt_e4m3, n>::run(acc, descA, descB, scale_d)``, also tf32 (whose type is float) and e5m2.
    """
    count = n // 2
    regs = [f"%{i}" for i in range(count)]
    lines = [", ".join(regs[i : i + 16]) for i in range(0, count, 16)]
    operands = [", ".join(f'"+f"(d[{i}])' for i in range(j, min(j + 8, count))) for j in range(0, count, 8)]
    place = iter(range(count, count + 16))
    a = "{" + ", ".join(f"%{next(place)}" for _ in range(4)) + "}" if form == "registers" else f"%{next(place)}"
    b, scale = f"%{next(place)}", f"%{next(place)}"
    template, name, argument, given, last, immediates = {
        "shared": (
            "int TRANS_A, int TRANS_B",
            f"m64k16<{OPERAND[dtype]}, {n}, TRANS_A, TRANS_B>",
            "tt_u64 a",
            '"l"(a)',
            2,
            ', "n"(TRANS_A), "n"(TRANS_B)',
        ),
        "registers": (
            "int TRANS_B",
            f"m64k16_rs<{OPERAND[dtype]}, {n}, TRANS_B>",
            "const tt_u32 (&a)[4]",
            _A_REGISTERS,
            1,
            ', "n"(TRANS_B)',
        ),
        "narrow": ("", f"m64<{OPERAND[dtype]}, {n}>", "tt_u64 a", '"l"(a)', 0, ""),
    }[form]
    trans = "".join(f", %{next(place)}" for _ in range(last))
    return page("tatami.cu", "wgmma.cuh").fill(
        TEMPLATE=template,
        NAME=name,
        COUNT=count,
        A=argument,
        SCALE=scale,
        N=n,
        DEPTH=DEPTH[dtype],
        TYPE=dtype,
        SUMS=',\\n\\t"\n        "'.join(lines),
        OPERANDS=f"{a}, {b}",
        TRANSPOSED=trans,
        OUTPUTS=",\n          ".join(operands),
        INPUT=given,
        IMMEDIATES=immediates,
    )


_A_REGISTERS = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])'
