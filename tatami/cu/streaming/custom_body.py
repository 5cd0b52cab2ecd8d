"""A custom kernel as CUDA text: the user's body as a device function, called once per element of the first result."""

from __future__ import annotations

from tatami.core.custom.verbatim import as_code
from tatami.core.page import page
from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.gpu.ir import BodyKernel


def body_text(k: BodyKernel) -> str:
    """The unit of a custom kernel."""
    params = [
        f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}*{' __restrict__' if p.noalias else ''} {p.name}"
        for p in k.params
    ]
    names = [f"tatami_i{axis}" for axis in range(len(k.points))]
    coordinates: list[str] = []
    for axis, size in reversed(list(enumerate(k.points))):
        coordinates.append(f"const tt_i64 {names[axis]} = point{'' if axis == 0 else f' % {factor_text(size)}'};")
        if axis:
            coordinates.append(f"point /= {factor_text(size)};")
    return page("tatami.cu", "custom_body.cu").fill(
        PREAMBLE=f'#line 1 "preamble"\n{as_code(k.preamble)}\n#line 1 "wrapper"' if k.preamble else "",
        SYMBOL=k.face.symbol,
        BODY_PARAMETERS=", ".join([*params, *(f"const tt_i64 {s.name}" for s in k.sizes), *(f"tt_i64 {n}" for n in names)]),
        COUNTERS=[f"tt_i64 {c} = 0;" for c in k.counters],
        TEXT=f"{as_code(k.text)}\n",
        THREADS=k.threads,
        PARAMETERS=", ".join([*params, *(f"const tt_i64 s{i}" for i in range(k.face.sizes))]),
        POINTS=" * ".join(factor_text(size) for size in k.points) or "1",
        COORDINATES=coordinates,
        ARGUMENTS=", ".join([*(p.name for p in k.params), *(f"(tt_i64)({index_text(s.value)})" for s in k.sizes), *names]),
    )
