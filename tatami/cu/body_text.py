"""A custom kernel as CUDA text: the user's body as a device function, called once per element of the first result."""

from __future__ import annotations

from tatami.core.verbatim import as_code
from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.gpu.ir import BodyKernel


def body_text(k: BodyKernel) -> str:
    params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
    coordinates = [f"tatami_i{axis}" for axis in range(len(k.points))]
    l = Lines()
    l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', "")
    if k.preamble:
        l.add('#line 1 "preamble"', as_code(k.preamble), '#line 1 "wrapper"')
    taken = [*params, *(f"const tt_i64 {s.name}" for s in k.sizes), *(f"tt_i64 {c}" for c in coordinates)]
    l.add(f"TT_DEV void {k.face.symbol}_body({', '.join(taken)}) {{")
    l.add(*(f"  tt_i64 {c} = 0;" for c in k.counters))
    l.add("  {", '#line 1 "body"', as_code(k.text), "", '#line 1 "wrapper"', "  }", "}", "")
    sizes = [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    l.add(f"TT_KERNEL({k.threads}, 1)", f"{k.face.symbol}({', '.join([*params, *sizes])}) {{")
    l.depth += 1
    total = " * ".join(factor_text(size) for size in k.points) or "1"
    l.add(f"tt_i64 point = (tt_i64)tt_block_x() * {k.threads} + tt_thread();", f"if (point >= (tt_i64){total}) return;")
    for axis, size in reversed(list(enumerate(k.points))):
        l.add(f"const tt_i64 {coordinates[axis]} = point{'' if axis == 0 else f' % {factor_text(size)}'};")
        if axis:
            l.add(f"point /= {factor_text(size)};")
    given = [*(p.name for p in k.params), *(f"(tt_i64)({index_text(s.value)})" for s in k.sizes), *coordinates]
    l.add(f"{k.face.symbol}_body({', '.join(given)});")
    l.depth -= 1
    l.add("}")
    return l.text()
