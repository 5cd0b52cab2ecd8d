"""A sort kernel as text: its threads call the function of `header/tatami_sort.cuh` for the step (`gpu/stream_ir.py`
SortKernel)."""

from __future__ import annotations

from typing import assert_never

from tatami.core.expr import Expr
from tatami.core.page import page
from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.gpu.stream_ir import SORT_WAYS, SortKernel


def sort_text(k: SortKernel) -> str:
    """The unit of one step of a sort."""
    params = [
        f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}*{' __restrict__' if p.noalias else ''} {p.name}"
        for p in k.params
    ]
    params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    common: dict[str, str | int] = {
        "SYMBOL": k.face.symbol,
        "PARAMETERS": ", ".join(params),
        "THREADS": k.threads,
        "SHARED": bool(k.shared_bytes),
    }
    length, inner = factor_text(k.length), factor_text(k.inner)
    down = "true" if k.descending else "false"
    match k.step:
        case "line":
            known = k.length.as_int()
            return page("tatami.cu", "sort_line.cu").fill(
                **common,
                BASE=_start(k, k.length),
                TO=_start(k, k.keep),
                ENTRIES="" if known is not None and known <= k.tile else f" + line * {length}",
                TILE=k.tile,
                INNER=index_text(k.inner),
                LENGTH=index_text(k.length),
                DOWN=down,
                KEEP=factor_text(k.keep),
                STEP=inner,
            )
        case "tile":
            return page("tatami.cu", "sort_tile.cu").fill(
                **common,
                LENGTH=length,
                TILE=k.tile,
                LESS=k.tile - 1,
                BASE=_start(k, k.length),
                INNER=index_text(k.inner),
                DOWN=down,
            )
        case "merge":
            return page("tatami.cu", "sort_merge.cu").fill(
                **common,
                LENGTH=length,
                WIDTH=f"s{k.face.sizes - 1}",
                ENTRIES=factor_text(k.outer * k.inner * k.length),
                WAYS=SORT_WAYS,
            )
        case "take":
            return page("tatami.cu", "sort_take.cu").fill(
                **common,
                RESULTS=factor_text(k.outer * k.inner * k.keep),
                KEEP=factor_text(k.keep),
                BASE=_start(k, k.length),
                TO=_start(k, k.keep),
                WAYS=SORT_WAYS,
                TILE=k.tile,
                LENGTH=length,
                STEP=inner,
            )
        case _:
            assert_never(k.step)


def _start(k: SortKernel, length: Expr) -> str:
    """C text of the first element of `line`, for lines of `length` elements."""
    inner = factor_text(k.inner)
    return f"line / {inner} * {factor_text(length)} * {inner} + line % {inner}"
