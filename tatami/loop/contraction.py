"""A contraction Region as packed panels and a register-tiled micro-kernel (spec 5; notes: cpu §1).

    y = epilogue(sum over k of lhs * rhs)      batch, m, n, k: groups of axes, each one linear index

Packing reads the operand EXPRESSIONS: any affine map with floors, guards of padding, casts, fused elementwise work. A
convolution is so an implicit GEMM with im2col folded into the packing. lhs becomes panels [kc][r] of r <= mr rows, rhs
becomes slivers [kc][nr]; blocks of kc follow one another. The micro-kernel adds them up in order of k, so answers do not
depend on the number of threads. The epilogue reads the finished [rows][nr] accumulators while they are in cache.

    split m      slivers of rhs packed once for all; threads share blocks of rows, each packs its rows of lhs
    split n      panels of lhs packed once for all; threads share slivers of rhs, packing each just before its use
    split batch  threads share (batch, block of rows); both operands packed by the thread itself
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, free_vars, maximum, minimum, product, substitute, var
from tatami.core.kernel import Binding, KernelFace, KernelParam
from tatami.core.layout import address
from tatami.core.scalar import number
from tatami.core.target import Target
from tatami.indexbook.ir import Guard
from tatami.loop import ir as loop
from tatami.loop.segments import Group, collapse, guard_range, step_of, walk
from tatami.loop.tile_values import NotVectorised, Place, Tensor
from tatami.plan.ir import CpuContraction
from tatami.region.contraction import ContractionShape, find_contractions
from tatami.region.ir import Cast, Const, Read, Reduce, Ref, Region, RegionExpr, Select, Within, Yield
from tatami.region.walk import Types, all_axes, index_expressions, lets_by_name, nodes

Stmts = tuple[loop.Stmt, ...]

_ELEMENT = {DType.fp32: "f32", DType.fp64: "f64", DType.i32: "u32", DType.u32: "u32", DType.i64: "u64", DType.u64: "u64"}
_GRAIN_FLOPS = 1 << 18
"""Work a thread should get at least: a few times what waking it costs."""
_GRAIN_PACK = 1 << 14


def lower_contraction(region: Region, plan: CpuContraction, target: Target) -> tuple[loop.Kernel, Binding]:
    """The kernel of a Region with one contraction and its call. Raises InvalidPlan when the Region has more than that."""
    return _Contraction(region, plan, target).kernel()


class _Contraction:
    def __init__(self, region: Region, plan: CpuContraction, target: Target) -> None:
        self.region, self.plan = region, plan
        self.counters: dict[str, int] = {}
        self.lets = lets_by_name(region)
        self.types = Types(region)
        symbols = _symbols(region)
        self.symbols = tuple(symbols)
        self.reserved = {*symbols, *all_axes(region)}
        self.bound = {name: var(f"s{i}") for i, name in enumerate(symbols)}
        self.extents = {a: substitute(size, self.bound) for a, size in all_axes(region).items()}
        self.tensors: dict[str, Tensor] = {}
        params: list[loop.BufferParam] = []
        for port in (*region.inputs, *region.outputs):
            written = len(params) >= len(region.inputs)
            name = f"p{len(params)}"
            alone = port.memref.noalias and not any(t.updates for t in region.outputs)
            params.append(loop.BufferParam(name, port.memref.dtype, written, alone))
            if not written:
                self.tensors[port.name] = Tensor(name, port.memref)
        self.params = tuple(params)
        self.outputs = {t.name: Tensor(p.name, t.memref) for t, p in zip(region.outputs, params[len(region.inputs) :])}
        shape = self.find_shape()
        lhs, rhs, m, n = (shape.rhs, shape.lhs, shape.n, shape.m) if plan.swap else (shape.lhs, shape.rhs, shape.m, shape.n)
        self.lhs, self.rhs, self.m_axes, self.n_axes, self.batch_axes, self.k_axes = lhs, rhs, m, n, shape.batch, shape.k
        acc = self.lets[plan.acc]
        assert isinstance(acc.expr, Reduce)
        self.dtype, self.init = acc.expr.dtype, acc.expr.init
        if self.dtype not in _ELEMENT:
            raise self.refuse(f"it accumulates in {self.dtype}")
        element = _ELEMENT[self.dtype]
        self.lanes = max(1, plan.width * 4 // self.dtype.itemsize)
        self.mr, self.nr = plan.mr, max(plan.nr // self.lanes, 1) * self.lanes
        self.gemm_routine = f"tatami_gemm_{element}_{self.mr}x{self.nr}_{self.lanes}"
        self.pack_routine = f"tatami_pack_{element}_{self.lanes}" if self.lanes in (4, 8, 16) else ""
        self.m, self.n, self.k, self.batches = (self.total(g) for g in (m, n, shape.k, shape.batch))
        self.slivers = ceildiv(self.n, expr(self.nr))
        self.k_blocks = maximum(ONE, ceildiv(self.k, expr(plan.kc)))

    # -- what the Region is --------------------------------------------------------------------

    def find_shape(self) -> ContractionShape:
        shape = next((s for s in find_contractions(self.region) if s.acc == self.plan.acc), None)
        if shape is None:
            raise self.refuse(f"let {self.plan.acc} is not a sum of a product")
        acc_axes = set(self.lets[self.plan.acc].axes)
        for y in self.region.yields:
            if set(self.lets[y.source].axes) != acc_axes:
                raise self.refuse(f"{y.source} is written over other axes than the accumulator's")
            if y.combine != "set" or y.indices or (y.map is not None and None in y.map):
                raise self.refuse(f"output {y.to} is scattered")
        return shape

    def refuse(self, why: str) -> Exception:
        return Place(self.region.name, {}, {}, self.types, {}, lambda: "").refuse(why)

    def total(self, axes: Sequence[str]) -> Expr:
        return product(self.extents[a] for a in axes)

    def fresh(self, kind: str) -> str:
        """The next name of its kind that is no axis and no symbol of the Region."""
        while True:
            self.counters[kind] = self.counters.get(kind, -1) + 1
            name = f"{kind}{self.counters[kind]}"
            if name not in self.reserved:
                return name

    def place(self, values: Mapping[str, Expr], lanes: int = 1, along: str = "") -> Place:
        bound = {**self.bound, **values}
        return Place(self.region.name, self.tensors, self.lets, self.types, bound, lambda: self.fresh("r"), lanes, along)

    def addresses(self, expressions: Sequence[RegionExpr]) -> Iterator[Expr]:
        """Every index expression a value needs, tensors by address; lets are followed."""
        seen: set[str] = set()
        stack = list(expressions)
        while stack:
            for node in nodes(stack.pop()):
                if isinstance(node, Read):
                    yield self.tensors[node.tensor].address(node.map, self.bound)
                elif isinstance(node, Within):
                    yield from (substitute(g.index, self.bound) for g in node.guards)
                else:
                    yield from (substitute(e, self.bound) for e in index_expressions(node))
                let = getattr(node, "let", None)
                if let is not None and let not in seen and let != self.plan.acc:
                    seen.add(let)
                    stack.append(self.lets[let].expr)

    # -- the kernel ----------------------------------------------------------------------------

    def kernel(self) -> tuple[loop.Kernel, Binding]:
        split = "batch" if self.batch_axes else self.plan.split
        body = {"m": self.split_m, "n": self.split_n, "batch": self.split_batch}[split]()
        about = f"contraction {self.mr}x{self.nr}, kc {self.plan.kc}, split {split}"
        face = KernelFace("", tuple(KernelParam(p.dtype, p.written) for p in self.params), len(self.symbols), "")
        kernel = loop.Kernel(face, self.params, body, about=about)
        key = hashlib.sha256(json.dumps(to_builtins(kernel)).encode()).hexdigest()
        kernel = msgspec.structs.replace(kernel, face=msgspec.structs.replace(face, symbol=f"k{key[:16]}", key=key))
        buffers = tuple(p.name for p in (*self.region.inputs, *self.region.outputs))
        binding = Binding(self.region.name, kernel.face.symbol, buffers, tuple(var(s) for s in self.symbols))
        return kernel, binding

    def split_m(self) -> Stmts:
        slivers, s = loop.LocalBuffer(self.fresh("b"), self.dtype, self.k * self.slivers * self.nr), self.fresh("x")
        pack = self.each_k_block(
            lambda k0, k1, p: self.pack_sliver({}, slivers.name, self.sliver_at(k0, k1, var(s)), var(s), k0, k1)
        )
        blocks, rows_max = self.row_blocks()
        panels, sums = self.local(rows_max * self.k), self.local(rows_max * self.nr)
        x = self.fresh("x")
        i0, rows, start = self.row_range(var(x), blocks)
        inner = self.all_slivers({}, i0, rows, panels.name, sums.name, packed=slivers.name)
        return (
            slivers,
            loop.Parallel(s, self.slivers, _grain(_GRAIN_PACK, self.k * self.nr), pack),
            loop.Parallel(
                x,
                blocks,
                _grain(_GRAIN_FLOPS, rows_max * self.k * self.n * 2),
                (*start, *self.pack_rows({}, panels.name, i0, rows), *inner),
                (panels, sums),
            ),
        )

    def split_n(self) -> Stmts:
        panels = self.local(self.m * self.k)
        count = ceildiv(self.m, expr(self.mr))
        q, s = self.fresh("x"), self.fresh("x")
        pack = self.each_k_block(lambda k0, k1, p: self.pack_panel({}, panels.name, ZERO, self.m, count, var(q), k0, k1))
        sliver, sums = self.local(self.kc_max() * self.nr), self.local(self.m * self.nr)
        compute = self.one_sliver({}, ZERO, self.m, panels.name, sums.name, var(s), sliver=sliver.name)
        return (
            panels,
            loop.Parallel(q, count, _grain(_GRAIN_PACK, self.k * self.mr), pack),
            loop.Parallel(s, self.slivers, _grain(_GRAIN_FLOPS, self.m * self.k * (2 * self.nr)), compute, (sliver, sums)),
        )

    def split_batch(self) -> Stmts:
        blocks, rows_max = self.row_blocks()
        panels, sliver, sums = (
            self.local(rows_max * self.k),
            self.local(self.kc_max() * self.nr),
            self.local(rows_max * self.nr),
        )
        x = self.fresh("x")
        declare, values, block = self.batch_values(var(x), blocks)
        i0, rows, start = self.row_range(block, blocks)
        return (
            loop.Parallel(
                x,
                self.batches * blocks,
                _grain(_GRAIN_FLOPS, rows_max * self.k * self.n * 2),
                (
                    *declare,
                    *start,
                    *self.pack_rows(values, panels.name, i0, rows),
                    *self.all_slivers(values, i0, rows, panels.name, sums.name, sliver=sliver.name),
                ),
                (panels, sliver, sums),
            ),
        )

    # -- blocks --------------------------------------------------------------------------------

    def local(self, elements: Expr) -> loop.LocalBuffer:
        return loop.LocalBuffer(self.fresh("b"), self.dtype, elements)

    def kc_max(self) -> Expr:
        return ceildiv(self.k, self.k_blocks)

    def row_blocks(self) -> tuple[Expr, Expr]:
        """Number of row blocks, and the rows of the largest: mc, less where K is long."""
        mc = maximum(
            expr(2 * self.mr),
            minimum(expr(self.plan.mc), floordiv(expr(2 * self.plan.mc * self.plan.kc), maximum(self.k, ONE))),
        )
        blocks = maximum(ONE, ceildiv(self.m, mc))
        return blocks, ceildiv(self.m, blocks)

    def row_range(self, block: Expr, blocks: Expr) -> tuple[Expr, Expr, Stmts]:
        """First row and number of rows of a block, as registers."""
        first = floordiv(self.m * block, blocks)
        i0, d0 = self.integer(first)
        rows, d1 = self.integer(floordiv(self.m * (block + 1), blocks) - first)
        return i0, rows, (d0, d1)

    def integer(self, value: Expr) -> tuple[Expr, loop.Stmt]:
        name = self.fresh("i")
        return var(name), loop.Declare(loop.Reg(name, DType.i64), loop.IndexOf(value, DType.i64), integer=True)

    def batch_values(self, item: Expr, blocks: Expr) -> tuple[Stmts, dict[str, Expr], Expr]:
        """Registers for the batch axes of a work item, and its row block."""
        out: list[loop.Stmt] = []
        values: dict[str, Expr] = {}
        rest = item
        for axis, size in ((None, blocks), *((a, self.extents[a]) for a in reversed(self.batch_axes))):
            quotient, d = self.integer(floordiv(rest, size))
            remainder, e = self.integer(rest - size * quotient)
            out += [d, e]
            values[axis or ""] = remainder
            rest = quotient
        block = values.pop("")
        return tuple(out), values, block

    def each_k_block(self, make) -> Stmts:  # type: ignore[no-untyped-def]
        """Loop over blocks of k: make(k0, k1, index) with the bounds in registers."""
        p = self.fresh("x")
        k0, d0 = self.integer(floordiv(self.k * var(p), self.k_blocks))
        k1, d1 = self.integer(floordiv(self.k * (var(p) + 1), self.k_blocks))
        return (loop.For(p, ZERO, self.k_blocks, (d0, d1, *make(k0, k1, var(p)))),)

    def sliver_at(self, k0: Expr, k1: Expr, sliver: Expr) -> Expr:
        return k0 * self.slivers * self.nr + sliver * (k1 - k0) * self.nr

    def all_slivers(
        self, values: dict[str, Expr], i0: Expr, rows: Expr, panels: str, sums: str, packed: str = "", sliver: str = ""
    ) -> Stmts:
        s = self.fresh("x")
        return (loop.For(s, ZERO, self.slivers, self.one_sliver(values, i0, rows, panels, sums, var(s), packed, sliver)),)

    def one_sliver(
        self, values: dict[str, Expr], i0: Expr, rows: Expr, panels: str, sums: str, s: Expr, packed: str = "", sliver: str = ""
    ) -> Stmts:
        """Sum all of k for `rows` rows by one sliver, then the epilogue."""

        def block(k0: Expr, k1: Expr, p: Expr) -> Stmts:
            at = loop.Pointer(packed, self.sliver_at(k0, k1, s)) if packed else loop.Pointer(sliver, ZERO)
            pack = () if packed else self.pack_sliver(values, sliver, ZERO, s, k0, k1)
            sizes = (loop.Integer(rows), loop.Integer(k1 - k0), loop.Integer(ONE - minimum(ONE, p)))
            call = loop.Call(
                self.gemm_routine, (loop.Pointer(panels, k0 * rows), at, loop.Pointer(sums, ZERO), *sizes), routine=True
            )
            return (*pack, call)

        j0 = s * self.nr
        return (*self.each_k_block(block), *self.epilogue(values, i0, i0 + rows, j0, minimum(self.n, j0 + self.nr), sums))

    # -- packing -------------------------------------------------------------------------------

    def pack_rows(self, values: dict[str, Expr], to: str, i0: Expr, rows: Expr) -> Stmts:
        """All panels of a block of rows, for all of k."""
        q = self.fresh("x")
        count = ceildiv(rows, expr(self.mr))
        return self.each_k_block(
            lambda k0, k1, p: (loop.For(q, ZERO, count, self.pack_panel(values, to, i0, rows, count, var(q), k0, k1)),)
        )

    def pack_panel(
        self, values: dict[str, Expr], to: str, i0: Expr, rows: Expr, count: Expr, q: Expr, k0: Expr, k1: Expr
    ) -> Stmts:
        """Panel q of `count` balanced ones."""
        first, d0 = self.integer(floordiv(rows * q, maximum(count, ONE)))
        r, d1 = self.integer(floordiv(rows * (q + 1), maximum(count, ONE)) - first)
        base = k0 * rows + (k1 - k0) * first
        return (d0, d1, *self.pack(self.lhs, self.m_axes, values, to, base, r, i0 + first, i0 + first + r, k0, k1))

    def pack_sliver(self, values: dict[str, Expr], to: str, base: Expr, s: Expr, k0: Expr, k1: Expr) -> Stmts:
        """Sliver s, filled up with zeros to nr columns."""
        lo = s * self.nr
        hi, d = self.integer(minimum(self.n, lo + self.nr))
        x, y = self.fresh("x"), self.fresh("x")
        place = base + var(x) * self.nr + var(y)
        rest = loop.For(y, hi - lo, expr(self.nr), (loop.Store(to, place, loop.Const(0, self.dtype)),))
        fill = loop.For(x, ZERO, (k1 - k0) * minimum(ONE, expr(self.nr) - (hi - lo)), (rest,))
        packed = self.pack(self.rhs, self.n_axes, values, to, base, expr(self.nr), lo, hi, k0, k1)
        return (d, *packed) if (self.n.as_int() or 1) % self.nr == 0 else (d, *packed, fill)

    def pack(
        self,
        operand: RegionExpr,
        axes: tuple[str, ...],
        values: dict[str, Expr],
        to: str,
        base: Expr,
        pitch: Expr,
        lo: Expr,
        hi: Expr,
        k0: Expr,
        k1: Expr,
    ) -> Stmts:
        """to[base + (k-k0)*pitch + (j-lo)] = operand(j, k) for lo <= j < hi, k0 <= k < k1."""
        guards, inside, outside = _split_guards(operand)
        uses = [substitute(a, values) for a in self.addresses([operand])]
        group = collapse(axes, self.extents, uses, f"{to}_g")
        ks = collapse(self.k_axes, self.extents, [substitute(u, group.values) for u in uses], f"{to}_k")
        direct = self.transposing(inside, values, group, ks) if not guards else None

        def per_k(outer_k: dict[str, Expr], kname: str, klo: Expr, khi: Expr, kbase: Expr) -> Stmts:
            if direct is not None:
                buffer, at, stride = direct

                def block(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                    source = substitute(at, {**outer_k, **outer, kname: klo, name: jlo})
                    place = base + (kbase + klo - k0) * pitch + (jbase + jlo - lo)
                    step = substitute(stride, {**outer_k, **outer})
                    sizes = (loop.Integer(jhi - jlo), loop.Integer(pitch), loop.Integer(step), loop.Integer(khi - klo))
                    return (
                        loop.Call(
                            self.pack_routine, (loop.Pointer(to, place), loop.Pointer(buffer, source), *sizes), routine=True
                        ),
                    )

                return walk(group, lo, hi, lambda: self.fresh("x"), block)

            k = self.fresh("x")
            bound_k = {**values, **{a: substitute(v, {**outer_k, kname: var(k)}) for a, v in ks.values.items()}}
            row = base + (kbase + var(k) - k0) * pitch

            def across(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                x = self.fresh("x")
                bound = {**bound_k, **{a: substitute(v, {**outer, name: var(x)}) for a, v in group.values.items()}}
                return self.copy(inside, outside, guards, bound, x, jlo, jhi, to, row + (jbase - lo))

            return (loop.For(k, klo, khi, walk(group, lo, hi, lambda: self.fresh("x"), across)),)

        return walk(ks, k0, k1, lambda: self.fresh("x"), per_k)

    def transposing(
        self, operand: RegionExpr, values: dict[str, Expr], group: Group, ks: Group
    ) -> tuple[str, Expr, Expr] | None:
        """(buffer, address, stride of the group's inner axis) when k is contiguous and the type is the packed one."""
        if not (isinstance(operand, Read) and self.pack_routine) or self.types.of(operand) != self.dtype:
            return None
        tensor = self.tensors[operand.tensor]
        bound = {**self.bound, **values, **group.values, **ks.values}
        at = tensor.address(operand.map, bound)
        inner_k, inner_j = ks.spans[-1].name, group.spans[-1].name
        along_k, along_j = step_of(at, inner_k), step_of(at, inner_j)
        if along_k is None or along_k.as_int() != 1 or along_j is None or along_j.as_int() == 1:
            return None
        return tensor.buffer, at, along_j

    def copy(
        self,
        inside: RegionExpr,
        outside: RegionExpr | None,
        guards: tuple[Guard, ...],
        bound: dict[str, Expr],
        x: str,
        lo: Expr,
        hi: Expr,
        to: str,
        row: Expr,
    ) -> Stmts:
        """to[row + x] = inside where the guards hold, else outside, for lo <= x < hi. Guards that move with x become
        ranges of x."""
        whole: list[Guard] = []
        out: list[loop.Stmt] = []
        a, b = lo, hi
        for g in guards:
            at = Guard(substitute(g.index, {**self.bound, **bound}), substitute(g.size, self.bound))
            if x not in free_vars(at.index):
                whole.append(at)
                continue
            limits = guard_range(at.index, at.size, x)
            if limits is None:
                return self.elementwise(_join(guards, inside, outside), bound, x, lo, hi, to, row, vector=False)
            a, b = maximum(a, limits[0]), minimum(b, limits[1])
        if not guards:
            return self.elementwise(inside, bound, x, lo, hi, to, row)
        assert outside is not None
        if a is not lo or b is not hi:
            start, d0 = self.integer(minimum(hi, a))
            stop, d1 = self.integer(maximum(start, b))
            out += [d0, d1]
        else:
            start, stop = lo, hi
        body = [
            *(self.elementwise(outside, bound, x, lo, start, to, row) if start is not lo else ()),
            *self.elementwise(inside, bound, x, start, stop, to, row),
            *(self.elementwise(outside, bound, x, stop, hi, to, row) if stop is not hi else ()),
        ]
        if whole:
            away = self.elementwise(outside, bound, x, lo, hi, to, row)
            body = [loop.If(loop.Within(tuple(whole)), tuple(body), away)]
        return (*out, *body)

    def elementwise(
        self, e: RegionExpr, bound: dict[str, Expr], x: str, lo: Expr, hi: Expr, to: str, row: Expr, vector: bool = True
    ) -> Stmts:
        """to[row + x] = e for lo <= x < hi: whole vectors, then single elements."""

        def body(lanes: int) -> Stmts:
            y = self.fresh("x")
            values = {a: substitute(v, {x: var(y)}) for a, v in bound.items()}
            place = self.place(values, lanes, y)
            value = place.value(e)
            if loop.type_of(value).dtype != self.dtype:
                value = loop.Cast(value, self.dtype)
            place.body.append(loop.Store(to, row + var(y), place.spread(value, lanes)))
            return self.counted(y, lo, hi, lanes, tuple(place.body))

        return self.vector_and_tail(body, vector)

    def vector_and_tail(self, body, vector: bool = True) -> Stmts:  # type: ignore[no-untyped-def]
        one: Stmts = body(1)
        if not vector or self.lanes == 1:
            return one
        try:
            many: Stmts = body(self.lanes)
        except NotVectorised:
            return one
        (scalar,) = one
        assert isinstance(scalar, loop.For)
        (wide,) = many
        assert isinstance(wide, loop.For)
        tail = msgspec.structs.replace(scalar, start=wide.stop)
        return (wide, tail)

    def counted(self, x: str, lo: Expr, hi: Expr, lanes: int, body: Stmts) -> Stmts:
        if lanes == 1:
            return (loop.For(x, lo, hi, body),)
        whole = lo + maximum(ZERO, floordiv(hi - lo, expr(lanes))) * lanes
        return (loop.For(x, lo, whole, body, step=lanes, simd=True),)

    # -- epilogue ------------------------------------------------------------------------------

    def epilogue(self, values: dict[str, Expr], i0: Expr, i1: Expr, j0: Expr, j1: Expr, sums: str) -> Stmts:
        """Lets after the accumulator and all writes, on rows i0 … i1 and columns j0 … j1 of the finished sums."""
        lets = [self.lets[y.source].expr for y in self.region.yields if y.source != self.plan.acc]
        uses = [substitute(a, values) for a in (*self.addresses(lets), *(self.target(y) for y in self.region.yields))]
        rows = collapse(self.m_axes, self.extents, uses, f"{sums}_m")
        columns = collapse(self.n_axes, self.extents, [substitute(u, rows.values) for u in uses], f"{sums}_n")

        def per_row(outer_m: dict[str, Expr], mname: str, mlo: Expr, mhi: Expr, mbase: Expr) -> Stmts:
            i = self.fresh("x")
            bound_m = {**values, **{a: substitute(v, {**outer_m, mname: var(i)}) for a, v in rows.values.items()}}
            row = (mbase + var(i) - i0) * self.nr

            def across(outer: dict[str, Expr], name: str, jlo: Expr, jhi: Expr, jbase: Expr) -> Stmts:
                def body(lanes: int) -> Stmts:
                    x = self.fresh("x")
                    bound = {**bound_m, **{a: substitute(v, {**outer, name: var(x)}) for a, v in columns.values.items()}}
                    done = self.finish(bound, lanes, x, loop.Load(sums, row + jbase + var(x) - j0, self.dtype, lanes))
                    return self.counted(x, jlo, jhi, lanes, done)

                return self.vector_and_tail(body)

            return (loop.For(i, mlo, mhi, walk(columns, j0, j1, lambda: self.fresh("x"), across)),)

        return walk(rows, i0, i1, lambda: self.fresh("x"), per_row)

    def target(self, y: Yield) -> Expr:
        """The address a yield writes, over the let's axes."""
        let, out = self.lets[y.source], self.outputs[y.to]
        index = tuple(var(a) for a in let.axes) if y.map is None else tuple(e for e in y.map if e is not None)
        return substitute(address(out.memref.layout, out.memref.shape, index), self.bound)

    def finish(self, bound: dict[str, Expr], lanes: int, x: str, total: loop.Value) -> Stmts:
        place = self.place(bound, lanes, x)
        if self.init is not None and number(self.init) != 0:
            total = loop.Op("add", (total, place.spread(loop.Const(self.init, self.dtype), lanes)))
        let = self.lets[self.plan.acc]
        if let.dtype != self.dtype:
            total = loop.Cast(total, let.dtype)
        acc = loop.Reg(self.fresh("r"), let.dtype, lanes)
        place.body.append(loop.Declare(acc, total))
        place.registers[let.name] = acc
        for y in self.region.yields:
            out = self.outputs[y.to]
            value = place.value(Ref(y.source))
            for dtype in (y.cast, out.memref.dtype):
                if dtype is not None and loop.type_of(value).dtype != dtype:
                    value = loop.Cast(value, dtype)
            at = substitute(self.target(y), bound)
            by = place.step(at)
            if lanes > 1 and (by is None or by.as_int() != 1):
                raise NotVectorised
            place.body.append(loop.Store(out.buffer, at, place.spread(value, lanes)))
        return tuple(place.body)


def _symbols(region: Region) -> list[str]:
    """Size symbols of the Region in order of first appearance."""
    axes = all_axes(region)
    out: dict[str, None] = {}
    for size in (*axes.values(), *(s for p in (*region.inputs, *region.outputs) for s in p.memref.shape)):
        out.update(dict.fromkeys(sorted(free_vars(size))))
    used = [e for let in region.lets for node in nodes(let.expr) for e in index_expressions(node)]
    used += [e for y in region.yields for e in (y.map or ()) if e is not None]
    for e in used:
        out.update(dict.fromkeys(sorted(free_vars(e) - axes.keys())))
    return list(out)


def _split_guards(e: RegionExpr) -> tuple[tuple[Guard, ...], RegionExpr, RegionExpr | None]:
    """(guards, value inside, value outside) of an operand that is a guarded read at the top, through casts."""
    match e:
        case Select(pred=Within(guards=guards), then=then, other=Const() as other):
            return guards, then, other
        case Cast(x=x, to=to, bits=False):
            guards, inside, outside = _split_guards(x)
            return guards, Cast(inside, to), None if outside is None else Cast(outside, to)
        case _:
            return (), e, None


def _join(guards: tuple[Guard, ...], inside: RegionExpr, outside: RegionExpr | None) -> RegionExpr:
    assert outside is not None
    return Select(Within(guards), inside, outside)


def _grain(wanted: int, item: Expr) -> Expr:
    """Items of `item` work each that make up the wanted amount."""
    return maximum(ONE, floordiv(expr(wanted), maximum(item, ONE)))
