"""A streaming kernel as text: the point of this thread or group, then its phases.

    const tt_i64 i0 = point;
    float f0 = -inf;
    for (i1 = member * 4; i1 < s0; i1 += 32 * 4) f0 = max of f0 and four lanes
    f0 = tt_joined<tt_most, 32>(f0, smem);

If vectors need sizes that are multiples of the width, the kernel has two forms: with vectors, and one element at
a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import assert_never

from tatami.core.algebra.visit import substitute
from tatami.core.expr import var
from tatami.cu.expr_text import SHORT, STORED_TYPE, VALUE_TYPE, block_text, constant_text, factor_text, index_text
from tatami.cu.streaming.join import SHARED, join_of, start_of
from tatami.cu.streaming.scan import scan_text
from tatami.cu.streaming.writer import ARG_JOIN, StreamWriter, result_dtype
from tatami.gpu.stream_ir import Fold, Running, StreamKernel, Tile, Write
from tatami.gpu.views.folded import blocks_of, is_one_row
from tatami.region.ir import Read, Ref


def stream_text(kernel: StreamKernel) -> str:
    """The unit of a streaming kernel."""
    return StreamText(kernel).text()


class StreamText(StreamWriter):
    """The printer of a kernel: statements for one form of it at a time."""

    def text(self) -> str:
        """The text of the unit, in all forms."""
        k, l = self.k, self.l
        l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', '#include "tatami_stream.cuh"', "")
        params = [
            f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}*{' __restrict__' if p.noalias else ''} {p.name}"
            for p in k.params
        ]
        params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
        l.add(f"TT_KERNEL({k.threads}, 1)", f"{k.face.symbol}({', '.join(params)}) {{")
        l.depth += 1
        if k.shared_bytes:
            l.add(f"TT_DYNAMIC_SMEM({SHARED});")
        even = " && ".join(f"{factor_text(e)} % {k.width} == 0" for e in k.even)
        forms: list[tuple[str, int, bool]] = [(even, k.width, False)]
        if k.kept:
            row = next(p for p in k.phases if p.axes)
            fits = f"{factor_text(self.sizes[row.axes[0]])} <= {k.turns * k.group * k.width}"
            sure = self.sizes[row.axes[0]].as_int() is not None
            forms = [(" && ".join(c for c in (even, "" if sure else fits) if c), k.width, True), *([] if sure else forms)]
        if even:
            forms.append(("", 1, False))
        self.choice(forms)
        l.depth -= 1
        l.add("}")
        return l.text()

    def choice(self, forms: list[tuple[str, int, bool]]) -> None:
        """Print the first form whose condition holds: (condition, width, True if rows are kept in registers); the last has
        none."""
        (when, width, self.keeps), *others = forms
        if not when:
            self.body(width)
            return
        l = self.l
        with l.block(f"if ({when})", "} else {"):
            self.body(width)
        l.depth += 1
        self.choice(others)
        l.depth -= 1
        l.add("}")

    # -- place of this thread ----------------------------------------------------------------------
    def body(self, width: int) -> None:
        """Print one form: the point of this thread or group, then the phases."""
        k, l = self.k, self.l
        self.width = width
        self.v = self.values()
        total = " * ".join(factor_text(a.size) for a in k.points) or "1"
        if k.tile is not None:
            self.live = ""
            self.tiled(k.tile)
            return
        if k.across:
            beside = k.threads // k.group
            l.add(f"const int member = tt_thread() / {beside};")
            first = f"{self.block(wide=True)} * {beside * k.width}"
            self.live = "live"
            with self.v.block(f"for (int turn = 0; turn < {k.width}; ++turn)") if width < k.width else nullcontext():
                at = f"turn * {beside} + tt_thread() % {beside}" if width < k.width else f"tt_thread() % {beside} * {width}"
                l.add(f"tt_i64 point = {first} + {at};", f"const bool live = point < (tt_i64){total};", "if (!live) point = 0;")
                self.place()
                self.phases()
            return
        if k.group > 1:
            per_block = k.threads // k.group
            which = self.block() if per_block == 1 else f"{self.block(wide=True)} * {per_block} + tt_thread() / {k.group}"
            l.add(f"const int member = tt_thread(){f' % {k.group}' if per_block > 1 else ''};")
            if per_block == 1:
                l.add(*([f"const tt_i64 point = {which};"] if k.points else []))
                l.add(*([] if is_one_row(blocks_of(k)) else [f"if (point >= (tt_i64){total}) return;"]))
                self.live = ""
            else:
                l.add(f"tt_i64 point = {which};", f"const bool live = point < (tt_i64){total};", "if (!live) point = 0;")
                self.live = "live"
            self.place()
            self.phases()
            return
        self.live = ""
        first = f"(tt_i64)tt_block_x() * {k.threads * k.width}"
        if width == k.width:
            each = "tt_thread()" if width == 1 else f"tt_thread() * {width}"
            l.add(f"const tt_i64 point = {first} + {each};", f"if (point >= (tt_i64){total}) return;")
            self.place()
            self.phases()
            return
        with self.v.block(f"for (int turn = 0; turn < {k.width}; ++turn)"):
            l.add(f"const tt_i64 point = {first} + turn * {k.threads} + tt_thread();", f"if (point >= (tt_i64){total}) return;")
            self.place()
            self.phases()

    def block(self, wide: bool = False) -> str:
        """C text of this block's number; `wide`: as a factor of 64 bits."""
        one_row = is_one_row(blocks_of(self.k))
        text = block_text(one_row)
        return text if not wide else f"(tt_i64){text}" if one_row else f"({text})"

    def place(self) -> None:
        """Declare the coordinates of `point`."""
        points = self.k.points
        self.coordinates("point", tuple(a.name for a in points), lane=self.lane if self.k.lanes_are_points else "")

    @property
    def lane(self) -> str:
        """Name of the axis that a vector runs along; "" for one element at a time."""
        return next((p.lane for p in self.k.phases if p.lane), "") if self.width > 1 else ""

    def coordinates(self, linear: str, axes: tuple[str, ...], lane: str) -> None:
        """Declare axes from a row-major number; a lane axis gets the name of its first lane."""
        rest = linear
        for position, a in reversed(list(enumerate(axes))):
            name = f"{a}_0" if a == lane else a
            size = factor_text(self.sizes[a])
            self.l.add(f"const tt_i64 {name} = {rest if position == 0 else f'{rest} % {size}'};")
            if position > 0:
                self.l.add(f"const tt_i64 {a}_over = {rest} / {size};")
                rest = f"{a}_over"

    # -- phases ------------------------------------------------------------------------------------
    def load_row(self) -> None:
        """Load the elements of a row that several phases read into registers."""
        k, n = self.k, self.width
        p = next(p for p in k.phases if p.axes and not isinstance(p, Running))
        assert not isinstance(p, Running)
        for number, r in enumerate(k.kept):
            self.l.add(f"tt_lanes<{STORED_TYPE[self.params[r.tensor]]}, {n}> kept{number}[{k.turns}];")
        self.l.add(f"const tt_i64 end_row = {self.end(p)};")
        with self.turns("end_row"):
            self.coordinates("at", p.axes, lane=p.lane)
            for number, r in enumerate(k.kept):
                at = substitute(r.map[0], {p.lane: var(f"{p.lane}_0")})
                self.l.add(f"kept{number}[turn] = tt_load_lanes<{n}>({r.tensor} + {factor_text(at)}{self.count_text(p)});")

    @contextmanager
    def turns(self, end: str) -> Iterator[None]:
        """A context for the vectors of a kept row that belong to this thread."""
        k = self.k
        with self.v.block(f"TT_UNROLL for (int turn = 0; turn < {k.turns}; ++turn)"):
            self.l.add(f"const tt_i64 at = (tt_i64)(turn * {k.group} + member) * {self.width};", f"if (at >= {end}) continue;")
            yield

    def end(self, p: Fold | Write) -> str:
        """C text of the number of elements of a phase; 0 for a thread without a point."""
        total = f"(tt_i64){' * '.join(factor_text(self.sizes[a]) for a in p.axes)}"
        if isinstance(p, Fold) and p.part is not None:
            total = self.part_end(p, p.part, total)
        return f"({self.live} ? {total} : 0)" if self.live else total

    def phases(self) -> None:
        """Print all phases, in order."""
        if self.keeps:
            self.load_row()
        for p in self.k.phases:
            match p:
                case Fold():
                    self.fold(p)
                case Running():
                    scan_text(self, p)
                case Write():
                    self.write(p)
                case _:
                    assert_never(p)

    @contextmanager
    def loops(self, p: Fold | Write) -> Iterator[None]:
        """A context for every point of the phase's axes that belongs to this thread; the innermost in steps of the lanes."""
        k, l = self.k, self.l
        with ExitStack() as stack:
            if k.group == 1:
                for a in p.axes:
                    stack.enter_context(self.v.block(f"for (tt_i64 {a} = 0; {a} < {index_text(self.sizes[a])}; ++{a})"))
            elif p.axes:
                width = self.width if p.lane and not k.across else 1
                step = k.group * width
                first = f"member * {width}" if width > 1 else "member"
                if isinstance(p, Fold) and p.part is not None:
                    self.begin(p, p.part)
                    first = f"{self.first(p)} + {first}"
                l.add(f"const tt_i64 end_{self.number(p)} = {self.end(p)};")
                stack.enter_context(
                    self.turns(f"end_{self.number(p)}")
                    if self.keeps
                    else self.v.block(f"for (tt_i64 at = {first}; at < end_{self.number(p)}; at += {step})")
                )
                self.coordinates("at", p.axes, lane=p.lane if self.width > 1 and not k.across else "")
            else:
                alone = "member == 0" if not self.live else "live && member == 0"
                stack.enter_context(self.v.block(f"if ({alone})"))
            yield

    # -- tiles -------------------------------------------------------------------------------------
    def tiled(self, t: Tile) -> None:
        """Print a transposition: load along the tile's axis, exchange in shared memory, write along the lanes."""
        k, l, n = self.k, self.l, self.width
        a, b = k.points[-1].name, t.axis
        (p,) = k.phases
        counts = {axis: f"(({factor_text(self.sizes[axis])} + {t.size - 1}) / {t.size})" for axis in (a, b)}
        l.add(f"tt_i64 block = {self.block()};")
        if not is_one_row(blocks_of(k)):
            others = [factor_text(i.size) for i in k.points if i.name not in counts]
            l.add(f"if (block >= (tt_i64){' * '.join([*counts.values(), *others])}) return;")
        for axis, count in counts.items():
            l.add(f"const tt_i64 {axis}_first = block % {count} * {t.size};", f"block /= {count};")
        rest = tuple(i.name for i in k.points if i.name not in (a, b))
        if rest:
            self.coordinates("block", rest, lane="")
        at = 0
        tiles: dict[Read, str] = {}
        for number, r in enumerate(t.reads):
            d = self.params[r.tensor]
            tiles[r] = f"tile{number}"
            l.add(f"{STORED_TYPE[d]}* const tile{number} = ({STORED_TYPE[d]}*)({SHARED} + {at});")
            at += t.size * t.size * d.itemsize
        slots, line = t.size * t.size // n, t.size // n
        place = f"tt_turned<{t.size}, {t.chunk}>"
        with self.v.block(f"for (int slot = tt_thread(); slot < {slots}; slot += {k.threads})"):
            l.add(f"const int row = slot / {line}, column = slot % {line} * {n};")
            l.add(f"const tt_i64 {a} = {a}_first + row, {b} = {b}_first + column;")
            with self.v.block(f"if ({a} < {factor_text(self.sizes[a])} && {b} < {factor_text(self.sizes[b])})"):
                for r, tile in tiles.items():
                    source = f"{r.tensor} + {factor_text(r.map[0])}"
                    l.add(f"tt_put_lanes<{n}>({tile} + {place}(row, column), tt_load_lanes<{n}>({source}));")
        l.add("tt_sync_threads();")
        with self.v.block(f"for (int slot = tt_thread(); slot < {slots}; slot += {k.threads})"):
            l.add(f"const int column = slot / {line}, row_0 = slot % {line} * {n};")
            first = f"{a}_0" if n > 1 and p.lane else a
            l.add(f"const tt_i64 {first} = {a}_first + row_0, {b} = {b}_first + column;")
            with self.v.block(f"if ({first} < {factor_text(self.sizes[a])} && {b} < {factor_text(self.sizes[b])})"):
                row = "row_0 + q" if n > 1 else "row_0"
                for r, tile in tiles.items():
                    self.v.remember(r, (f"tt_value({tile}[{place}({row}, column)])", self.params[r.tensor]))
                self.write(p)  # type: ignore[arg-type]

    # -- fold --------------------------------------------------------------------------------------
    def fold(self, p: Fold) -> None:
        """Print a reduction, and its join over the group."""
        k, l = self.k, self.l
        place = p.reduce.fn in ARG_JOIN
        d = p.of if place else p.reduce.dtype
        kind = f"tt_place<{VALUE_TYPE[d]}>" if place else VALUE_TYPE[d]
        join = ARG_JOIN[p.reduce.fn] if place else join_of(p.reduce.fn, d)
        start = "{0, -1}" if place else start_of(p.reduce.fn, d)
        per_lane = k.lanes_are_points and bool(p.lane) and self.width > 1
        acc = f"{p.name}_acc"
        if per_lane:
            l.add(
                f"{kind} {acc}[{self.width}];",
                f"TT_UNROLL for (int q = 0; q < {self.width}; ++q) {acc}[q] = {kind}{_braced(start)};",
            )
        else:
            l.add(f"{kind} {acc} = {start};")
        one = f"{acc}[q]" if per_lane else acc
        with self.loops(p) if p.axes or k.group == 1 else self.v.block(), self.lanes(p):
            text, found = self.v.value(p.reduce.body)
            if place:
                text = f"{kind}{{{text}, {p.axes[0] if p.axes else '0'}}}"
            elif VALUE_TYPE[found] != VALUE_TYPE[d]:
                text = f"({VALUE_TYPE[d]}){text}"
            l.add(f"{one} = {join}::join({one}, {text});")
        if k.across:
            each = f"tt_joined_across<{join}, {k.group}, {k.threads}>({one}, {SHARED})"
            l.add(f"TT_UNROLL for (int q = 0; q < {self.width}; ++q) {one} = {each};" if per_lane else f"{one} = {each};")
        elif k.group > 1:
            l.add(f"{acc} = tt_joined<{join}, {k.group}>({acc}, {SHARED if k.shared_bytes else 'nullptr'});")
        result = result_dtype(p)
        if per_lane:
            l.add(f"{VALUE_TYPE[result]} {p.name}[{self.width}];")
            l.add(f"TT_UNROLL for (int q = 0; q < {self.width}; ++q) {p.name}[q] = {self.finished(p, f'{acc}[q]')};")
        else:
            l.add(f"const {VALUE_TYPE[result]} {p.name} = {self.finished(p, acc)};")
            self.v.remember(p.name, (p.name, result))
        if p.stores:
            alone = f"if ({'live && ' if self.live else ''}member == 0)"
            with self.v.block(alone) if k.group > 1 else nullcontext():
                if per_lane:
                    self.write_lanes(p, lambda: self.v.value(Ref(p.name)), reads=False)
                else:
                    self.store(p.stores, (p.name, result))

    def finished(self, p: Fold, acc: str) -> str:
        """C text of a fold's result from its accumulator."""
        if p.reduce.fn in ARG_JOIN:
            return f"({acc}.at < 0 ? 0 : {acc}.at)"
        d = p.reduce.dtype
        if p.reduce.init is not None:
            acc = f"{join_of(p.reduce.fn, d)}::join<{VALUE_TYPE[d]}>({acc}, {constant_text(p.reduce.init, d)})"
        return f"tt_round_{SHORT[d]}({acc})" if d in SHORT else acc

    # -- write -------------------------------------------------------------------------------------
    def write(self, p: Write) -> None:
        """Print the stores of a phase."""
        with self.loops(p) if p.axes or self.k.group > 1 else self.v.block():
            if p.share is not None:
                self.v.places(p.share.place)
                place, number = index_text(p.share.place), factor_text(p.share.number)
                self.l.add(f"if ((tt_u64)({place}) % {p.share.count} != (tt_u64){number}) continue;")
            if p.lane and self.width > 1:
                self.write_lanes(p, lambda: self.v.value(p.value))
            else:
                self.store(p.stores, self.v.value(p.value))


def _braced(start: str) -> str:
    return start if start.startswith("{") else f"({start})"
