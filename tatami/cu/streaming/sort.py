"""A sort kernel as text: its threads call the function of `header/tatami_sort.cuh` for the step (`gpu/stream_ir.py`
SortKernel)."""

from __future__ import annotations

from typing import assert_never

from tatami.core.expr import Expr, ceildiv
from tatami.core.page import page
from tatami.cu.expr_text import STORED_TYPE, block_text, factor_text, index_text
from tatami.gpu.stream_ir import SORT_WAYS, SortKernel
from tatami.gpu.views.folded import is_one_row


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
    lines = k.outer * k.inner
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
                **_block(lines, lines),
            )
        case "tile":
            return page("tatami.cu", "sort_tile.cu").fill(
                **common,
                **_block(lines * ceildiv(k.length, k.tile), lines),
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


def _block(blocks: Expr, lines: Expr) -> dict[str, str]:
    """The blanks BLOCK and LINES of a page for a step of this many blocks and lines."""
    one_row = is_one_row(blocks)
    text = block_text(one_row)
    return {"BLOCK": text if one_row else f"({text})", "LINES": "" if one_row else factor_text(lines)}


def _start(k: SortKernel, length: Expr) -> str:
    """C text of the first element of `line`, for lines of `length` elements."""
    inner = factor_text(k.inner)
    return f"line / {inner} * {factor_text(length)} * {inner} + line % {inner}"
