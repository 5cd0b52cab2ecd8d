"""Scans of a streaming kernel: each thread has one element of a tile, or neighbours along the line."""

from __future__ import annotations

from tatami.cu.expr_text import SHORT, VALUE_TYPE, Value, factor_text
from tatami.cu.streaming.join import SHARED, join_of, start_of
from tatami.cu.streaming.writer import StreamWriter
from tatami.gpu.stream_ir import Running


def scan_text(t: StreamWriter, p: Running) -> None:
    """Print a scan, tile by tile of the group: each thread's elements, the result of the elements before them, the results."""
    k, l, s = t.k, t.l, p.scan
    d = s.dtype
    kind, join, start = VALUE_TYPE[d], join_of(s.fn, d), start_of(s.fn, d)
    size = factor_text(t.sizes[s.axis])
    before = start if p.start is None else t.converted(t.v.value(p.start), d)
    here = f"{size} - 1 - step" if s.reverse else "step"
    if p.part is not None:
        t.begin(p, p.part)
        l.add(f"const tt_i64 end = {t.part_end(p, p.part, f'(tt_i64){size}')}, count = end - {t.first(p)};")
        size = "count"
        here = "end - 1 - step" if s.reverse else f"{t.first(p)} + step"
    l.add(f"{kind} total = {before};")
    if k.group == 1:
        with t.v.block(f"for (tt_i64 step = 0; step < {size}; ++step)"):
            l.add(f"const tt_i64 {s.axis} = {here};")
            text = t.converted(t.v.value(s.body), d)
            l.add(f"const {kind} next = {join}::join(total, {text});")
            t.store(p.stores, _grid(("total" if s.exclusive else "next", d)))
            l.add("total = next;")
        return
    if p.lane and t.width > 1:
        _scan_lanes(t, p, join, start, size, here)
        return
    with t.v.block(f"for (tt_i64 first = 0; first < {size}; first += {k.group})"):
        l.add("const tt_i64 step = first + member;", f"const tt_i64 {s.axis} = {here};")
        l.add(f"const bool inside = {'live && ' if t.live else ''}step < {size};", f"{kind} own = {start};")
        with t.v.block("if (inside)"):
            l.add(f"own = {t.converted(t.v.value(s.body), d)};")
        l.add(f"{kind} all;", f"const {kind} before = tt_before<{join}, {k.group}>(own, {start}, &all, {SHARED});")
        l.add(f"const {kind} below = {join}::join(total, before);")
        with t.v.block("if (inside)"):
            t.store(p.stores, _grid(("below" if s.exclusive else f"{join}::join(below, own)", d)))
        l.add(f"total = {join}::join(total, all);")


def _scan_lanes(t: StreamWriter, p: Running, join: str, start: str, size: str, here: str) -> None:
    """Each thread has neighbours: their scan starts from the combined result of the threads before it."""
    k, l, n, d = t.k, t.l, t.width, p.scan.dtype
    kind = VALUE_TYPE[d]

    def result() -> Value:
        l.add(f"const {kind} before = below;", f"below = {join}::join(below, own[q]);")
        return _grid(("before" if p.scan.exclusive else "below", d))

    with t.v.block(f"for (tt_i64 first = 0; first < {size}; first += {k.group * n})"):
        l.add(f"const tt_i64 step = first + member * {n};", f"const tt_i64 {p.lane}_0 = {here};")
        l.add(f"const bool inside = {'live && ' if t.live else ''}step < {size};")
        l.add(f"{kind} own[{n}], one = {start}, all;")
        with t.v.block("if (inside)"), t.lanes(p):
            l.add(f"own[q] = {t.converted(t.v.value(p.scan.body), d)};", f"one = {join}::join(one, own[q]);")
        l.add(f"{kind} below = tt_before<{join}, {k.group}>(one, {start}, &all, {SHARED});")
        l.add(f"below = {join}::join(total, below);")
        with t.v.block("if (inside)"):
            t.write_lanes(p, result, reads=False)
        l.add(f"total = {join}::join(total, all);")


def _grid(value: Value) -> Value:
    text, d = value
    return (f"tt_round_{SHORT[d]}({text})" if d in SHORT else text), d
