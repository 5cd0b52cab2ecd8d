"""A sort kernel as text: its threads call what `header/tatami_sort.cuh` has for the step (`gpu/stream_ir.py` SortKernel)."""

from __future__ import annotations

from tatami.cu.expr_text import STORED_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.gpu.stream_ir import SORT_WAYS, SortKernel


def sort_text(k: SortKernel) -> str:
    l = Lines()
    l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', '#include "tatami_sort.cuh"', "")
    params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
    params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
    l.add(f"TT_KERNEL({k.threads}, 1)", f"{k.face.symbol}({', '.join(params)}) {{")
    l.depth += 1
    if k.shared_bytes:
        l.add("TT_DYNAMIC_SMEM(smem);")
    {"line": _line, "tile": _tile, "merge": _merge, "take": _take}[k.step](k, l)
    l.depth -= 1
    l.add("}")
    return l.text()


def _line(k: SortKernel, l: Lines) -> None:
    known = k.length.as_int()
    entries = "" if known is not None and known <= k.tile else f" + line * {factor_text(k.length)}"
    l.add("const tt_i64 line = tt_block_x();")
    _places(k, l)
    l.add(
        f"tt_entry* const a = (tt_entry*)p3{entries};",
        f"tt_entry* const b = (tt_entry*)p4{entries};",
        f"const tt_entry* const sorted = tt_sorted_line<{k.tile}, {k.threads}>(p0 + base, {index_text(k.inner)}, "
        f"{index_text(k.length)}, {_down(k)}, a, b, smem);",
    )
    with l.block(f"for (tt_i64 i = tt_thread(); i < {factor_text(k.keep)}; i += {k.threads})"):
        _result(k, l)


def _tile(k: SortKernel, l: Lines) -> None:
    length = factor_text(k.length)
    l.add(
        f"const tt_i64 tiles = ({length} + {k.tile - 1}) / {k.tile}, line = tt_block_x() / tiles;",
        f"const tt_i64 first = tt_block_x() % tiles * {k.tile}, here = tt_min<tt_i64>({length} - first, {k.tile});",
    )
    _places(k, l)
    l.add(
        f"const tt_entry* const sorted = tt_sorted_tile<{k.tile}, {k.threads}>(p0 + base, {index_text(k.inner)}, first, here, "
        f"{_down(k)}, smem);",
        f"tt_entry* const a = (tt_entry*)p1 + line * {length} + first;",
        f"for (tt_i64 i = tt_thread(); i < here; i += {k.threads}) a[i] = sorted[i];",
    )


def _merge(k: SortKernel, l: Lines) -> None:
    length, width = factor_text(k.length), f"s{k.face.sizes - 1}"
    l.add(
        f"const tt_i64 at = (tt_i64)tt_block_x() * {k.threads} + tt_thread();",
        f"if ({width} >= {length} || at >= {factor_text(k.outer * k.inner * k.length)}) return;",
        f"const tt_i64 first = at / {length} * {length};",
        f"tt_merge_entry<{SORT_WAYS}>((const tt_entry*)p0 + first, (tt_entry*)p1 + first, {length}, {width}, at - first);",
    )


def _take(k: SortKernel, l: Lines) -> None:
    keep = factor_text(k.keep)
    l.add(
        f"const tt_i64 at = (tt_i64)tt_block_x() * {k.threads} + tt_thread();",
        f"if (at >= {factor_text(k.outer * k.inner * k.keep)}) return;",
        f"const tt_i64 line = at / {keep}, i = at % {keep};",
    )
    _places(k, l)
    length = factor_text(k.length)
    l.add(
        f"const tt_entry* const sorted = tt_merged<{SORT_WAYS}, {k.tile}>({length}, (const tt_entry*)p3, (const tt_entry*)p4)"
        f" + line * {length};"
    )
    _result(k, l)


def _places(k: SortKernel, l: Lines) -> None:
    inner = factor_text(k.inner)
    l.add(f"const tt_i64 base = line / {inner} * {factor_text(k.length)} * {inner} + line % {inner};")
    if k.step != "tile":
        l.add(f"const tt_i64 to = line / {inner} * {factor_text(k.keep)} * {inner} + line % {inner};")


def _result(k: SortKernel, l: Lines) -> None:
    inner = factor_text(k.inner)
    l.add(f"p1[to + i * {inner}] = p0[base + sorted[i].at * {inner}];", f"p2[to + i * {inner}] = sorted[i].at;")


def _down(k: SortKernel) -> str:
    return "true" if k.descending else "false"
