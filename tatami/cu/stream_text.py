"""A stream kernel as text: a thread per point, reduces as loops, other lets as constants where they are used."""

from __future__ import annotations

from collections.abc import Callable

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.ops import neutral
from tatami.cu.epilogue_text import stored
from tatami.cu.expr_text import SHORT, STORED_TYPE, VALUE_TYPE, Scope, constant_text, factor_text, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.gpu.ir import StreamKernel
from tatami.region.ir import Reduce, Ref, RegionExpr, Scan, Select
from tatami.region.walk import children, nodes, used_lets, with_children

_COMBINE = {"sum": "{a} + {x}", "prod": "{a} * {x}", "max": "tt_max({a}, {x})", "min": "tt_min({a}, {x})"}
_COMBINE |= {"and": "{a} && {x}", "or": "{a} || {x}"}


def stream_text(kernel: StreamKernel) -> str:
    return _Printer(kernel).text()


class _Printer:
    def __init__(self, kernel: StreamKernel) -> None:
        self.k = kernel
        self.l = Lines()
        self.lets = {x.name: x for x in kernel.lets}
        self.sizes = {a.name: a.size for a in (*kernel.axes, *kernel.reduce_axes)}
        self.scope = Scope({p.name: p.dtype for p in kernel.params}, {})
        self.count = 0

    def text(self) -> str:
        k, l = self.k, self.l
        l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', "")
        params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
        params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
        l.add(f"TT_KERNEL({k.threads}, 1)", f"{k.face.symbol}({', '.join(params)}) {{")
        l.depth += 1
        own = [a for a in k.axes if k.scan is None or a.name != k.scan.axis]
        total = " * ".join(factor_text(a.size) for a in own) or "1"
        l.add(f"tt_i64 point = (tt_i64)tt_block_x() * {k.threads} + tt_thread();", f"if (point >= (tt_i64){total}) return;")
        for position, a in reversed(list(enumerate(own))):
            size = factor_text(a.size)
            l.add(f"const tt_i64 {a.name} = point{'' if position == 0 else f' % {size}'};")
            if position:
                l.add(f"point /= {size};")
        if k.scan is not None:
            self.scan(k.scan)
        else:
            self.store(self.value(k.value, frozenset(a.name for a in own)))
        l.depth -= 1
        l.add("}")
        return l.text()

    def store(self, value: tuple[str, DType]) -> None:
        for s in self.k.stores:
            self.l.add(f"{s.param}[{index_text(s.index)}] = {stored(value, self.scope.params[s.param])};")

    def scan(self, s: Scan) -> None:
        l = self.l
        kind = VALUE_TYPE[s.dtype]
        size = factor_text(self.sizes[s.axis])
        l.add(f"{kind} total = {constant_text(neutral(s.fn, s.dtype), s.dtype)};")
        with l.block(f"for (tt_i64 step = 0; step < {size}; ++step)"):
            l.add(f"const tt_i64 {s.axis} = {f'{size} - 1 - step' if s.reverse else 'step'};")
            text, _ = self.value(s.body, frozenset(a.name for a in self.k.axes))
            if s.exclusive:
                self.store(("total", s.dtype))
            l.add(f"total = {self.rounded(_COMBINE[s.fn].format(a='total', x=text), DType.unknown)};")
            if not s.exclusive:
                self.store(("total", s.dtype))

    def rounded(self, text: str, dtype: DType) -> str:
        return f"tt_round_{SHORT[dtype]}({text})" if dtype in SHORT else text

    def value(self, e: RegionExpr, axes: frozenset[str]) -> tuple[str, DType]:
        """Text of `e` where `axes` are in scope; loops and lets it needs are written first."""
        for name in self.needed(e, axes):
            if name not in self.scope.lets:
                let = self.lets[name]
                text, _ = self.value(let.expr, axes)
                self.l.add(f"const {VALUE_TYPE[let.dtype]} {self.fresh(name)} = {text};")
                self.scope.lets[name] = (f"{name}_{self.count}", let.dtype)
        done: dict[int, tuple[str, DType]] = {}

        def reduces_first(n: RegionExpr) -> RegionExpr:
            if isinstance(n, Select) and any(isinstance(x, Reduce) for x in nodes(n.then)):
                raise fail("InvalidPlan", "cu", "a reduce stands under a guard", "store it in a let of its own")
            if not isinstance(n, Reduce):
                return n
            result = self.reduce(n, axes)
            name = f"@{len(done)}"
            done[len(done)] = result
            self.scope.lets[name] = result
            return Ref(name)

        flat = e
        if any(isinstance(n, Reduce) for n in nodes(e)):
            flat = self.top_down(e, reduces_first)
        return scalar_text(flat, self.scope)

    def top_down(self, e: RegionExpr, change: Callable[[RegionExpr], RegionExpr]) -> RegionExpr:
        """Outermost reduces are replaced; what stands inside them is their own business."""
        new = change(e)
        if new is not e:
            return new
        return with_children(e, tuple(self.top_down(c, change) for c in children(e)))

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}_{self.count}"

    def needed(self, e: RegionExpr, axes: frozenset[str]) -> list[str]:
        """Lets that can be written here: used in `e`, also inside its loops, with all their axes in scope."""
        names = [n for n in used_lets(e) if n in self.lets]
        return [n for n in names if set(self.lets[n].axes) <= axes]

    def reduce(self, r: Reduce, axes: frozenset[str]) -> tuple[str, DType]:
        l = self.l
        if r.fn in ("argmax", "argmin"):
            return self.arg_reduce(r, axes)
        name = self.fresh("sum" if r.fn == "sum" else "red")
        start = neutral(r.fn, r.dtype) if r.init is None else r.init
        l.add(f"{VALUE_TYPE[r.dtype]} {name} = {constant_text(start, r.dtype)};")
        before = dict(self.scope.lets)
        for a in r.axes:
            l.add(f"for (tt_i64 {a} = 0; {a} < {index_text(self.sizes[a])}; ++{a}) {{")
            l.depth += 1
        text, d = self.value(r.body, axes | frozenset(r.axes))
        if VALUE_TYPE[d] != VALUE_TYPE[r.dtype]:
            text = f"({VALUE_TYPE[r.dtype]}){text}"
        l.add(f"{name} = {_COMBINE[r.fn].format(a=name, x=text)};")
        for _ in r.axes:
            l.depth -= 1
            l.add("}")
        self.scope.lets = before
        return (self.rounded(name, r.dtype), r.dtype)

    def arg_reduce(self, r: Reduce, axes: frozenset[str]) -> tuple[str, DType]:
        """First position of the extreme; NaN wins. One axis."""
        l = self.l
        (a,) = r.axes
        best, at = self.fresh("best"), self.fresh("at")
        before = dict(self.scope.lets)
        l.add(f"tt_i64 {at} = 0;")
        from tatami.region.ir import Read

        kinds = [self.scope.params[n.tensor] for n in nodes(r.body) if isinstance(n, Read)]
        kind = VALUE_TYPE[kinds[0]] if kinds else "float"
        l.add(f"{kind} {best} = 0;")
        with l.block(f"for (tt_i64 {a} = 0; {a} < {index_text(self.sizes[a])}; ++{a})"):
            text, _ = self.value(r.body, axes | frozenset(r.axes))
            sign = ">" if r.fn == "argmax" else "<"
            l.add(f"const {kind} x = {text};")
            l.add(f"if ({a} == 0 || x {sign} {best} || (x != x && {best} == {best})) {{ {best} = x; {at} = {a}; }}")
        self.scope.lets = before
        return at, DType.i64
