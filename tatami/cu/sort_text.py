"""A sort kernel as text: a block per line calls the sort of `header/tatami_sort.cuh` and writes what is kept."""

from __future__ import annotations

from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.gpu.stream_ir import SortKernel


def sort_text(k: SortKernel) -> str:
    l = Lines()
    l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', '#include "tatami_sort.cuh"', "")
    params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
    params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    inner, length, keep = factor_text(k.inner), factor_text(k.length), factor_text(k.keep)
    l.add(f"TT_KERNEL({k.threads}, 1)", f"{k.face.symbol}({', '.join(params)}) {{")
    l.depth += 1
    l.add(
        "TT_DYNAMIC_SMEM(smem);",
        "const tt_i64 line = tt_block_x();",
        f"const tt_i64 base = line / {inner} * {length} * {inner} + line % {inner};",
        f"const tt_i64 to = line / {inner} * {keep} * {inner} + line % {inner};",
        f"tt_entry* const a = (tt_entry*)p3{_entries(k)};",
        f"tt_entry* const b = (tt_entry*)p4{_entries(k)};",
        f"const tt_entry* const sorted = tt_sorted_line<{k.tile}, {k.threads}>(p0 + base, {index_text(k.inner)}, "
        f"{index_text(k.length)}, {'true' if k.descending else 'false'}, a, b, smem);",
    )
    with l.block(f"for (tt_i64 i = tt_thread(); i < {keep}; i += {k.threads})"):
        l.add(f"p1[to + i * {inner}] = p0[base + sorted[i].at * {inner}];", f"p2[to + i * {inner}] = sorted[i].at;")
    l.depth -= 1
    l.add("}")
    return l.text()


def _entries(k: SortKernel) -> str:
    """Where the line's entries lie in scratch; lines that fit a tile have none."""
    known = k.length.as_int()
    return "" if known is not None and known <= k.tile else f" + line * {factor_text(k.length)}"
