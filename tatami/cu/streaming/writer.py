"""Text that every phase of a streaming kernel needs: elements of a tensor in lanes, and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.cu.expr_text import STORED_TYPE, VALUE_TYPE, Value, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.products.epilogue import stored
from tatami.cu.streaming.join import join_of
from tatami.cu.values_text import Values
from tatami.gpu.stream_ir import Fold, Part, Phase, Running, StreamKernel, StreamStore
from tatami.region.ir import Read

ARG_JOIN = {"argmax": "tt_first_most", "argmin": "tt_first_least"}
"""Reduce -> the device function that joins two positions of extremes."""


class StreamWriter:
    """The form of a kernel that is being printed. `live`: the condition under which this thread has an element, "" if always."""

    def __init__(self, kernel: StreamKernel) -> None:
        self.k = kernel
        self.l = Lines()
        self.sizes = {a.name: a.size for a in (*kernel.points, *kernel.axes)}
        self.params = {p.name: p.dtype for p in kernel.params}
        self.width = 1
        self.live = ""
        self.keeps = False
        """True in the form that holds rows in registers."""
        self.v = self.values()

    def values(self) -> Values:
        """A printer of values, without any known yet."""
        k = self.k
        return Values(self.l, self.params, {x.name: x for x in k.lets}, {x.name: x for x in k.positions})

    def first(self, p: Phase) -> str:
        """C name of the first element of the phase's part."""
        return f"first_{self.number(p)}"

    def begin(self, p: Fold | Running, part: Part) -> None:
        """Declare the first element of the phase's part."""
        self.l.add(f"const tt_i64 {self.first(p)} = {self.converted(self.v.value(part.number), DType.i64)} * {part.size};")

    def part_end(self, p: Phase, part: Part, total: str) -> str:
        """C text of the end of a part."""
        return f"tt_min({self.first(p)} + {part.size}, {total})"

    # -- lanes -------------------------------------------------------------------------------------
    def number(self, p: Phase) -> int:
        """Position of the phase in the kernel."""
        return self.k.phases.index(p)

    @contextmanager
    def lanes(self, p: Phase, reads: bool = True) -> Iterator[None]:
        """A context for each of the lanes here: `q` counts them. Reads of all lanes come first."""
        if self.width == 1 or not p.lane:
            yield
            return
        n = self.width
        base = {p.lane: var(f"{p.lane}_0")}
        count = self.count_text(p)
        loaded: dict[Read, str] = {}
        for r in p.wide if reads else ():
            if self.keeps and r in self.k.kept:
                loaded[r] = f"kept{self.k.kept.index(r)}[turn]"
                continue
            name = self.v.fresh("w")
            at = substitute(r.map[0], base)
            inside = [x for x in self.v.places(at) if self.v.positions[x].bounds != "assume"]
            load = f"tt_load_lanes<{n}>({r.tensor} + {factor_text(at)}{count})"
            kind = f"tt_lanes<{STORED_TYPE[self.params[r.tensor]]}, {n}>"
            if inside:
                self.l.add(f"{kind} {name} = {{}};")
                self.l.add(f"if ({self.v.inside_text(inside)}) {name} = {load};{self.v.fault_text(inside)}")
            else:
                self.l.add(f"const {kind} {name} = {load};")
            loaded[r] = name
        with self.v.block(f"TT_UNROLL for (int q = 0; q < {n}; ++q)"):
            if count:
                self.l.add(f"if (q >= {self.remaining(p)}) continue;")
            self.l.add(f"const tt_i64 {p.lane} = {p.lane}_0 + q;")
            for r, name in loaded.items():
                self.v.remember(r, (f"tt_value({name}.at[q])", self.params[r.tensor]))
            for fold, d in self.lane_folds.items():
                self.v.remember(fold, (f"{fold}[q]", d))
            yield

    @property
    def lane_folds(self) -> dict[str, DType]:
        """Fold -> dtype, for folds with a result per lane."""
        if not self.k.lanes_are_points or self.width == 1:
            return {}
        return {p.name: result_dtype(p) for p in self.k.phases if isinstance(p, Fold)}

    def ragged(self, p: Phase) -> bool:
        """True if the last lanes of the axis may be outside."""
        size = self.sizes[p.lane]
        return size not in self.k.even and not all(c % self.width == 0 for _, c in size.terms)

    def remaining(self, p: Phase) -> str:
        """C text of the number of elements from the first lane to the end of the axis."""
        return f"{factor_text(self.sizes[p.lane])} - {p.lane}_0"

    def count_text(self, p: Phase) -> str:
        """C argument with the remaining elements, if some lanes may be outside; else ""."""
        return f", {self.remaining(p)}" if self.ragged(p) else ""

    # -- stores ------------------------------------------------------------------------------------
    def write_lanes(self, p: Phase, value: Callable[[], Value], reads: bool = True) -> None:
        """Print all lanes of `value`, then the stores: wide ones at once."""
        n = self.width
        made: list[tuple[StreamStore, str]] = []
        for s in p.stores:
            if s.wide:
                name = self.v.fresh("o")
                self.l.add(f"tt_lanes<{STORED_TYPE[self.params[s.param]]}, {n}> {name}{' = {}' if self.ragged(p) else ''};")
                made.append((s, name))
        with self.lanes(p, reads):
            result = value()
            for s, name in made:
                self.l.add(f"{name}.at[q] = {stored(result, self.params[s.param])};")
            self.store(tuple(s for s in p.stores if not s.wide), result)
        for s, name in made:
            at = substitute(s.index, {p.lane: var(f"{p.lane}_0")})
            inside = [x for x in self.v.places(at) if self.v.positions[x].bounds != "assume"]
            text = f"tt_store_lanes<{n}>({s.param} + {factor_text(at)}, {name}{self.count_text(p)});"
            if inside:
                text = f"if ({self.v.inside_text(inside)}) {text}{self.v.fault_text(inside)}"
            self.l.add(text)

    def store(self, stores: tuple[StreamStore, ...], value: Value) -> None:
        """Print stores of one value, guarded by the positions in their index."""
        for s in stores:
            inside = [x for x in self.v.places(s.index) if self.v.positions[x].bounds != "assume"]
            d = self.params[s.param]
            to = f"{s.param}[{index_text(s.index)}]"
            text = f"{to} = {stored(joined(s.combine, to, value, d), d)};"
            if inside:
                text = f"if ({self.v.inside_text(inside)}) {text}{self.v.fault_text(inside)}"
            self.l.add(text)

    def converted(self, value: Value, d: DType) -> str:
        """C text of the value as type `d`."""
        return value[0] if VALUE_TYPE[value[1]] == VALUE_TYPE[d] else f"({VALUE_TYPE[d]}){value[0]}"


def result_dtype(p: Fold) -> DType:
    """The dtype of a fold's result: i64 for a position, else that of its reduce."""
    return DType.i64 if p.reduce.fn in ARG_JOIN else p.reduce.dtype


def joined(combine: str, to: str, value: Value, d: DType) -> Value:
    """The element's value after it is combined with a value."""
    if combine == "set":
        return value
    fn = {"add": "sum", "mul": "prod"}.get(combine, combine)
    kind = VALUE_TYPE[d]
    text = value[0] if VALUE_TYPE[value[1]] == kind else f"({kind}){value[0]}"
    return f"{join_of(fn, d)}::join<{kind}>(tt_value({to}), {text})", d
